"""Chooses the layout configs to measure: random ones, and those of a genetic search from the default.

These correspond to TpuGraphs' two collections (tpugraphs2023, section 4.2): `random` configs differ much in
runtime, those of the genetic search stay near the default. No config is measured twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costbench.compiler.spaces import ChoiceArray, VectorSpace
from costbench.datasets.layout.columns import DEFAULT, GENETIC, RANDOM
from costbench.search.genetic import Genetic, Population
from costbench.search.space import Seen, Vectors

FloatArray = npt.NDArray[np.float64]
Measure = Callable[[ChoiceArray], FloatArray]
"""Returns the runtime in ns of configs [n, m] as float64 [n]; infinite where one failed."""

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


class Trials:
    """Configs measured so far, each once, the default first.

    Args:
        space: of the program.
        measure: runs configs.

    Attributes:
        num_failed: configs that failed.
        seen: configs that are measured or scheduled.
    """

    def __init__(self, space: VectorSpace, measure: Measure) -> None:
        self._measure = measure
        self._configs: list[ChoiceArray] = []
        self._runtime: list[float] = []
        self._source: list[int] = []
        self.num_failed = 0
        self.seen = Seen(space.default[None])
        self.run(space.default[None], DEFAULT)

    def __len__(self) -> int:
        return len(self._configs) + self.num_failed

    def run(self, configs: ChoiceArray, source: int) -> FloatArray:
        """Measures fresh configs [n, m]; returns their runtimes, infinite where one failed."""
        runtime = self._measure(configs)
        for config, ns in zip(configs, runtime.tolist(), strict=True):
            if np.isfinite(ns):
                self._configs.append(config)
                self._runtime.append(ns)
                self._source.append(source)
            else:
                self.num_failed += 1
        return runtime

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """Returns the measured configs and runtimes as columns of a shard."""
        return {
            "config_options": np.array(self._configs, dtype=np.int16),
            "config_source": np.array(self._source, dtype=np.uint8),
            "config_runtime_ns": np.array(self._runtime, dtype=np.int64),
        }


def search_randomly(space: VectorSpace, trials: Trials, rng: np.random.Generator, limit: int) -> None:
    """Draws random configs until `limit` are measured in all or the space counts as exhausted."""
    idle = 0
    while len(trials) < limit and idle < _TRIES:
        drawn = space.sample(rng, min(_BATCH, limit - len(trials)))
        new = trials.seen.take_fresh(drawn)
        idle = 0 if len(new) else idle + 1
        if len(new):
            trials.run(new, RANDOM)


def search_genetically(
    space: VectorSpace, trials: Trials, rng: np.random.Generator, limit: int, params: GeneticParams
) -> None:
    """Evolves the default, keeping the best of parents and children, until `limit` configs are measured.

    The default counts as slower than any config that runs, so it is a parent of the first generation only.
    """
    breeding, vectors = params.breeding(), Vectors(space)
    population = Population(space.default[None], np.full(1, np.inf))
    for _ in range(params.generations):
        wanted = min(params.population, limit - len(trials))
        children = breeding.children(vectors, rng, population, wanted, trials.seen)
        if not len(children):
            return
        runtime = trials.run(children.astype(np.int16), GENETIC)
        population = breeding.survivors(population, Population(children, runtime))
