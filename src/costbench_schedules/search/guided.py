"""Algorithm 1 of autotvm2018: a search that fits a cost model to what it has measured, and follows it.

It is a strategy like those of `costbench.search.strategies`, so budgets, traces, interruption and resumption
work on it as on every other one. Scores that it is sent are measured runtimes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from costbench.arrays import F64
from costbench.search.space import Proposals, Rows, SearchSpace, Seen
from costbench_schedules.models.learner import Learner, ScheduleModel, samples_of
from costbench_schedules.models.transfer import Corrected
from costbench_schedules.search.chains import Chains, ChainSpec, Energy
from costbench_schedules.search.finders import Finder
from costbench_schedules.search.selection import diverse

Features = TypeVar("Features")


@dataclass(frozen=True)
class GuidedSpec:
    """Settings of Algorithm 1; the defaults are those of AutoTVM's own tuner where it has them.

    Attributes:
        batch: b, measurements between two updates of the model.
        epsilon: share of a batch that is drawn at random.
        candidates: lambda; the batch is selected from the lambda b cheapest candidates.
        alpha: weight of diversity in equation 3, in units of the standard deviation of these candidates'
            costs, because a rank model's costs have no unit; 0 takes the cheapest.
        chains: the annealing.

    Raises:
        ValueError: for numbers out of range.
    """

    batch: int = 64
    epsilon: float = 0.05
    candidates: int = 2
    alpha: float = 0.1
    chains: ChainSpec = field(default_factory=ChainSpec)

    def __post_init__(self) -> None:
        if self.batch < 1 or self.candidates < 1:
            raise ValueError("batch, candidates: at least 1")
        if not 0.0 <= self.epsilon <= 1.0:
            raise ValueError(f"epsilon is {self.epsilon}, expected a share, from 0 to 1")
        if self.alpha < 0.0:
            raise ValueError(f"alpha is {self.alpha}, must not be negative")

    @property
    def num_random(self) -> int:
        """Returns epsilon b, rounded."""
        return round(self.epsilon * self.batch)


@dataclass(frozen=True, eq=False)
class ModelGuided(Generic[Features]):
    """A `Strategy`.

    Attributes:
        features: of decisions, as the learner takes them.
        learner: fits the model after every batch.
        spec: settings.
        earlier: a model that was fitted to other measurements (section 4). It selects the first batch, and
            the learner fits what it leaves over (equation 4). Without it the first batch is random.
        trials: measurements after which the search ends, for a caller that would else fit a last model in
            vain; None to go on until no new decisions are left.
        finder: of a space and `spec.chains`, finds the candidates of a batch; annealing chains by default.
    """

    features: Callable[[Rows], Features]
    learner: Learner[Features]
    spec: GuidedSpec = field(default_factory=GuidedSpec)
    earlier: ScheduleModel[Features] | None = None
    trials: int | None = None
    finder: Callable[[SearchSpace[Any], ChainSpec], Finder] = Chains

    def __call__(self, space: SearchSpace[Any], rng: np.random.Generator, start: Rows, /) -> Proposals:
        """Yields batches of distinct legal decisions until no new ones are left.

        The first batch is `start`, filled up to the size of a batch; every further one is chosen by the model
        that is fitted to all before it.
        """
        turn = _Turn(space, self.finder(space, self.spec.chains), Seen(start), rng)
        first = self._batch(turn, self.earlier, max(0, self.spec.batch - len(start)))
        batch = np.concatenate([start, first]) if len(start) else first
        rows, scores = space.rows([]), np.zeros(0)
        while len(batch := batch[: self._left(len(rows))]):
            measured = yield batch
            rows, scores = np.concatenate([rows, batch]), np.concatenate([scores, measured])
            if self._left(len(rows)) == 0:
                return
            batch = self._batch(turn, self._fitted(rows, scores, rng), self.spec.batch)

    def _left(self, done: int) -> int | None:
        """Returns how many trials are left; None for no limit."""
        return None if self.trials is None else max(0, self.trials - done)

    def _batch(self, turn: _Turn, model: ScheduleModel[Features] | None, size: int) -> Rows:
        """Returns up to `size` unseen decisions, those of the model first, and adds them to the seen ones."""
        guided = turn.space.rows([])
        spec = self.spec
        if model is not None and size > spec.num_random:
            count = size - spec.num_random
            energy = self._energy(model)
            found = turn.finder.run(energy, spec.candidates * count, turn.seen, turn.rng)
            if len(found.costs):
                alpha = spec.alpha * float(np.std(found.costs))
                guided = found.rows[diverse(found.costs, found.rows, count, alpha)]
                turn.seen.add(guided)
        # Fewer than a batch where the chains, caught in a small space, met too few new decisions.
        drawn = turn.space.draw(turn.rng, size - len(guided), turn.seen)
        turn.seen.add(drawn)
        return np.concatenate([guided, drawn]) if len(guided) else drawn

    def _energy(self, model: ScheduleModel[Features]) -> Energy:
        """Returns the model as a function of decisions."""
        return lambda rows: model.predict(self.features(rows))

    def _fitted(self, rows: Rows, scores: F64, rng: np.random.Generator) -> ScheduleModel[Features]:
        """Returns the model of all measurements so far."""
        features = self.features(rows)
        start = None if self.earlier is None else self.earlier.predict(features)
        samples = samples_of(scores, start=start)
        fitted = self.learner.fit(features, samples, int(rng.integers(2**31)))
        return fitted if self.earlier is None else Corrected(self.earlier, fitted)


@dataclass(frozen=True, eq=False)
class _Turn:
    """What lasts from batch to batch."""

    space: SearchSpace[Any]
    finder: Finder
    seen: Seen
    rng: np.random.Generator
