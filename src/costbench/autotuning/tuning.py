"""Autotuning: a strategy proposes decisions and an evaluator scores them until a budget is spent.

`tune` searches with one evaluator. `tune_by_model` searches on a model and measures only the decisions that
it predicts to be fastest, which is how lpm2021 (section 7) saves hardware time in an autotuner.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.evaluators import Evaluator
from costbench.autotuning.search import Search, TuningProblem, Watch, listed, unwatched
from costbench.autotuning.trace import SearchTrace, Subject
from costbench.compiler.kernel import Kernel
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_space import tile_space
from costbench.errors import DataError, choose
from costbench.rng import stream
from costbench.search.space import NumberedSearchSpace, Proposals, Rows
from costbench.search.strategies import STRATEGIES
from costbench.target import Target

Decisions = TypeVar("Decisions")
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
        budget: what may be spent. Without limits every strategy continues until it finds no new decision.
        seed: of the strategy; equal plans give equal traces.
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
        problem: what to decide.
        evaluator: scores decisions.
        plan: how to search.
        recorded: the first part of the same search, from an interrupted run or one with a smaller budget; it
            is not scored again, and the result is the same as without it.
        watch: called after every batch with the progress of the search.

    Raises:
        ChoiceError: for an unknown strategy.
        DataError: if `start` repeats a decision or holds one that is not legal, or `recorded` is of another
            search.
        SearchInterrupted: on Ctrl-C, with what was found.
    """
    search = Search(problem, evaluator, plan.budget, plan.strategy, plan.seed, watch)
    return search.follow(_proposals(problem, plan), recorded)


def _proposals(problem: TuningProblem[Any], plan: Plan) -> Proposals:
    propose = choose(STRATEGIES, plan.strategy, "strategy")
    subject = problem.subject
    rng = stream(plan.seed, "autotuning", plan.strategy, subject.task, subject.fingerprint)
    return propose(problem.space, rng, _checked_start(problem, plan.start))


@dataclass(frozen=True)
class Shortlist:
    """Selects which of the decisions that a model has scored are measured.

    Attributes:
        top_k: number of decisions, those predicted fastest; None for as many as fit the budget.
        distinct: leave out decisions with exactly the same prediction as an earlier one, such as fusion
            configs that make the same kernels.
        budget: for measurements.

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
        return tuple(predicted.decisions[place] for place in order[: self.top_k].tolist())


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
        place = int(different[0])
        raise DataError(
            f"{trace.scores[place]}", where=where, field=f"scores[{place}]", expected=f"{scores[place]}"
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
