"""Runs one search: scores what a strategy proposes as long as the budget lasts.

A search can be watched, interrupted and resumed: a strategy is a function of its seed and of the scores, so
replaying the recorded scores restores its state, for example that of annealing chains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from costbench.arrays import F64
from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.evaluators import Evaluation, Evaluator
from costbench.autotuning.trace import SearchTrace, Subject
from costbench.errors import DataError
from costbench.search.space import Proposals, Rows, SearchSpace

Decisions = TypeVar("Decisions")
_LISTED_AT_A_TIME = 16


@dataclass(frozen=True, eq=False)
class TuningProblem(Generic[Decisions]):
    """What is searched for, and the decision space."""

    subject: Subject
    space: SearchSpace[Decisions]

    def decode(self, *numbers: int) -> Decisions:
        """Return the decisions with these numbers."""
        return self.space.decode(self.space.rows(numbers))


@dataclass(frozen=True)
class Progress:
    """Progress of a search.

    Attributes:
        budget: what is left of it.
        num_decisions: scored so far.
        best_score: lowest so far, infinite if all decisions failed.
    """

    budget: MeasurementBudget
    num_decisions: int
    best_score: float


Watch = Callable[[Progress], None]
"""Called after every batch with the progress of the search."""


def unwatched(progress: Progress) -> None:
    """Does nothing."""


class SearchInterrupted(KeyboardInterrupt):
    """Raised when a search is stopped by Ctrl-C.

    Attributes:
        trace: what it found until then, complete batches only.
    """

    def __init__(self, trace: SearchTrace) -> None:
        super().__init__(f"stopped after {len(trace)} decisions")
        self.trace = trace


@dataclass(frozen=True, eq=False)
class Search(Generic[Decisions]):
    """Everything that a search needs except its strategy.

    Attributes:
        problem: what to decide.
        evaluator: scores decisions.
        budget: what may be spent.
        strategy: name of the strategy, for the trace.
        seed: likewise.
        watch: called with the progress of the search.
    """

    problem: TuningProblem[Decisions]
    evaluator: Evaluator[Decisions]
    budget: MeasurementBudget
    strategy: str
    seed: int
    watch: Watch = unwatched

    def follow(self, proposals: Proposals, recorded: SearchTrace | None = None) -> SearchTrace:
        """Scores proposals and sends the scores back to the strategy as long as the budget lasts.

        Args:
            proposals: the strategy's generator.
            recorded: the first part of the same search, which is not scored again.

        Raises:
            SearchInterrupted: on Ctrl-C, with what was found.
            DataError: if the search does not begin like the recorded one.
        """
        columns = _Columns(self, recorded)
        try:
            self._follow(proposals, columns)
        except KeyboardInterrupt:
            raise SearchInterrupted(columns.trace()) from None
        finally:
            proposals.close()
        columns.verify_recorded()
        return columns.trace()

    def _follow(self, proposals: Proposals, columns: _Columns) -> None:
        rows = next(proposals, None)
        while rows is not None and (begun := columns.left.evaluations_left(len(rows))):
            evaluation = columns.recalled(rows[:begun])
            if evaluation is None:
                evaluation = self.evaluator.evaluate(self.problem.space.decode(rows[:begun]))
            finished = columns.add(rows[:begun], evaluation)
            self.watch(Progress(columns.left, len(columns.decisions), columns.best))
            if finished < len(rows):
                return
            rows = _answered(proposals, evaluation.scores)


def listed(rows: Rows) -> Proposals:
    """Yields a fixed list in small batches in place of a strategy; what exceeds the budget is not scored."""
    for first in range(0, len(rows), _LISTED_AT_A_TIME):
        yield rows[first : first + _LISTED_AT_A_TIME]


def _answered(proposals: Proposals, scores: F64) -> Rows | None:
    try:
        return proposals.send(scores)
    except StopIteration:
        return None


@dataclass(eq=False)
class _Columns:
    """Columns of a growing trace.

    Attributes:
        search: the search.
        recorded: the recorded first part, if there is one.
        left: of the budget.
        best: lowest score so far.
    """

    search: Search[Any]
    recorded: SearchTrace | None
    left: MeasurementBudget = field(init=False)
    best: float = np.inf
    decisions: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.left = self.search.budget

    def recalled(self, rows: Rows) -> Evaluation | None:
        """Returns the recorded scores of a batch, scoring any missing part; None if nothing is recorded."""
        recorded, first = self.recorded, len(self.decisions)
        if recorded is None or first >= len(recorded):
            return None
        problem = self.search.problem
        known = min(len(rows), len(recorded) - first)
        numbers = problem.space.numbers(rows[:known])
        if tuple(numbers) != recorded.decisions[first : first + known]:
            raise self._other_search()
        self.search.evaluator.recall(problem.space.decode(rows[:known]))
        scores = np.array(recorded.scores[first : first + known])
        seconds = np.array(recorded.seconds[first : first + known])
        if known < len(rows):
            rest = self.search.evaluator.evaluate(problem.space.decode(rows[known:]))
            scores = np.concatenate([scores, rest.scores])
            seconds = np.concatenate([seconds, rest.seconds])
        return Evaluation(scores, seconds)

    def add(self, rows: Rows, evaluation: Evaluation) -> int:
        """Adds as many decisions as the budget allows; returns how many."""
        finished = self.left.affordable(evaluation.seconds)
        self.left = self.left.charge(evaluation.seconds[:finished])
        self.decisions += self.search.problem.space.numbers(rows[:finished])
        self.scores += evaluation.scores[:finished].tolist()
        self.seconds += evaluation.seconds[:finished].tolist()
        self.best = min([self.best, *evaluation.scores[:finished].tolist()])
        return finished

    def verify_recorded(self) -> None:
        """Raises DataError if more is recorded than the search found."""
        if self.recorded is not None and len(self.decisions) < len(self.recorded):
            raise self._other_search()

    def trace(self) -> SearchTrace:
        """Returns the trace of what was found so far."""
        search = self.search
        return SearchTrace(
            subject=search.problem.subject,
            strategy=search.strategy,
            source=search.evaluator.source,
            evaluator=search.evaluator.name,
            seed=search.seed,
            budget=search.budget,
            decisions=tuple(self.decisions),
            scores=tuple(self.scores),
            seconds=tuple(self.seconds),
        )

    def _other_search(self) -> DataError:
        return DataError(
            "not the beginning of this search",
            where=f"trace of {self.search.problem.subject.program}",
            field="decisions",
            expected="the same strategy, seed, start, model and at least the same budget",
        )
