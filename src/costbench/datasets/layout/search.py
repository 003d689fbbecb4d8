"""Chooses the layout configs to measure: random ones, and those of a genetic search from the default.

These correspond to TpuGraphs' two collections (tpugraphs2023, section 4.2): `random` configs differ much in
runtime, those of the genetic search stay near the default. As in its files, a config that a search meets
again is measured again, up to a limit, and every run has noise of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from costbench.arrays import F64, I16, I64, AnyArray
from costbench.compiler.spaces import VectorSpace
from costbench.datasets.layout.columns import DEFAULT, GENETIC, RANDOM
from costbench.search.genetic import Genetic, Population
from costbench.search.space import Rows, Seen, VectorSearchSpace, keys

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
