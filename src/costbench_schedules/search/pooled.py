"""Bayesian optimisation of schedule spaces: `search.bayesian` over a pool, for such a space cannot be listed.

In the pool are configurations that are always there (a small space of hand-written kinds), some that were
drawn at random at the begin, and steps and double steps from the fastest so far, as SMAC has them (Hutter,
Hoos and Leyton-Brown, "Sequential model-based optimization for general algorithm configuration", LION 2011).
Steps are drawn anew when a faster configuration was measured, and after some trials without one.

With costs by a model of other measurements the process models what a linear function of them leaves over, and
the first trial is the configuration of the least cost. Configurations that are one program are measured once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from costbench.arrays import F64, I64
from costbench.search.space import Proposals, Rows, SearchSpace, Seen
from costbench_schedules.models.gaussian_process import Axes, Posterior
from costbench_schedules.search.bayesian import BayesianSpec, promise_of

_COMPARED = 64
"""Configurations whose programs are compared with those measured at a time: features take time."""


@dataclass(frozen=True)
class PoolSpec:
    """Settings of the search.

    Attributes:
        drawn: number of configurations in the pool that are drawn at random.
        parents: number of the fastest configurations that steps begin at.
        steps: number of steps, and of double steps.
        patience: number of trials without a faster configuration after which steps are drawn anew.
        process: settings of the process.

    Raises:
        ValueError: for numbers out of range.
    """

    drawn: int = 512
    parents: int = 8
    steps: int = 384
    patience: int = 8
    process: BayesianSpec = field(default_factory=BayesianSpec)

    def __post_init__(self) -> None:
        if min(self.drawn, self.parents, self.steps, self.patience) < 1:
            raise ValueError("drawn, parents, steps, patience: at least 1")


@dataclass(frozen=True, eq=False)
class PooledBayesian:
    """A `Strategy`.

    Attributes:
        columns: function of configurations to what the process reads, [n, d].
        programs: function of configurations to features that tell programs apart, [n, F].
        always: configurations that are always in the pool, [k, m].
        earlier: function of configurations to costs by a model of other measurements, float64 [n], or None.
        trials: number of measurements after which the search ends; None to go on until nothing new is met.
        spec: settings.
    """

    columns: Callable[[Rows], Any]
    programs: Callable[[Rows], Any]
    always: Rows
    earlier: Callable[[Rows], F64] | None = None
    trials: int | None = None
    spec: PoolSpec = field(default_factory=PoolSpec)

    def __call__(self, space: SearchSpace[Any], rng: np.random.Generator, start: Rows, /) -> Proposals:
        """Yields batches of different programs, `start` first, until no trial is left or none is met."""
        pool, done = _Pool(self, space, rng, start), 0
        numbers = np.arange(len(start)) if len(start) else pool.first()
        while len(numbers := numbers if self.trials is None else numbers[: self.trials - done]):
            rows = pool.rows[numbers]
            pool.add(numbers, (yield rows))
            done += len(rows)
            if done == self.trials:
                return
            numbers = pool.next_numbers(1 + done // self.spec.process.growth)


class _Pool:
    """The candidates of a search, and the process over them.

    Attributes:
        rows: configurations, [k, m].
    """

    def __init__(
        self, search: PooledBayesian, space: SearchSpace[Any], rng: np.random.Generator, start: Rows
    ) -> None:
        self._search, self._space, self._rng = search, space, rng
        self._lasting = np.concatenate(
            [search.always, space.draw(rng, search.spec.drawn, Seen(search.always))]
        )
        costs = None if search.earlier is None else search.earlier(self._lasting)
        # Costs of a model have any scale: 0 for the slowest and -1 for the fastest of these.
        self._slowest = 0.0 if costs is None else float(costs.max())
        self._range = 1.0 if costs is None else max(float(np.ptp(costs)), 1e-12)
        self._lasting_costs = self._costs_of(self._lasting)
        self.rows: Rows = np.concatenate([start, self._lasting])
        self._costs = np.concatenate([self._costs_of(start), self._lasting_costs])
        self._order, self._scores = np.zeros(0, dtype=np.int64), np.zeros(0)
        self._seen, self._improved = Seen(), True
        self._posterior: Posterior | None = None
        self._next_fit = float(search.spec.process.least)

    def _costs_of(self, rows: Rows) -> F64:
        """Returns the costs by the earlier model, float64 [n, 1]; [n, 0] without one."""
        if self._search.earlier is None or not len(rows):
            return np.zeros((len(rows), 0 if self._search.earlier is None else 1))
        return (self._search.earlier(rows)[:, None] - self._slowest) / self._range

    def first(self) -> I64:
        """Returns the number of the least cost by the earlier model, or numbers drawn at random."""
        if self._search.earlier is not None:
            return np.argsort(self._costs[:, 0], kind="stable")[:1]
        return self._rng.permutation(len(self.rows))[: self._search.spec.process.first]

    def add(self, numbers: I64, scores: F64) -> None:
        """Adds measurements of configurations of the pool."""
        self._improved |= bool(scores.min() < self._scores.min(initial=np.inf))
        self._order = np.concatenate([self._order, numbers])
        self._scores = np.concatenate([self._scores, scores])
        self._seen.add(self._search.programs(self.rows[numbers]))

    def next_numbers(self, count: int) -> I64:
        """Returns the numbers of up to `count` programs that promise most, none if all were measured."""
        if self._posterior is None or self._improved or len(self._order) > self._capacity:
            self._renew()
        chosen = self._most_promising(count)
        if not len(chosen):
            self._renew()
            chosen = self._most_promising(count)
        return chosen

    def _renew(self) -> None:
        """Draws steps anew; numbers begin with what was measured, the fastest of it if that is much."""
        spec = self._search.spec
        fastest = np.argsort(self._scores, kind="stable")
        taken = np.sort(fastest[: max(1, spec.process.modelled - spec.patience)])
        parents = self.rows[self._order[fastest[: spec.parents]]]
        step = self._space.step(parents[np.arange(spec.steps) % len(parents)], self._rng)
        near = np.concatenate([step, self._space.step(step, self._rng)])
        measured = self._order[taken]
        self._costs = np.concatenate([self._costs[measured], self._lasting_costs, self._costs_of(near)])
        self.rows = np.concatenate([self.rows[measured], self._lasting, near])
        self._order, self._scores = np.arange(len(taken)), self._scores[taken]
        self._improved, self._capacity = False, len(taken) + spec.patience
        theta = None if self._posterior is None else self._posterior.theta
        axes = Axes(np.asarray(self._search.columns(self.rows), dtype=np.float64))
        self._posterior = Posterior(axes, self._capacity, spec.process.prior, theta)

    def _most_promising(self, count: int) -> I64:
        process, measured = self._search.spec.process, (self._order, self._scores)
        fit = len(self._order) >= self._next_fit
        if fit:
            self._next_fit = len(self._order) * process.refit
        assert self._posterior is not None
        promise = promise_of(process, measured, self._posterior, self._costs, self._rng, fit=fit)
        by_promise = np.argsort(-promise, kind="stable")
        chosen: list[int] = []
        met = Seen()
        for begin in range(0, len(by_promise), _COMPARED):
            part = by_promise[begin : begin + _COMPARED]
            programs = self._search.programs(self.rows[part])
            new = self._seen.fresh(programs) & met.fresh(programs)
            met.add(programs[new])
            chosen += part[new].tolist()
            if len(chosen) >= count:
                break
        return np.array(chosen[:count], dtype=np.int64)
