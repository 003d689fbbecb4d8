"""Which layout configs of a program are measured: at random, and by a genetic search from the default.

These are TpuGraphs' two collections (tpugraphs2023, section 4.2): `random` configs differ much in runtime,
those of the genetic search stay near the default. No config is measured twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costbench.compiler.spaces import ChoiceArray, VectorSpace
from costbench.datasets.layout.columns import DEFAULT, GENETIC, RANDOM

FloatArray = npt.NDArray[np.float64]
Measure = Callable[[ChoiceArray], FloatArray]
"""Runtime in ns of configs [n, m], float64 [n]; infinite where one failed."""

_TRIES = 8
_TOURNAMENT = 2
_BATCH = 64


@dataclass(frozen=True)
class GeneticParams:
    """The genetic search.

    Attributes:
        population: configs that are kept from one generation to the next.
        generations: at most.
        crossover: share of children that have two parents.
        mutations: steps to a neighbour that a child takes, at most; at least one.
    """

    population: int = 32
    generations: int = 1000
    crossover: float = 0.5
    mutations: int = 2

    def __post_init__(self) -> None:
        if self.population < 2:
            raise ValueError("population: at least 2")
        if self.generations < 1 or self.mutations < 1:
            raise ValueError("generations, mutations: at least 1")
        if not 0.0 <= self.crossover <= 1.0:
            raise ValueError("crossover: a share, from 0 to 1")


class Trials:
    """Configs measured so far, each once, the default first.

    Args:
        space: of the program.
        measure: runs configs.

    Attributes:
        num_failed: configs that failed.
    """

    def __init__(self, space: VectorSpace, measure: Measure) -> None:
        self._measure = measure
        self._seen: set[bytes] = set()
        self._configs: list[ChoiceArray] = []
        self._runtime: list[float] = []
        self._source: list[int] = []
        self.num_failed = 0
        self.run(space.default[None], DEFAULT)

    def __len__(self) -> int:
        return len(self._configs) + self.num_failed

    def fresh(self, config: ChoiceArray) -> bool:
        """Whether it is not measured yet; from now on it counts as measured."""
        key = np.ascontiguousarray(config, dtype="<i2").tobytes()
        if key in self._seen:
            return False
        self._seen.add(key)
        return True

    def run(self, configs: ChoiceArray, source: int) -> FloatArray:
        """Measures fresh configs [n, m]; returns their runtimes, infinite where one failed."""
        if source == DEFAULT:
            self.fresh(configs[0])
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
        """What ran, as columns of a shard."""
        return {
            "config_options": np.array(self._configs, dtype=np.int16),
            "config_source": np.array(self._source, dtype=np.uint8),
            "config_runtime_ns": np.array(self._runtime, dtype=np.int64),
        }


def search_randomly(space: VectorSpace, trials: Trials, rng: np.random.Generator, limit: int) -> None:
    """Draws configs until `limit` are measured in all, or hardly any new ones come."""
    idle = 0
    while len(trials) < limit and idle < _TRIES:
        drawn = space.sample(rng, min(_BATCH, limit - len(trials)))
        new = [config for config in drawn if trials.fresh(config)]
        idle = 0 if new else idle + 1
        if new:
            trials.run(np.array(new), RANDOM)


def search_genetically(
    space: VectorSpace, trials: Trials, rng: np.random.Generator, limit: int, params: GeneticParams
) -> None:
    """Evolves the default: the best of parents and children go on, until `limit` configs are measured.

    A child has one or two parents, each the faster of two drawn ones, and takes up to `params.mutations`
    steps to a neighbour.
    """
    population = space.default[None]
    runtime = np.full(1, np.inf)
    for _ in range(params.generations):
        wanted = min(params.population, limit - len(trials))
        children = _children(space, trials, rng, (population, runtime), params, wanted)
        if not len(children):
            return
        population = np.concatenate([population, children])
        runtime = np.concatenate([runtime, trials.run(children, GENETIC)])
        best = np.argsort(runtime, kind="stable")[: params.population]
        population, runtime = population[best], runtime[best]


def _children(
    space: VectorSpace,
    trials: Trials,
    rng: np.random.Generator,
    parents: tuple[ChoiceArray, FloatArray],
    params: GeneticParams,
    count: int,
) -> ChoiceArray:
    found: list[ChoiceArray] = []
    for _ in range(count * _TRIES):
        if len(found) == count:
            break
        child = _parent(rng, *parents)
        if rng.random() < params.crossover:
            child = space.crossover(child, _parent(rng, *parents), rng)
        for _ in range(int(rng.integers(1, params.mutations + 1))):
            near = space.neighbours(child, rng, 1)
            child = near[0] if len(near) else child
        if trials.fresh(child):
            found.append(child)
    return np.array(found, dtype=np.int16).reshape(len(found), len(space.default))


def _parent(rng: np.random.Generator, population: ChoiceArray, runtime: FloatArray) -> ChoiceArray:
    drawn = rng.integers(len(population), size=_TOURNAMENT)
    chosen: ChoiceArray = population[drawn[np.argmin(runtime[drawn])]]
    return chosen
