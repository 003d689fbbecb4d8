"""Which loops are unrolled, by the rule of TVM's pass UnrollLoop (`src/tirx/transform/unroll_loop.cc`).

From the innermost loop outwards: a serial loop is unrolled if all loops inside it are, at most 9 deep, and
its extent times the number of statements inside is within the limit. Statements of loops side by side add up.
Vectorised loops are gone by then. A padding copy outside of the computation's loops is not under the limit's
annotation and stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from costbench.arrays import I8, I64, Bool

_SERIAL, _PARALLEL, _VECTORIZED, _UNROLLED = range(4)
_MAX_DEPTH = 8


class Annotated(Protocol):
    """A statement, see `costbench_schedules.spaces.nest.StatementBatch`."""

    @property
    def present(self) -> Bool: ...

    @property
    def shared(self) -> I64: ...

    @property
    def extents(self) -> I64: ...

    @property
    def annotations(self) -> I8: ...


class _Body:
    """What lies inside a loop, per schedule: statements, whether one loop is not unrolled, unrolled depth."""

    def __init__(self, count: int, statements: int) -> None:
        self.statements = np.full(count, statements, dtype=np.int64)
        self.rolled = np.zeros(count, dtype=bool)
        self.depth = np.zeros(count, dtype=np.int64)

    def add(self, other: _Body, where: Bool) -> None:
        """Puts another body beside this one where it is."""
        self.statements += np.where(where, other.statements, 0)
        self.rolled |= where & other.rolled
        self.depth = np.where(where, np.maximum(self.depth, other.depth), self.depth)

    def enclose(self, extents: I64, annotations: I8, limit: I64, where: Bool) -> Bool:
        """Puts a loop around this body where it has one; returns where that loop is unrolled."""
        loop = where & (extents > 1) & (annotations != _VECTORIZED)
        unrolled: Bool = loop & (annotations == _SERIAL) & ~self.rolled & (self.depth <= _MAX_DEPTH)
        unrolled &= extents * self.statements <= limit
        self.statements = np.where(unrolled, extents * self.statements, self.statements)
        self.depth = self.depth + unrolled
        self.rolled = self.rolled | (loop & ~unrolled)
        return unrolled


def mark_unrolled(statements: Mapping[str, Annotated], first_reduce: I64, limit: I64) -> None:
    """Sets the annotations of unrolled loops.

    Args:
        statements: the statements by name, among them "compute", whose loops are the trunk.
        first_reduce: loops of the trunk, int64 [n].
        limit: most statements that unrolled loops may become, int64 [n].
    """
    compute = statements["compute"]
    count, num_loops = compute.extents.shape
    trunk = _Body(count, 1)
    for place in reversed(range(num_loops)):
        here = place >= first_reduce
        unrolled = trunk.enclose(compute.extents[:, place], compute.annotations[:, place], limit, here)
        compute.annotations[unrolled, place] = _UNROLLED
    others = [(one, _own(one, limit)) for name, one in statements.items() if name != "compute"]
    for place in reversed(range(int(first_reduce.max(initial=0)))):
        for one, body in others:
            trunk.add(body, one.present & (one.shared == place + 1))
        here = place < first_reduce
        unrolled = trunk.enclose(compute.extents[:, place], compute.annotations[:, place], limit, here)
        compute.annotations[unrolled, place] = _UNROLLED
        for one, _ in others:
            if place < one.extents.shape[1]:
                one.annotations[unrolled & (place < one.shared), place] = _UNROLLED


def _own(one: Annotated, limit: I64) -> _Body:
    """Marks a statement's own loops and returns them as a body."""
    body = _Body(len(one.extents), 1)
    inside = one.shared > 0
    for place in reversed(range(one.extents.shape[1])):
        here = inside & one.present & (place >= one.shared)
        unrolled = body.enclose(one.extents[:, place], one.annotations[:, place], limit, here)
        one.annotations[unrolled, place] = _UNROLLED
    return body
