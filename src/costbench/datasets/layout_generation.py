"""Generates layout shards: compiles a program under many layout configs and measures it under each.

A shard is one program on one chip. It depends only on the program, the chip and the parameters; the chips of
a task share what is compiled.

The configs correspond to TpuGraphs' two collections (tpugraphs2023, section 4.2): those drawn at random
differ much in runtime, those of a genetic search from the default stay near it. As in its files, a config
that a search meets again is measured again, up to a limit, and every run has noise of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import zstandard

from costbench.arrays import F64, I16, I64, AnyArray
from costbench.artifacts import digest_bytes
from costbench.compiler.layout.space import LayoutSpace, layout_space, option_features
from costbench.compiler.spaces import VectorSpace
from costbench.datasets.generation import ProgramTask, Shards, SharedProgram
from costbench.datasets.layout_pricing import ProgramPricer
from costbench.datasets.layout_shards import Family, layout_shard_path
from costbench.datasets.record_types import DEFAULT, GENETIC, LAYOUT, RANDOM
from costbench.datasets.records import offsets_of
from costbench.datasets.storage import write_shard
from costbench.hardware.device import NUM_RUNS, Device
from costbench.hlo.conversion import module_to_bytes
from costbench.hlo.reader import module_from_bytes
from costbench.rng import stream
from costbench.search.genetic import Genetic, Population
from costbench.search.space import Rows, Seen, VectorSearchSpace, keys
from costbench.target import Target

Measure = Callable[[I16, I64], F64]
"""Returns the runtime in ns of configs [n, m], measured so often before [n], as float64 [n]; infinite where
one failed."""

_TRIES = 8
"""Consecutive draws without a new config after which a space counts as exhausted; also attempts per child."""
_BATCH = 64
_ZSTD_LEVEL = 10


@dataclass(frozen=True)
class GeneticParams:
    """The genetic search.

    Attributes:
        population: number of configs kept from one generation to the next.
        generations: maximum number of generations.
        crossover: share of children that have two parents.
        mutations: maximum number of steps to a neighbour that a child takes; every child takes at least one.
    """

    population: int = 32
    generations: int = 1000
    crossover: float = 0.5
    mutations: int = 2

    def __post_init__(self) -> None:
        if self.generations < 1:
            raise ValueError("generations: at least 1")
        self.breeding()

    def breeding(self) -> Genetic:
        """Returns the operators that make children from parents.

        Raises:
            ValueError: for a population, share or number of mutations that `Genetic` refuses.
        """
        return Genetic(self.population, self.crossover, self.mutations, tries=_TRIES)


class RunLimit(Seen):
    """Counts how often configs have been taken, each at most `limit` times.

    Args:
        limit: largest number of times that a config is taken.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self._taken: Counter[bytes] = Counter()

    def take_fresh(self, rows: Rows) -> Rows:
        """Returns the rows, repeated ones included, that had not been taken `limit` times; takes them."""
        indices = []
        for index, key in enumerate(keys(rows)):
            if self._taken[key] < self._limit:
                self._taken[key] += 1
                indices.append(index)
        return rows[indices]


class ConfigRuns:
    """Runs of configs so far, the default's first.

    Args:
        space: layout configs of the program.
        measure: function that runs configs.
        max_runs: largest number of times that a search runs one config.

    Attributes:
        failed: number of runs that failed, by source.
    """

    def __init__(self, space: VectorSpace, measure: Measure, max_runs: int = 1) -> None:
        self._space, self._measure, self._max_runs = space, measure, max_runs
        self._configs: list[I16] = []
        self._runtime_ns: list[float] = []
        self._source: list[int] = []
        self._num_runs: Counter[bytes] = Counter()
        self.failed: Counter[int] = Counter()
        self.run(space.default[None], DEFAULT)

    def __len__(self) -> int:
        return len(self._configs) + self.failed.total()

    def limit(self) -> RunLimit:
        """Returns what keeps one search from running a config too often; the default has run once."""
        limit = RunLimit(self._max_runs)
        limit.take_fresh(self._space.default[None])
        return limit

    def run(self, configs: I16, source: int) -> F64:
        """Measures configs [n, m] once each; returns their runtimes, infinite where one failed."""
        runs_before = []
        for key in keys(configs):
            runs_before.append(self._num_runs[key])
            self._num_runs[key] += 1
        runtime_ns = self._measure(configs, np.array(runs_before, dtype=np.int64))
        for config, ns in zip(configs, runtime_ns.tolist(), strict=True):
            if np.isfinite(ns):
                self._configs.append(config)
                self._runtime_ns.append(ns)
                self._source.append(source)
            else:
                self.failed[source] += 1
        return runtime_ns

    def columns(self) -> dict[str, AnyArray]:
        """Returns the measured configs and runtimes as columns of a shard."""
        return {
            "config_options": np.array(self._configs, dtype=np.int16),
            "config_source": np.array(self._source, dtype=np.uint8),
            "config_runtime_ns": np.array(self._runtime_ns, dtype=np.int64),
        }


def search_randomly(space: VectorSpace, runs: ConfigRuns, rng: np.random.Generator, limit: int) -> None:
    """Draws random configs until there are `limit` runs in all or the space counts as exhausted."""
    idle, run_limit = 0, runs.limit()
    while len(runs) < limit and idle < _TRIES:
        sample = space.sample(rng, min(_BATCH, limit - len(runs)))
        fresh = run_limit.take_fresh(sample).astype(np.int16)
        idle = 0 if len(fresh) else idle + 1
        if len(fresh):
            runs.run(fresh, RANDOM)


def search_genetically(
    space: VectorSpace, runs: ConfigRuns, rng: np.random.Generator, limit: int, params: GeneticParams
) -> None:
    """Evolves the default, keeping the best of parents and children, until there are `limit` runs.

    The default counts as slower than any config that runs, so it is a parent of the first generation only.
    """
    breeding, vectors, run_limit = params.breeding(), VectorSearchSpace(space), runs.limit()
    population = Population(space.default[None], np.full(1, np.inf))
    for _ in range(params.generations):
        num_children = min(params.population, limit - len(runs))
        children = breeding.children(vectors, rng, population, num_children, run_limit)
        if not len(children):
            return
        runtime_ns = runs.run(children.astype(np.int16), GENETIC)
        population = breeding.survivors(population, Population(children, runtime_ns))


@dataclass(frozen=True)
class LayoutParams:
    """How many configs of a program are measured, and how they are found.

    Attributes:
        max_configs: runs of each search, including the default's and failed ones.
        strategy: `random`, `genetic`, or `both`.
        max_runs: largest number of times that a search runs one config.
        genetic: the genetic search.
        max_instructions: instructions above which a program is left out; 0 for no limit.
        memory_gib: main memory of a core in GiB; configs that need more fail, unless the default needs more,
            too.
        seed: seed of the search and of the device's noise.
    """

    max_configs: int = 1000
    strategy: Literal["random", "genetic", "both"] = "both"
    max_runs: int = 3
    genetic: GeneticParams = field(default_factory=GeneticParams)
    max_instructions: int = 0
    memory_gib: float = 16.0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.max_configs < 2:
            raise ValueError("max_configs: at least 2 are needed to compare")
        if self.strategy not in ("random", "genetic", "both"):
            raise ValueError(f"strategy is {self.strategy!r}, must be random, genetic or both")
        if self.max_runs < 1:
            raise ValueError("max_runs: at least 1")
        if self.max_instructions < 0:
            raise ValueError("max_instructions: at least 0")
        if self.memory_gib <= 0:
            raise ValueError("memory_gib: more than 0")


@dataclass(frozen=True)
class LayoutTask(ProgramTask):
    """The layout shards of one program, one a chip.

    Attributes:
        family: family of collections that the program belongs to.
    """

    params: LayoutParams
    family: Family = field(kw_only=True)
    task = "layout"
    version = 2

    def shards(self, target: Target) -> tuple[Path, ...]:
        """Returns the path of the shard of a chip."""
        return (layout_shard_path(self.folder, target.name, self.name),)

    @property
    def compiled_path(self) -> None:
        """None: a shard holds the program that it compiles under its own layouts, and shares nothing."""

    def key(self, target: Target) -> str:
        """Returns the digest of all inputs of a chip's shard but the code."""
        without_family = super().key(target)
        return digest_bytes(f"{without_family}/{self.family}".encode())[: len(without_family)]

    def make(self, shared: SharedProgram | None = None) -> None:
        """Searches, measures and writes for every chip; a program without choices has only its default.

        Raises:
            HloError: if the program cannot be read.
            UnsupportedKernelError: for a kernel of the default program that cannot be lowered or priced.
            DataError: if a file cannot be written.
        """
        space = layout_space(module_from_bytes(self.program, where=self.name))
        devices = [Device(target, self.params.seed) for target in self.targets]
        pricer = ProgramPricer(space, devices, self.params.memory_gib)
        for device, target in enumerate(self.targets):
            self.entry(target).get(Shards, partial(self._make_shard, space, pricer, device))

    def _make_shard(self, space: LayoutSpace, pricer: ProgramPricer, device: int) -> Shards:
        target = self.targets[device]
        runs = _search(space, partial(pricer.measure, device=device), self.params, self.name)
        columns = {**_space_columns(space), **runs.columns()}
        runtime_ns = columns["config_runtime_ns"].astype(np.float64)
        metadata = {
            **self.metadata(target, runs.failed.total(), NUM_RUNS * float(runtime_ns.sum()) * 1e-9),
            "family": self.family,
            "default_runtime_ns": int(runtime_ns[0]),
            "num_failed_random": runs.failed[RANDOM],
            "num_failed_genetic": runs.failed[GENETIC],
            "num_kernels": pricer.num_kernels(device),
            "num_programs": pricer.num_programs(device),
        }
        write_shard(layout_shard_path(self.folder, target.name, self.name), columns, metadata, LAYOUT)
        summary = self.summary(metadata, pricer.num_kernels(device), len(runtime_ns))
        return Shards(self.entry(target).key, (summary,))


def _search(space: LayoutSpace, measure: Measure, params: LayoutParams, name: str) -> ConfigRuns:
    runs = ConfigRuns(space, measure, params.max_runs)
    if not len(space.nodes):
        return runs
    # Random streams do not depend on the chip, so chips are compared on the same random configs.
    if params.strategy != "genetic":
        search_randomly(space, runs, stream(params.seed, "layout random", name), params.max_configs)
    if params.strategy != "random":
        rng = stream(params.seed, "layout genetic", name)
        limit = len(runs) - 1 + params.max_configs
        search_genetically(space, runs, rng, limit, params.genetic)
    return runs


def _space_columns(space: LayoutSpace) -> dict[str, AnyArray]:
    nodes = space.nodes
    program = zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(module_to_bytes(space.module))
    return {
        "program": np.frombuffer(program, dtype=np.uint8),
        "node_computation": np.array([node.computation for node in nodes], dtype=np.int32),
        "node_position": np.array([node.position for node in nodes], dtype=np.int32),
        "node_opcode": np.array([int(node.opcode) for node in nodes], dtype=np.int16),
        "option_offsets": offsets_of(space.num_choices),
        "option_layout": np.concatenate(
            [np.zeros((0, 18), np.int8), *(option_features(node) for node in nodes)]
        ),
    }
