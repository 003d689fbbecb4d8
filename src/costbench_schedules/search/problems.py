"""Schedules as a search problem: spaces that strategies can search, and the evaluator that measures.

All strategies run on both, on this machine and on recorded tables alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from costbench.arrays import I64, Bool
from costbench.artifacts import digest_bytes
from costbench.autotuning.evaluators import Evaluation, Measured, Source
from costbench.autotuning.search import TuningProblem
from costbench.autotuning.trace import Subject
from costbench.search.space import Rows, Seen, keys
from costbench_schedules.spaces.space import ScheduleSpace

_ENUMERATED = 1 << 13
"""Spaces up to this size are drawn from a list of what is left; larger ones by rejection."""
_IDLE_ROUNDS = 8
"""Draws in a row without anything new after which a large space is taken to be used up."""


@dataclass(frozen=True, eq=False)
class Schedules:
    """A `SearchSpace` of the configurations of a schedule space, int64 [n, m], numbered as there.

    A neighbour has another choice for one knob, as in AutoTVM's own tuner.

    Attributes:
        space: space that the configurations are of.
    """

    space: ScheduleSpace

    @property
    def size(self) -> int:
        """Returns the number of configurations."""
        return self.space.size

    @cached_property
    def _free(self) -> I64:
        """Returns the knobs with a choice."""
        return np.flatnonzero(self.space.sizes > 1)

    def legal(self, rows: Rows) -> Bool:
        """Returns whether every index is one of its knob's, bool [n]."""
        return self.space.legal(rows)

    def decode(self, rows: Rows) -> I64:
        """Returns the configurations themselves."""
        return rows.astype(np.int64)

    def rows(self, numbers: Sequence[int]) -> I64:
        """Returns the configurations with these numbers."""
        return self.space.rows(numbers)

    def numbers(self, rows: Rows) -> list[int]:
        """Inverse of `rows`."""
        return self.space.numbers(rows)

    def draw(self, rng: np.random.Generator, count: int, seen: Seen) -> I64:
        """Returns up to `count` distinct configurations not in `seen`, in random order.

        A space of more than 8,192 counts as exhausted after several draws without new ones.
        """
        if self.size <= _ENUMERATED:
            rows = self.rows(range(self.size))
            return rng.permutation(rows[seen.fresh(rows)])[:count]
        unique, parts, idle_rounds = Seen(), [self.rows([])], 0
        while len(unique) < count and idle_rounds < _IDLE_ROUNDS:
            samples = self.space.sample(rng, count - len(unique)).astype(np.int64)
            new = samples[seen.fresh(samples) & unique.fresh(samples)]
            idle_rounds = 0 if len(new) else idle_rounds + 1
            unique.add(new)
            parts.append(new)
        return np.concatenate(parts)

    def step(self, rows: Rows, rng: np.random.Generator) -> I64:
        """Returns each configuration with another choice for one random knob; itself if there is none."""
        moves = rows.astype(np.int64)
        if not len(self._free):
            return moves
        knobs = rng.choice(self._free, size=len(rows))
        sizes = self.space.sizes[knobs]
        indices = np.arange(len(rows))
        moves[indices, knobs] = (moves[indices, knobs] + rng.integers(1, sizes)) % sizes
        return moves

    def cross(self, first: Rows, second: Rows, rng: np.random.Generator) -> I64:
        """Returns children with the choice of each knob from one of the parents."""
        return np.where(rng.random(first.shape) < 0.5, first, second).astype(np.int64)


def schedule_problem(space: ScheduleSpace, machine: str) -> TuningProblem[I64]:
    """Returns the search for the fastest schedule of a space.

    Args:
        space: space that the configurations are of.
        machine: name of what they are measured on, for the trace.
    """
    chosen = ";".join(",".join(map(str, ids.tolist())) for ids in space.chosen)
    fingerprint = digest_bytes(f"{space.operator.text};{chosen}".encode())[:32]
    subject = Subject("schedule", machine, space.operator.text, fingerprint, space.size)
    return TuningProblem(subject, Schedules(space))


class MeasuringSchedules(Protocol):
    """A processor, or a table of what was measured on one."""

    def measure(self, space: ScheduleSpace, rows: Rows, /) -> Measured:
        """Builds and runs configurations [n, m] of a space."""
        ...


@dataclass(frozen=True)
class ScheduleEvaluator:
    """An `Evaluator` of configurations, int64 [n, m]; scores are runtimes in ns.

    Attributes:
        space: space that the configurations are of.
        device: device that measures them.
        name: name of the device.
    """

    space: ScheduleSpace
    device: MeasuringSchedules
    name: str

    @property
    def source(self) -> Source:
        """Measured."""
        return "device"

    def evaluate(self, decisions: I64) -> Evaluation:
        """Returns runtimes, infinite for failures, and the processor time of builds and runs."""
        measured = self.device.measure(self.space, decisions)
        scores = np.where(measured.failed, np.inf, measured.runtime_ns.astype(np.float64))
        return Evaluation(scores, measured.run_seconds)

    def recall(self, decisions: I64) -> None:
        """Does nothing: every measurement is charged what it took."""


@dataclass(frozen=True, eq=False)
class EnumeratedSpace(Schedules):
    """A `SearchSpace` of some configurations of a schedule space, int64 [n, m], numbered as there.

    Attributes:
        listed: configurations that are legal, [k, m], distinct.
    """

    listed: I64

    @cached_property
    def _keys(self) -> frozenset[bytes]:
        return frozenset(keys(self.listed))

    def legal(self, rows: Rows) -> Bool:
        """Returns which configurations are on the list, bool [n]."""
        return np.array([key in self._keys for key in keys(rows.astype(np.int64))], dtype=np.bool_)

    def draw(self, rng: np.random.Generator, count: int, seen: Seen) -> I64:
        """Returns up to `count` configurations of the list that are not in `seen`, in random order."""
        return rng.permutation(self.listed[seen.fresh(self.listed)])[:count]

    def step(self, rows: Rows, rng: np.random.Generator) -> I64:
        """Returns for each configuration a listed one that differs in one knob; itself if there is none."""
        moves = rows.astype(np.int64)
        for index, row in enumerate(moves.copy()):
            neighbours = np.flatnonzero((self.listed != row).sum(axis=1) == 1)
            if len(neighbours):
                moves[index] = self.listed[rng.choice(neighbours)]
        return moves

    def cross(self, first: Rows, second: Rows, rng: np.random.Generator) -> I64:
        """Returns children with each choice from one parent; the first parent where a child is not listed."""
        children = np.where(rng.random(first.shape) < 0.5, first, second).astype(np.int64)
        return np.where(self.legal(children)[:, None], children, first.astype(np.int64))
