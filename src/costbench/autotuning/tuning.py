"""Autotuning: a strategy proposes, an evaluator scores, a budget ends it, a trace remains.

`tune` searches with one evaluator. `tune_by_model` lets a model search and measures only what it likes best:
that is how lpm2021 (section 7) puts a cost model into an autotuner to save hardware time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.evaluators import Evaluator
from costbench.autotuning.sampling import Proposals
from costbench.autotuning.strategies import STRATEGIES
from costbench.autotuning.trace import SearchTrace, Subject
from costbench.compiler.kernel import Kernel
from costbench.compiler.spaces import DecisionSpace
from costbench.compiler.tile_sizes import TileSizes
from costbench.compiler.tiling import tile_space
from costbench.errors import DataError, choose
from costbench.rng import stream
from costbench.target import Target

IntArray = npt.NDArray[np.int64]
Decisions = TypeVar("Decisions")
_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class TuningProblem(Generic[Decisions]):
    """What decisions are looked for, and the space they lie in."""

    subject: Subject
    space: DecisionSpace[Decisions]


def tile_problem(kernel: Kernel, program: str, target: Target) -> TuningProblem[TileSizes]:
    """The tile sizes of a kernel of `program` on a chip.

    Raises:
        UnsupportedKernelError: if the kernel cannot be lowered.
    """
    space = tile_space(kernel, target.architecture)
    return TuningProblem(Subject("tile", target.name, program, kernel.fingerprint, space.size), space)


def tune(
    problem: TuningProblem[Decisions],
    strategy: str,
    evaluator: Evaluator[Decisions],
    budget: MeasurementBudget,
    seed: int,
    start: Sequence[int] = (),
) -> SearchTrace:
    """Searches until the strategy has nothing new to try or the next evaluation would not fit the budget.

    Without limits every strategy goes on until the space gives nothing new: give large spaces a budget.

    Args:
        problem: what to decide.
        strategy: a name of `STRATEGIES`.
        evaluator: scores decisions.
        budget: what may be spent.
        seed: of the strategy; equal arguments give equal traces.
        start: decisions to try first and to set out from, such as the compiler's default.

    Raises:
        ChoiceError: for an unknown strategy.
        DataError: if `start` repeats a decision or holds one that is not legal.
    """
    propose = choose(STRATEGIES, strategy, "strategy")
    rng = stream(seed, "autotuning", strategy, problem.subject.task, problem.subject.fingerprint)
    proposals = propose(problem.space, rng, _checked_start(problem, start))
    return _follow(problem, proposals, evaluator, budget, (strategy, seed))


@dataclass(frozen=True)
class ModelThenDevice:
    """How a model and a device share the work.

    Attributes:
        strategy: name of the strategy that searches on the model.
        top_k: how many decisions, those predicted fastest, are measured; None for as many as fit the budget.
        model_budget: for predictions.
        device_budget: for measurements.

    Raises:
        ValueError: for a `top_k` below 1.
    """

    strategy: str = "exhaustive"
    top_k: int | None = 10
    model_budget: MeasurementBudget = field(default_factory=MeasurementBudget)
    device_budget: MeasurementBudget = field(default_factory=MeasurementBudget)

    def __post_init__(self) -> None:
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k is {self.top_k}, expected at least 1")


def tune_by_model(
    problem: TuningProblem[Decisions],
    model: Evaluator[Decisions],
    device: Evaluator[Decisions],
    plan: ModelThenDevice,
    seed: int,
) -> tuple[SearchTrace, SearchTrace]:
    """Searches on the model, then measures its best decisions, the one predicted fastest first.

    Equal predictions keep the order in which they were made.

    Returns:
        The trace of predictions and that of measurements; the result is the best of the second.

    Raises:
        ChoiceError: for an unknown strategy.
    """
    predicted = tune(problem, plan.strategy, model, plan.model_budget, seed)
    order = np.argsort(np.array(predicted.scores), kind="stable")[: plan.top_k]
    ranked = np.array(predicted.decisions, dtype=np.int64)[order]
    how = f"{plan.strategy} on {model.name}, then top {len(ranked)}"
    measured = _follow(problem, _listed(ranked), device, plan.device_budget, (how, seed))
    return predicted, measured


def verify_trace(
    trace: SearchTrace, problem: TuningProblem[Decisions], evaluator: Evaluator[Decisions]
) -> None:
    """Scores every decision of a trace again, without its strategy and order.

    Raises:
        DataError: if the trace is of something else, a decision is not legal, or a score differs by more
            than 1e-6 of itself (a network's costs may depend on the size of the batch in the last digits).
    """
    where = f"trace of {trace.subject.program}"
    if trace.subject != problem.subject:
        raise DataError(f"{trace.subject}", where=where, field="subject", expected=f"{problem.subject}")
    ids = np.array(trace.decisions, dtype=np.int64)
    illegal = ids[~problem.space.legal(ids)]
    if len(illegal):
        raise DataError(f"{illegal[0]} is not legal", where=where, field="decisions")
    if not len(ids):
        return
    scores = evaluator.evaluate(problem.space.decode(ids)).scores
    different = np.flatnonzero(~np.isclose(np.array(trace.scores), scores, rtol=_TOLERANCE, atol=0.0))
    if len(different):
        place = int(different[0])
        raise DataError(
            f"{trace.scores[place]}", where=where, field=f"scores[{place}]", expected=f"{scores[place]}"
        )


def _checked_start(problem: TuningProblem[Decisions], start: Sequence[int]) -> IntArray:
    ids = np.array(start, dtype=np.int64)
    inside = ids[(ids >= 0) & (ids < problem.space.size)]
    if len(np.unique(inside)) < len(ids) or not problem.space.legal(ids).all():
        raise DataError(
            f"{list(start)}",
            where=problem.subject.program,
            field="start",
            expected="distinct legal decisions of the space",
        )
    return ids


def _listed(ids: IntArray) -> Proposals:
    if len(ids):
        yield ids


def _follow(
    problem: TuningProblem[Decisions],
    proposals: Proposals,
    evaluator: Evaluator[Decisions],
    budget: MeasurementBudget,
    identity: tuple[str, int],
) -> SearchTrace:
    """Scores what is proposed, and answers it, as long as the budget lasts."""
    decisions: list[int] = []
    scores: list[float] = []
    seconds: list[float] = []
    left = budget
    ids = next(proposals, None)
    while ids is not None and (begun := left.evaluations_left(len(ids))):
        evaluation = evaluator.evaluate(problem.space.decode(ids[:begun]))
        finished = left.affordable(evaluation.seconds)
        left = left.charge(evaluation.seconds[:finished])
        decisions += ids[:finished].tolist()
        scores += evaluation.scores[:finished].tolist()
        seconds += evaluation.seconds[:finished].tolist()
        if finished < len(ids):
            break
        ids = _answered(proposals, evaluation.scores)
    proposals.close()
    strategy, seed = identity
    return SearchTrace(
        subject=problem.subject,
        strategy=strategy,
        source=evaluator.source,
        evaluator=evaluator.name,
        seed=seed,
        budget=budget,
        decisions=tuple(decisions),
        scores=tuple(scores),
        seconds=tuple(seconds),
    )


def _answered(proposals: Proposals, scores: npt.NDArray[np.float64]) -> IntArray | None:
    try:
        return proposals.send(scores)
    except StopIteration:
        return None
