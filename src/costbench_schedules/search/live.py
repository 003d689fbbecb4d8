"""A search on the machine at hand: every measurement is in a log before the next one begins.

The log is the result. It is also what an interrupted search is continued from: the strategy is sent the
recorded runtimes again, see `costbench.autotuning.search`.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from statistics import median
from typing import Any, ClassVar

import numpy as np

from costbench.arrays import I64
from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.evaluators import Evaluation, Source
from costbench.autotuning.search import Search
from costbench.autotuning.trace import SearchTrace
from costbench.errors import DataError
from costbench.search.space import Rows
from costbench.search.strategies import Strategy
from costbench_schedules.devices.device import ScheduleDevice
from costbench_schedules.records.tune_log import LogEntry, LogWriter
from costbench_schedules.search.problems import schedule_problem
from costbench_schedules.spaces.space import ScheduleSpace

STRATEGY = "guided"
HOPELESS = 64
"""Failures, with nothing that ran before them, after which a search ends: a whole first batch."""
_RECENT = 64


@dataclass(frozen=True)
class LiveProgress:
    """What a search has found so far.

    Attributes:
        trials: number of measurements so far.
        failed: number of failed measurements.
        best_ns: lowest runtime; infinite without one.
        noise: median spread of the last measurements: median over minimum of the blocks of each, minus 1.
        interrupted: share of the last measurements that other processes interrupted in every block.
    """

    trials: int
    failed: int
    best_ns: float
    noise: float
    interrupted: float


@dataclass
class Tally:
    """Counts measurements.

    Attributes:
        entries: measurements in order.
    """

    entries: list[LogEntry] = field(default_factory=list)
    _recent: deque[LogEntry] = field(default_factory=lambda: deque(maxlen=_RECENT))
    _failed: int = 0
    _best_ns: float = math.inf

    def add(self, entry: LogEntry) -> LiveProgress:
        """Counts one more, and returns what there is then."""
        self.entries.append(entry)
        if entry.runtime_ns is None:
            self._failed += 1
        else:
            self._best_ns = min(self._best_ns, entry.runtime_ns)
            self._recent.append(entry)
        return self.progress

    @property
    def progress(self) -> LiveProgress:
        """Returns what has been found."""
        recent = self._recent
        return LiveProgress(
            len(self.entries),
            self._failed,
            self._best_ns,
            median(entry.spread for entry in recent) if recent else 0.0,
            sum(entry.clean == 0 for entry in recent) / len(recent) if recent else 0.0,
        )

    @property
    def hopeless(self) -> bool:
        """Returns whether a whole first batch failed."""
        return len(self.entries) >= HOPELESS and self._failed == len(self.entries)

    def why(self) -> str:
        """Returns the most frequent reason for failures."""
        reasons = Counter(entry.reason for entry in self.entries if entry.reason)
        [(reason, count)] = reasons.most_common(1) or [("nothing was measured", 0)]
        return f"{reason} ({count} times)" if count > 1 else reason


@dataclass(frozen=True, eq=False)
class LiveEvaluator:
    """An `Evaluator` that measures one configuration after another and logs each.

    Attributes:
        space: space that the configurations are of.
        device: device that measures them.
        name: name of the device.
        log: log that takes each measurement.
        tally: counter of the measurements.
        report: function that is called after each measurement.
        guard: context manager that holds Ctrl-C back while a measurement is made and logged.
    """

    space: ScheduleSpace
    device: ScheduleDevice
    name: str
    log: LogWriter
    tally: Tally
    report: Callable[[LiveProgress], None]
    guard: Callable[[], AbstractContextManager[Any]] = nullcontext

    source: ClassVar[Source] = "device"

    def evaluate(self, decisions: I64) -> Evaluation:
        """Returns runtimes in ns, infinite for failures, and the seconds charged.

        Raises:
            DataError: if the device or the log fails, or a whole first batch did.
        """
        entries = [self._measured(row) for row in decisions]
        return Evaluation(
            np.array([math.inf if entry.runtime_ns is None else entry.runtime_ns for entry in entries]),
            np.array([entry.seconds for entry in entries]),
        )

    def recall(self, decisions: I64) -> None:
        """Does nothing: every measurement is charged what it took."""

    def _measured(self, row: I64) -> LogEntry:
        with self.guard():
            entry = measure_entry(self.space, row, self.device)
            self.log.append(entry)
            progress = self.tally.add(entry)
        self.report(progress)
        if self.tally.hopeless:
            problem = f"all of the first {len(self.tally.entries)} schedules failed: {self.tally.why()}"
            raise DataError(problem, where=self.space.operator.text)
        return entry


def measure_entry(space: ScheduleSpace, row: Rows, device: ScheduleDevice) -> LogEntry:
    """Measures a configuration [m] and returns it as a log has it."""
    measurement = device.measure(space, row[None])
    [number] = space.numbers(row[None])
    return LogEntry(
        number,
        None if measurement.failed[0] else int(measurement.runtime_ns[0]),
        float(measurement.run_seconds[0]),
        float(measurement.spread[0]),
        int(measurement.clean[0]),
        measurement.reasons[0],
    )


def search_live(
    strategy: Strategy,
    evaluator: LiveEvaluator,
    rng: np.random.Generator,
    starts: Rows,
    recorded: Sequence[LogEntry] = (),
    *,
    trials: int,
    seed: int,
) -> SearchTrace:
    """Searches until the trials are used up, and returns the trace.

    Args:
        strategy: strategy that proposes configurations; it is sent runtimes in ns.
        evaluator: evaluator that measures.
        rng: random numbers of the strategy.
        starts: configurations [n, m] that are measured first.
        recorded: measurements before an interruption, which are not made again; fewer than `trials`.
        trials: number of measurements in all, recorded ones included.
        seed: seed of the strategy, for the trace.

    Raises:
        SearchInterrupted: on Ctrl-C; what was measured is in the log.
        DataError: if the recorded measurements are of another search, or see `LiveEvaluator.evaluate`.
    """
    problem = schedule_problem(evaluator.space, evaluator.name)
    budget = MeasurementBudget(evaluations=trials)
    search = Search(problem, evaluator, budget, STRATEGY, seed)
    trace = None
    if recorded:
        trace = SearchTrace(
            problem.subject,
            STRATEGY,
            evaluator.source,
            evaluator.name,
            seed,
            budget,
            tuple(entry.number for entry in recorded),
            tuple(math.inf if entry.runtime_ns is None else float(entry.runtime_ns) for entry in recorded),
            tuple(entry.seconds for entry in recorded),
        )
    return search.follow(strategy(problem.space, rng, starts), trace)
