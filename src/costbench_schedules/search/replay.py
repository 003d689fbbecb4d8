"""Searches of tuning tables: a budget of trials, answered from the table as the device had answered.

A strategy is a function that measures through a `Replay` until its trials are spent. It sees the space and
first measurements, never second ones. Generators of `costbench.search.strategies` become such functions by
`replay_proposals`; so can any other library that asks and is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

import numpy as np

from costbench.arrays import F64, I64, AnyInt
from costbench.search.strategies import Strategy
from costbench_schedules.records.tuning_table import TuningTable
from costbench_schedules.spaces.parameter_space import ParameterSpace


class TrialsSpentError(Exception):
    """Raised when a strategy wants to measure something new and has no trials left."""


class Replay:
    """One search of a table.

    Args:
        table: table that answers.
        trials: number of distinct configurations that may be measured; at most all of them.
        sources: tables of the same kernel on other devices that the strategy may learn from.
        until_best: whether the search also ends when the fastest by first measurements was measured: no later
            trial can change its choice.

    Attributes:
        space: space of the configurations.
        trials: number of distinct configurations that may be measured.
        sources: tables of other devices.
    """

    def __init__(
        self,
        table: TuningTable,
        trials: int,
        sources: Sequence[TuningTable] = (),
        *,
        until_best: bool = False,
    ) -> None:
        self.space: ParameterSpace = table.space
        self.trials = min(trials, len(table))
        self.sources = tuple(sources)
        self._first_ns = table.first_ns
        self._measured = np.zeros(len(table), dtype=bool)
        self._order: list[int] = []
        self._last = int(np.argmin(table.first_ns)) if until_best else None

    @property
    def left(self) -> int:
        """Returns the number of trials left."""
        if self._last is not None and self._measured[self._last]:
            return 0
        return self.trials - len(self._order)

    @property
    def order(self) -> I64:
        """Returns the numbers of the measured configurations in order, int64 [trials so far]."""
        return np.array(self._order, dtype=np.int64)

    @property
    def observed(self) -> F64:
        """Returns their first measurements in ns, in the same order; infinite for failures."""
        return self._first_ns[self.order]

    def measure(self, numbers: Sequence[int] | I64) -> F64:
        """Returns the first measurements of configurations in ns, infinite for failures, float64 [n].

        A configuration costs a trial when it is measured first, also if it fails; again it is free.

        Raises:
            TrialsSpentError: after the last trial, if a configuration is left that was not measured. Those
                before it are.
            IndexError: for a number of no configuration.
        """
        for number in np.asarray(numbers, dtype=np.int64).tolist():
            if number < 0:
                raise IndexError(f"{number} is no configuration")
            if self._measured[number]:
                continue
            if not self.left:
                raise TrialsSpentError
            self._measured[number] = True
            self._order.append(number)
        return self._first_ns[np.asarray(numbers, dtype=np.int64)]

    def measure_rows(self, rows: AnyInt) -> F64:
        """Returns `measure` of configurations as rows of indices of values [n, m].

        Raises:
            TrialsSpentError: as `measure`.
            IndexError: for one that is not legal.
        """
        return self.measure(self.space.indices(rows))


class TableStrategy(Protocol):
    """A way of searching tables."""

    def __call__(self, replay: Replay, rng: np.random.Generator, /) -> None:
        """Measures configurations through `replay`, at best until no trial is left.

        `TrialsSpentError` may be passed on.

        Args:
            replay: search that counts and answers.
            rng: only source of randomness.
        """
        ...


def replay_proposals(strategy: Strategy) -> TableStrategy:
    """Returns a generator strategy as a strategy of tables."""

    def search(replay: Replay, rng: np.random.Generator) -> None:
        proposals = strategy(replay.space, rng, replay.space.rows([]))
        rows = next(proposals, None)
        while rows is not None and replay.left:
            scores = replay.measure_rows(rows)
            try:
                rows = proposals.send(scores)
            except StopIteration:
                return

    return search


def run_search(
    strategy: TableStrategy,
    table: TuningTable,
    trials: int,
    rng: np.random.Generator,
    sources: Sequence[TuningTable] = (),
    *,
    until_best: bool = False,
) -> I64:
    """Returns the numbers of the configurations that a strategy measured, in order, int64 [<= trials]."""
    replay = Replay(table, trials, sources, until_best=until_best)
    with suppress(TrialsSpentError):
        strategy(replay, rng)
    return replay.order
