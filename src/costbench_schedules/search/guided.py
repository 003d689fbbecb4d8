"""Algorithm 1 of autotvm2018: a search that fits a cost model to what it has measured, and follows it.

It is a strategy like those of `costbench.search.strategies`, so budgets, traces, interruption and resumption
work on it as on every other one. Scores that it is sent are measured runtimes. A batch is selected to be
both cheap and diverse (equation 3).

Many configurations of a large space are one program to the model: their features are equal, and mostly their
runtimes are, too. The cheapest candidates are then full of copies of the best program so far. In
`DistinctGuided` a program is a candidate once, and none after its measurement. This is not in autotvm2018.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np

from costbench.arrays import F64, I64, AnyArray, Bool
from costbench.search.space import Proposals, Rows, SearchSpace, Seen
from costbench_schedules.models.ensemble import CorrectedModel
from costbench_schedules.models.learner import Learner, ScheduleModel, Selectable, samples_of
from costbench_schedules.search.finders import Candidates, Chains, ChainSpec, Energy, Finder


def select_diverse(costs: F64, rows: Rows, count: int, alpha: float) -> I64:
    """Returns which `count` candidates greedily maximise L(S), int64 [min(count, n)], in order of choice.

        L(S) = - sum over s in S of cost(s) + alpha sum_j |union over s in S of {s_j}|

    The second term counts the distinct values of every component of the decisions in S. L is submodular: with
    all costs shifted to at most 0, which changes no choice, the greedy set reaches at least 1 - 1/e of what
    the best one of its size does (Nemhauser, Wolsey and Fisher 1978). Of equal gains the first candidate is
    taken. With alpha = 0 these are the cheapest.

    Args:
        costs: costs of the candidates, float64 [n].
        rows: components of each, [n, m].
        count: size of S.
        alpha: worth of a new value of a component, in units of costs.

    Raises:
        ValueError: for a negative alpha.
    """
    if alpha < 0.0:
        raise ValueError(f"alpha is {alpha}, must not be negative")
    uncovered = np.ones(rows.shape, dtype=bool)
    left = np.ones(len(rows), dtype=bool)
    chosen = np.empty(min(count, len(rows)), dtype=np.int64)
    for rank in range(len(chosen)):
        gains = np.where(left, alpha * uncovered.sum(axis=1) - costs, -np.inf)
        best = int(np.argmax(gains))
        chosen[rank] = best
        left[best] = False
        uncovered &= rows != rows[best]
    return chosen


Features = TypeVar("Features", bound=Selectable)


@dataclass(frozen=True)
class GuidedSpec:
    """Settings of Algorithm 1; the defaults are those of AutoTVM's own tuner where it has them.

    Attributes:
        batch: b, number of measurements between two updates of the model.
        epsilon: share of a batch that is drawn at random.
        candidates: lambda; the batch is selected from the lambda b cheapest candidates.
        alpha: weight of diversity in equation 3, in units of the standard deviation of these candidates'
            costs, because a rank model's costs have no unit; 0 takes the cheapest.
        chains: settings of the annealing.

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
        features: function of decisions to their features, as the learner takes them.
        learner: learner that fits the model after every batch.
        spec: settings of the search.
        earlier: model that was fitted to other measurements (section 4). It selects the first batch, and
            the learner fits what it leaves over (equation 4). Without it the first batch is random.
        trials: number of measurements after which the search ends, for a caller that would else fit a last
            model in vain; None to go on until no new decisions are left.
        finder: function of a space and `spec.chains` to what finds the candidates of a batch; annealing
            chains by default.
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
        state = _SearchState(space, self.finder(space, self.spec.chains), Seen(start), rng)
        first = self._next_batch(state, self.earlier, max(0, self.spec.batch - len(start)))
        batch = np.concatenate([start, first]) if len(start) else first
        rows, scores = space.rows([]), np.zeros(0)
        while len(batch := batch[: self._left(len(rows))]):
            measured = yield batch
            rows, scores = np.concatenate([rows, batch]), np.concatenate([scores, measured])
            if self._left(len(rows)) == 0:
                return
            batch = self._next_batch(state, self._fitted(rows, scores, rng), self.spec.batch)

    def _left(self, done: int) -> int | None:
        """Returns how many trials are left; None for no limit."""
        return None if self.trials is None else max(0, self.trials - done)

    def _next_batch(self, state: _SearchState, model: ScheduleModel[Features] | None, size: int) -> Rows:
        """Returns up to `size` unseen decisions, those of the model first, and adds them to the seen ones."""
        guided = state.space.rows([])
        spec = self.spec
        if model is not None and size > spec.num_random:
            count = size - spec.num_random
            candidates = state.finder.run(self._energy(model), spec.candidates * count, state.seen, state.rng)
            if len(candidates.costs):
                alpha = spec.alpha * float(np.std(candidates.costs))
                guided = candidates.rows[select_diverse(candidates.costs, candidates.rows, count, alpha)]
                state.seen.add(guided)
        # Fewer than a batch where the chains, caught in a small space, met too few new decisions.
        random = state.space.draw(state.rng, size - len(guided), state.seen)
        state.seen.add(random)
        return np.concatenate([guided, random]) if len(guided) else random

    def _energy(self, model: ScheduleModel[Features]) -> Energy:
        """Returns the model as a function of decisions."""
        return lambda rows: model.predict(self.features(rows))

    def _fitted(self, rows: Rows, scores: F64, rng: np.random.Generator) -> ScheduleModel[Features]:
        """Returns the model of all measurements so far."""
        features = self.features(rows)
        start = None if self.earlier is None else self.earlier.predict(features)
        samples = samples_of(scores, start=start)
        fitted = self.learner.fit(features, samples, int(rng.integers(2**31)))
        return fitted if self.earlier is None else CorrectedModel(self.earlier, fitted)


@dataclass(frozen=True, eq=False)
class _SearchState:
    """What lasts from batch to batch."""

    space: SearchSpace[Any]
    finder: Finder
    seen: Seen
    rng: np.random.Generator


FeaturesOf = Callable[[Rows], AnyArray]
"""Features of configurations [n, m], one row [F] for each."""


class LastFeatures:
    """Keeps the features of the last configurations: a finder's model and `DistinctFinder` ask for the same.

    Args:
        features: function of configurations to their features.
    """

    def __init__(self, features: FeaturesOf) -> None:
        self._features = features
        self._rows: Rows | None = None
        self._last: AnyArray = np.zeros((0, 0))

    def __call__(self, rows: Rows) -> AnyArray:
        """Returns the features, [n, F]."""
        if self._rows is None or not np.array_equal(rows, self._rows):
            self._rows, self._last = rows.copy(), np.ascontiguousarray(self._features(rows))
        return self._last


@dataclass(frozen=True, eq=False)
class DistinctFinder:
    """A `Finder` whose candidates have different features, and those of nothing that was measured.

    Attributes:
        finder: finder whose candidates are thinned out.
        features: function of configurations to their features.
        measured: features of what has been measured; whoever measures adds to them.
    """

    finder: Finder
    features: FeaturesOf
    measured: Seen

    def run(self, energy: Energy, count: int, measured: Seen, rng: np.random.Generator) -> Candidates:
        """Returns the finder's `count` cheapest; of equal programs the one that it met first."""
        return self.finder.run(energy, count, _Programs(measured, self.measured, self.features), rng)


class _Programs(Seen):
    """What is no candidate in one run: `fresh` also remembers the programs that it was asked about."""

    def __init__(self, rows: Seen, measured: Seen, features: FeaturesOf) -> None:
        super().__init__()
        self._rows, self._measured, self._features = rows, measured, features
        self._met = Seen()

    def fresh(self, rows: Rows) -> Bool:
        """Returns which rows [n, m] are the first of a program that was not measured, bool [n]."""
        new = self._rows.fresh(rows)
        if len(rows):
            features = self._features(rows)[new]
            first = self._measured.fresh(features) & self._met.fresh(features)
            self._met.add(features[first])
            new[new] = first
        return new


@dataclass(frozen=True, eq=False)
class DistinctGuided:
    """A `Strategy`: a guided search whose batches hold different programs.

    Attributes:
        search: search that proposes.
        features: features that tell programs apart, whatever the model of the search reads.
    """

    search: ModelGuided[Any]
    features: FeaturesOf

    def __call__(self, space: SearchSpace[Any], rng: np.random.Generator, start: Rows, /) -> Proposals:
        """Yields batches as `ModelGuided` does, without copies among the candidates of the model."""
        measured = Seen()

        def finder(space: SearchSpace[Any], chains: ChainSpec) -> Finder:
            return DistinctFinder(self.search.finder(space, chains), self.features, measured)

        proposals = replace(self.search, finder=finder)(space, rng, start)
        batch = next(proposals, None)
        while batch is not None:
            measured.add(self.features(batch))
            try:
                batch = proposals.send((yield batch))
            except StopIteration:
                return
