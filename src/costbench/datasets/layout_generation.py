"""Generates layout shards: compiles a program under many layout configs and measures it under each.

A shard is one program on one chip. It depends only on the program, the chip and the parameters; the chips of
a task share what is compiled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import zstandard

from costbench.arrays import F64, I16, I64, AnyArray
from costbench.artifacts import digest_bytes
from costbench.compiler.layout.space import LayoutSpace, layout_space, option_features
from costbench.compiler.spaces import VectorSpace
from costbench.datasets.generation import Shards, ShardSummary, SharedProgram, shard_key
from costbench.datasets.layout_pricing import ProgramPricer
from costbench.datasets.layout_shards import Family, layout_shard_path
from costbench.datasets.record_types import DEFAULT, GENETIC, LAYOUT, LAYOUT_GENERATOR_VERSION, RANDOM
from costbench.datasets.storage import write_shard
from costbench.hardware.device import NUM_RUNS, Device
from costbench.hlo.conversion import module_to_bytes
from costbench.hlo.module import HloModule
from costbench.hlo.reader import module_from_bytes
from costbench.rng import stream
from costbench.search.genetic import Genetic, Population
from costbench.search.space import Rows, Seen, VectorSearchSpace, keys
from costbench.store import Entry, key_of
from costbench.target import Target

Measure = Callable[[I16, I64], F64]
"""Returns the runtime in ns of configs [n, m], measured so often before [n], as float64 [n]; infinite where
one failed."""

_TRIES = 8
"""Consecutive draws without a new config after which a space counts as exhausted; also attempts per child."""
_BATCH = 64


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


class Runs(Seen):
    """Counts how often configs have been taken, each at most `limit` times.

    Args:
        limit: most often that a config is taken.
    """

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit
        self._taken: Counter[bytes] = Counter()

    def take_fresh(self, rows: Rows) -> Rows:
        """Returns the rows, repeated ones included, that had not been taken `limit` times; takes them."""
        kept = []
        for place, key in enumerate(keys(rows)):
            if self._taken[key] < self._limit:
                self._taken[key] += 1
                kept.append(place)
        return rows[kept]


class Trials:
    """Runs of configs so far, the default's first.

    Args:
        space: of the program.
        measure: runs configs.
        max_runs: most often that a search runs one config.

    Attributes:
        failed: number of runs that failed, by source.
    """

    def __init__(self, space: VectorSpace, measure: Measure, max_runs: int = 1) -> None:
        self._space, self._measure, self._max_runs = space, measure, max_runs
        self._configs: list[I16] = []
        self._runtime: list[float] = []
        self._source: list[int] = []
        self._runs: Counter[bytes] = Counter()
        self.failed: Counter[int] = Counter()
        self.run(space.default[None], DEFAULT)

    def __len__(self) -> int:
        return len(self._configs) + self.failed.total()

    def runs(self) -> Runs:
        """Returns what keeps one search from running a config too often; the default has run once."""
        found = Runs(self._max_runs)
        found.take_fresh(self._space.default[None])
        return found

    def run(self, configs: I16, source: int) -> F64:
        """Measures configs [n, m] once each; returns their runtimes, infinite where one failed."""
        before = []
        for key in keys(configs):
            before.append(self._runs[key])
            self._runs[key] += 1
        runtime = self._measure(configs, np.array(before, dtype=np.int64))
        for config, ns in zip(configs, runtime.tolist(), strict=True):
            if np.isfinite(ns):
                self._configs.append(config)
                self._runtime.append(ns)
                self._source.append(source)
            else:
                self.failed[source] += 1
        return runtime

    def columns(self) -> dict[str, AnyArray]:
        """Returns the measured configs and runtimes as columns of a shard."""
        return {
            "config_options": np.array(self._configs, dtype=np.int16),
            "config_source": np.array(self._source, dtype=np.uint8),
            "config_runtime_ns": np.array(self._runtime, dtype=np.int64),
        }


def search_randomly(space: VectorSpace, trials: Trials, rng: np.random.Generator, limit: int) -> None:
    """Draws random configs until there are `limit` runs in all or the space counts as exhausted."""
    idle, runs = 0, trials.runs()
    while len(trials) < limit and idle < _TRIES:
        drawn = space.sample(rng, min(_BATCH, limit - len(trials)))
        new = runs.take_fresh(drawn).astype(np.int16)
        idle = 0 if len(new) else idle + 1
        if len(new):
            trials.run(new, RANDOM)


def search_genetically(
    space: VectorSpace, trials: Trials, rng: np.random.Generator, limit: int, params: GeneticParams
) -> None:
    """Evolves the default, keeping the best of parents and children, until there are `limit` runs.

    The default counts as slower than any config that runs, so it is a parent of the first generation only.
    """
    breeding, vectors, runs = params.breeding(), VectorSearchSpace(space), trials.runs()
    population = Population(space.default[None], np.full(1, np.inf))
    for _ in range(params.generations):
        wanted = min(params.population, limit - len(trials))
        children = breeding.children(vectors, rng, population, wanted, runs)
        if not len(children):
            return
        runtime = trials.run(children.astype(np.int16), GENETIC)
        population = breeding.survivors(population, Population(children, runtime))


_ZSTD_LEVEL = 10


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
class LayoutTask:
    """The layout shards of one program; a `Task` of `costbench.datasets.generation`.

    Attributes:
        name: of the program.
        application: that the program belongs to.
        family: of collections that it belongs to.
        program: bytes of its HLO module, plain or zstd.
        targets: the chips, one shard each.
        params: of the layout task.
        folder: of the data set.
        code: digest of the code that makes them.
    """

    name: str
    application: str
    family: Family
    program: bytes
    targets: tuple[Target, ...]
    params: LayoutParams
    folder: Path
    code: str = ""

    @property
    def paths(self) -> tuple[Path, ...]:
        """Paths of the shards, in the order of the chips."""
        return tuple(layout_shard_path(self.folder, target.name, self.name) for target in self.targets)

    @property
    def group(self) -> str:
        """A group of its own: it compiles the program under its own layouts and shares nothing."""
        return str(self.paths[0])

    @property
    def weight(self) -> int:
        """Work estimate, which grows with the size of the program."""
        return len(self.program)

    def key(self, target: Target) -> str:
        """Digest of all inputs but the code."""
        made_from = shard_key(self.program, [target], self.params, LAYOUT_GENERATOR_VERSION)
        return digest_bytes(f"{made_from}/{self.family}".encode())[: len(made_from)]

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Where the store keeps the shards, in the order of the chips."""
        return tuple(map(self._entry, self.targets))

    def _entry(self, target: Target) -> Entry:
        path = layout_shard_path(self.folder, target.name, self.name)
        return Entry(path.with_suffix(".json"), key_of(self.key(target), self.code), (path,))

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
        for number, target in enumerate(self.targets):
            self._entry(target).get(Shards, partial(self._make_shard, space, pricer, number))

    def _make_shard(self, space: LayoutSpace, pricer: ProgramPricer, number: int) -> Shards:
        target = self.targets[number]
        trials = _search(space, partial(pricer.measure, device=number), self.params, self.name)
        columns = {**_space_columns(space), **trials.columns()}
        met = {"num_kernels": pricer.num_kernels(number), "num_programs": pricer.num_programs(number)}
        facts = _metadata(self, target, trials, columns["config_runtime_ns"])
        write_shard(layout_shard_path(self.folder, target.name, self.name), columns, {**facts, **met}, LAYOUT)
        summary = ShardSummary(
            task="layout",
            name=self.name,
            chip=target.name,
            num_kernels=met["num_kernels"],
            num_samples=len(columns["config_runtime_ns"]),
            num_failed=trials.failed.total(),
            device_seconds=float(str(facts["device_seconds"])),
        )
        return Shards(self._entry(target).key, (summary,))


def _search(space: LayoutSpace, measure: Measure, params: LayoutParams, name: str) -> Trials:
    trials = Trials(space, measure, params.max_runs)
    if not len(space.nodes):
        return trials
    # Random streams do not depend on the chip, so chips are compared on the same random configs.
    if params.strategy != "genetic":
        search_randomly(space, trials, stream(params.seed, "layout random", name), params.max_configs)
    if params.strategy != "random":
        rng = stream(params.seed, "layout genetic", name)
        limit = len(trials) - 1 + params.max_configs
        search_genetically(space, trials, rng, limit, params.genetic)
    return trials


def _space_columns(space: LayoutSpace) -> dict[str, AnyArray]:
    nodes = space.nodes
    return {
        "program": np.frombuffer(_compressed(space.module), dtype=np.uint8),
        "node_computation": np.array([node.computation for node in nodes], dtype=np.int32),
        "node_position": np.array([node.position for node in nodes], dtype=np.int32),
        "node_opcode": np.array([int(node.opcode) for node in nodes], dtype=np.int16),
        "option_offsets": np.concatenate([[0], np.cumsum(space.num_choices)]).astype(np.int64),
        "option_layout": np.concatenate(
            [np.zeros((0, 18), np.int8), *(option_features(node) for node in nodes)]
        ),
    }


def _compressed(module: HloModule) -> bytes:
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL).compress(module_to_bytes(module))


def _metadata(task: LayoutTask, target: Target, trials: Trials, runtime_ns: AnyArray) -> dict[str, object]:
    runtime = runtime_ns.astype(np.float64)
    return {
        "key": task.key(target),
        "task": "layout",
        "program": task.name,
        "application": task.application,
        "family": task.family,
        "program_sha256": digest_bytes(task.program),
        "chip": target.name,
        "generator_version": LAYOUT_GENERATOR_VERSION,
        "params": asdict(task.params),
        "default_runtime_ns": int(runtime[0]),
        "num_failed": trials.failed.total(),
        "num_failed_random": trials.failed[RANDOM],
        "num_failed_genetic": trials.failed[GENETIC],
        "device_seconds": round(NUM_RUNS * float(runtime.sum()) * 1e-9, 9),
    }
