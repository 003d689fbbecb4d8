"""The trace of a search: every decision tried, in order, with what is needed to verify the result.

A trace is immutable and checked on construction, also when it is read from a file: decisions are distinct
numbers of the space, and their seconds fit the budget. Best so far and budget used are computed from the
columns, so they cannot disagree with them.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from os import PathLike

import numpy as np

from costbench.arrays import F64
from costbench.artifacts import read_json, write_json
from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.evaluators import Source
from costbench.errors import DataError
from costbench.params import parse

FORMAT = 2


@dataclass(frozen=True)
class Subject:
    """What a search decides about.

    Attributes:
        task: kind of decision, such as `tile`.
        chip: name of the chip, whose limits decide which decisions are legal.
        program: the program.
        fingerprint: fingerprint of the kernel, or of the program for decisions about a whole program.
        space_size: size of the decision space.
    """

    task: str
    chip: str
    program: str
    fingerprint: str
    space_size: int


@dataclass(frozen=True)
class SearchTrace:
    """One search with one evaluator: `n` decisions in the order in which they were tried.

    Attributes:
        subject: subject of the decisions.
        strategy: name of the strategy.
        source: whether scores are predicted or measured.
        evaluator: name of the model or device that scored them.
        seed: seed of the strategy.
        budget: budget before the search.
        decisions: [n] numbers in the decision space, distinct.
        scores: [n], lower is faster; infinite where a decision failed.
        seconds: [n], charged for each evaluation.

    Raises:
        ValueError: if the columns contradict each other, the space or the budget.
    """

    subject: Subject
    strategy: str
    source: Source
    evaluator: str
    seed: int
    budget: MeasurementBudget
    decisions: tuple[int, ...]
    scores: tuple[float, ...]
    seconds: tuple[float, ...]

    def __post_init__(self) -> None:
        if not len(self.decisions) == len(self.scores) == len(self.seconds):
            raise ValueError("decisions, scores and seconds differ in length")
        if len(set(self.decisions)) < len(self.decisions):
            raise ValueError("a decision was tried twice")
        if self.decisions and not 0 <= min(self.decisions) <= max(self.decisions) < self.subject.space_size:
            raise ValueError(f"a decision is not in a space of {self.subject.space_size}")
        if any(math.isnan(score) or score == -math.inf for score in self.scores):
            raise ValueError("a score is no number")
        if any(not 0 <= second < math.inf for second in self.seconds):
            raise ValueError("an evaluation took a negative or endless time")
        self.budget.charge(np.array(self.seconds))

    def __len__(self) -> int:
        return len(self.decisions)

    @property
    def budget_left(self) -> MeasurementBudget:
        """Returns the budget after the search."""
        return self.budget.charge(np.array(self.seconds))

    @property
    def best_so_far(self) -> F64:
        """Returns the lowest score among the first i + 1 decisions, float64 [n]."""
        result: F64 = np.minimum.accumulate(np.array(self.scores))
        return result

    @property
    def spent_seconds(self) -> F64:
        """Returns the seconds charged up to and including each decision, float64 [n]."""
        return np.cumsum(np.array(self.seconds))

    def affordable(self, seconds: float) -> int:
        """Returns how many of the first decisions were charged at most `seconds` together."""
        return int(np.searchsorted(self.spent_seconds, seconds, side="right"))

    @property
    def best(self) -> int:
        """Returns the index of the first decision with the lowest score.

        Raises:
            DataError: if all decisions failed.
        """
        if not self.scores or min(self.scores) == math.inf:
            raise DataError(
                f"none of {len(self)} decisions worked",
                where=f"{self.subject.program}, kernel {self.subject.fingerprint}",
                expected="a larger budget",
            )
        return int(np.argmin(self.scores))

    @property
    def best_decision(self) -> int:
        """Returns the first decision with the lowest score. Raises: DataError if all failed."""
        return self.decisions[self.best]

    @property
    def best_score(self) -> float:
        """Returns the lowest score. Raises: DataError if all decisions failed."""
        return self.scores[self.best]


@dataclass(frozen=True)
class _SubjectEntry:
    """The JSON form of a subject."""

    task: str
    chip: str
    program: str
    fingerprint: str
    space_size: str


@dataclass(frozen=True)
class _TraceFile:
    """The JSON form of a trace, where the score of a failed decision is null.

    Decisions about whole programs have thousands of binary digits, so numbers of decisions are hexadecimal.
    """

    format: int
    subject: _SubjectEntry
    strategy: str
    source: Source
    evaluator: str
    seed: int
    budget: MeasurementBudget
    decisions: tuple[str, ...]
    scores: tuple[float | None, ...]
    seconds: tuple[float, ...]


def write_trace(path: str | PathLike[str], trace: SearchTrace) -> None:
    """Writes a trace as JSON, whole or not at all; equal traces give equal bytes."""
    scores = [None if math.isinf(score) else score for score in trace.scores]
    subject = {**asdict(trace.subject), "space_size": f"{trace.subject.space_size:x}"}
    decisions = [f"{decision:x}" for decision in trace.decisions]
    content = {**asdict(replace(trace, decisions=(), scores=(), seconds=())), "format": FORMAT}
    content |= {"subject": subject, "decisions": decisions, "scores": scores, "seconds": trace.seconds}
    write_json(path, content)


def read_trace(path: str | PathLike[str]) -> SearchTrace:
    """Reads the trace in a JSON file.

    Raises:
        DataError: naming file and field, if the file is missing, not a trace, or inconsistent.
    """
    stored = parse(_TraceFile, read_json(path), where=path, error=DataError)
    if stored.format != FORMAT:
        raise DataError(f"{stored.format}", where=path, field="format", expected=str(FORMAT))
    try:
        return SearchTrace(
            subject=Subject(**{**asdict(stored.subject), "space_size": int(stored.subject.space_size, 16)}),
            strategy=stored.strategy,
            source=stored.source,
            evaluator=stored.evaluator,
            seed=stored.seed,
            budget=stored.budget,
            decisions=tuple(int(digits, 16) for digits in stored.decisions),
            scores=tuple(math.inf if score is None else score for score in stored.scores),
            seconds=stored.seconds,
        )
    except ValueError as error:
        raise DataError(str(error), where=path) from error
