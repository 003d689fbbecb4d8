"""Searches for fast decisions: a strategy proposes them, an evaluator scores them until a budget is spent.

`tune` searches with one evaluator; `measure_best` measures the decisions that a search on a model predicts to
be fastest, which is how lpm2021 (section 7) saves hardware time in an autotuner. A search can be watched,
interrupted and resumed: a strategy is a function of its seed and of the scores, so replaying the recorded
scores restores its state, for example that of annealing chains.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np

from costbench.arrays import F64
from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.evaluators import Evaluation, Evaluator
from costbench.autotuning.trace import SearchTrace, Subject
from costbench.compiler.kernel import Kernel
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_space import tile_space
from costbench.errors import DataError, choose
from costbench.rng import stream
from costbench.search.space import NumberedSearchSpace, Proposals, Rows, SearchSpace
from costbench.search.strategies import STRATEGIES
from costbench.target import Target

Decisions = TypeVar("Decisions")
_LISTED_AT_A_TIME = 16


@dataclass(frozen=True, eq=False)
class TuningProblem(Generic[Decisions]):
    """What is searched for, and the decision space."""

    subject: Subject
    space: SearchSpace[Decisions]

    def decode(self, *numbers: int) -> Decisions:
        """Returns the decisions with these numbers."""
        return self.space.decode(self.space.rows(numbers))


@dataclass(frozen=True)
class Progress:
    """Progress of a search.

    Attributes:
        budget: rest of the budget.
        num_decisions: scored so far.
        best_score: lowest so far, infinite if all decisions failed.
    """

    budget: MeasurementBudget
    num_decisions: int
    best_score: float


Watch = Callable[[Progress, Callable[[], SearchTrace]], None]
"""Called after every batch with the progress of the search, and a function that returns its trace so far."""


def unwatched(progress: Progress, trace: Callable[[], SearchTrace]) -> None:
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
        problem: subject and decision space.
        evaluator: scores decisions.
        budget: limits of the search.
        strategy: name of the strategy, for the trace.
        seed: likewise.
        watch: called after every batch.
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
            self.watch(Progress(columns.left, len(columns.decisions), columns.best), columns.trace)
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
        left: rest of the budget.
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
        num_known = min(len(rows), len(recorded) - first)
        numbers = problem.space.numbers(rows[:num_known])
        if tuple(numbers) != recorded.decisions[first : first + num_known]:
            raise self._other_search()
        self.search.evaluator.recall(problem.space.decode(rows[:num_known]))
        scores = np.array(recorded.scores[first : first + num_known])
        seconds = np.array(recorded.seconds[first : first + num_known])
        if num_known < len(rows):
            rest = self.search.evaluator.evaluate(problem.space.decode(rows[num_known:]))
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


_TOLERANCE = 1e-6


def tile_problem(kernel: Kernel, program: str, target: Target) -> TuningProblem[TileSizes]:
    """Returns the search problem over the tile sizes of a kernel of `program` on a chip.

    Raises:
        UnsupportedKernelError: if the kernel cannot be lowered.
    """
    space = tile_space(kernel, target.architecture)
    subject = Subject("tile", target.name, program, kernel.fingerprint, space.size)
    return TuningProblem(subject, NumberedSearchSpace(space, space.radices))


@dataclass(frozen=True)
class Plan:
    """How to search.

    Attributes:
        strategy: a name of `STRATEGIES`.
        budget: limits of the search. Without limits every strategy continues until it finds no new decision.
        seed: seed of the strategy; equal plans give equal traces.
        start: decisions to try first and to start from, such as the compiler's default.
    """

    strategy: str
    budget: MeasurementBudget = field(default_factory=MeasurementBudget)
    seed: int = 0
    start: tuple[int, ...] = ()


def tune(
    problem: TuningProblem[Decisions],
    evaluator: Evaluator[Decisions],
    plan: Plan,
    recorded: SearchTrace | None = None,
    watch: Watch = unwatched,
) -> SearchTrace:
    """Searches until the strategy has nothing new to try or the next evaluation would not fit the budget.

    Args:
        problem: subject and decision space.
        evaluator: scores decisions.
        plan: strategy, budget, seed and start of the search.
        recorded: the first part of the same search, from an interrupted run or one with a smaller budget; it
            is not scored again, and the result is the same as without it.
        watch: called after every batch.

    Raises:
        ChoiceError: for an unknown strategy.
        DataError: if `start` repeats a decision or holds one that is not legal, or `recorded` is of another
            search.
        SearchInterrupted: on Ctrl-C, with what was found.
    """
    propose, subject = choose(STRATEGIES, plan.strategy, "strategy"), problem.subject
    rng = stream(plan.seed, "autotuning", plan.strategy, subject.task, subject.fingerprint)
    proposals = propose(problem.space, rng, _checked_start(problem, plan.start))
    search = Search(problem, evaluator, plan.budget, plan.strategy, plan.seed, watch)
    return search.follow(proposals, recorded)


@dataclass(frozen=True)
class Shortlist:
    """Selects which of the decisions that a model has scored are measured.

    Attributes:
        top_k: number of decisions, those predicted fastest; None for as many as fit the budget.
        distinct: leave out decisions with exactly the same prediction as an earlier one, such as fusion
            configs that make the same kernels.
        budget: budget of the measurements.

    Raises:
        ValueError: for a `top_k` below 1.
    """

    top_k: int | None = 10
    distinct: bool = False
    budget: MeasurementBudget = field(default_factory=MeasurementBudget)

    def __post_init__(self) -> None:
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k is {self.top_k}, expected at least 1")

    def of(self, predicted: SearchTrace) -> tuple[int, ...]:
        """Returns the selected decisions, best first; equal predictions in the order in which they were made.

        Decisions predicted to fail (an infinite score) are left out.
        """
        scores = np.array(predicted.scores)
        order = np.argsort(scores, kind="stable")
        order = order[np.isfinite(scores[order])]
        if self.distinct:
            _, first = np.unique(scores[order], return_index=True)
            order = order[np.sort(first)]
        return tuple(predicted.decisions[index] for index in order[: self.top_k].tolist())


def tune_by_model(
    problem: TuningProblem[Decisions],
    model: Evaluator[Decisions],
    device: Evaluator[Decisions],
    plan: Plan,
    shortlist: Shortlist,
) -> tuple[SearchTrace, SearchTrace]:
    """Searches on the model, then measures its best decisions in the order of their predictions.

    Returns:
        The trace of predictions and that of measurements; the result is the best of the second.

    Raises:
        ChoiceError: for an unknown strategy.
        DataError: for a wrong start.
        SearchInterrupted: on Ctrl-C, with what was found.
    """
    predicted = tune(problem, model, plan)
    return predicted, measure_best(problem, predicted, device, shortlist)


def measure_best(
    problem: TuningProblem[Decisions],
    predicted: SearchTrace,
    device: Evaluator[Decisions],
    shortlist: Shortlist,
    recorded: SearchTrace | None = None,
    watch: Watch = unwatched,
) -> SearchTrace:
    """Measures the best decisions of a search on a model, in the order of their predictions.

    Raises:
        SearchInterrupted: on Ctrl-C, with what was found.
        DataError: if `recorded` is of another search.
    """
    ranked = problem.space.rows(shortlist.of(predicted))
    how = f"{predicted.strategy} on {predicted.evaluator}, then top {len(ranked)}"
    search = Search(problem, device, shortlist.budget, how, predicted.seed, watch)
    return search.follow(listed(ranked), recorded)


def verify_trace(
    trace: SearchTrace, problem: TuningProblem[Decisions], evaluator: Evaluator[Decisions]
) -> None:
    """Scores every decision of a trace again, without its strategy and order.

    Raises:
        DataError: if the trace is of another problem, a decision is not legal, or a score differs by more
            than 1e-6 of itself (a network's costs may depend on the size of the batch in the last digits).
    """
    where = f"trace of {trace.subject.program}"
    if trace.subject != problem.subject:
        raise DataError(f"{trace.subject}", where=where, field="subject", expected=f"{problem.subject}")
    rows = problem.space.rows(trace.decisions)
    illegal = np.flatnonzero(~problem.space.legal(rows))
    if len(illegal):
        raise DataError(f"{trace.decisions[illegal[0]]} is not legal", where=where, field="decisions")
    if not len(rows):
        return
    scores = evaluator.evaluate(problem.space.decode(rows)).scores
    different = np.flatnonzero(~np.isclose(np.array(trace.scores), scores, rtol=_TOLERANCE, atol=0.0))
    if len(different):
        index = int(different[0])
        raise DataError(
            f"{trace.scores[index]}", where=where, field=f"scores[{index}]", expected=f"{scores[index]}"
        )


def _checked_start(problem: TuningProblem[Any], start: Sequence[int]) -> Rows:
    inside = [number for number in start if 0 <= number < problem.space.size]
    rows = problem.space.rows(inside)
    if len(set(inside)) < len(start) or not problem.space.legal(rows).all():
        raise DataError(
            f"{list(start)}",
            where=problem.subject.program,
            field="start",
            expected="distinct legal decisions of the space",
        )
    return rows
