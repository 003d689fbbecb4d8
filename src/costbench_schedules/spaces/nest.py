"""The loops that schedules become, computed from the operator without a compiler.

A schedule becomes up to four statements: a padding copy, the initialisation of sums, the computation, and the
write-back of a buffer of sums. All four lie in one tree whose trunk is the computation's loops around its
first reduction loop: a statement has its first `shared` loops in common with the computation. The arrays
describe many schedules of one operator at once. A loop of one iteration is no loop, so a statement's loops
have fixed places and absent ones have extent 1.

Consecutive parallel loops are one fused loop in the compiled program. Unrolling follows the rule of TVM's
pass UnrollLoop (`src/tirx/transform/unroll_loop.cc`). From the innermost loop outwards: a serial loop is
unrolled if all loops inside it are, at most 9 deep, and its extent times the number of statements inside is
within the knob's limit. Statements of loops side by side add up. Vectorised loops are gone by then. A padding
copy outside of the computation's loops is not under the limit's annotation and stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from costbench.arrays import I8, I64, AnyInt, Bool
from costbench_schedules.operators.operators import Operator
from costbench_schedules.spaces.levels import Buffer, Levels, buffers_of, copy_buffers, levels_of
from costbench_schedules.spaces.space import ScheduleSpace

NONE, PARALLEL, VECTORIZE, UNROLL = range(4)
"""Annotations of loops."""
ANNOTATIONS = ("none", "parallel", "vectorize", "unroll")
LANES = 16
"""Most elements that a copy moves at once: a vector of AVX-512."""
STATEMENTS = ("padding", "init", "compute", "write")
_MAX_UNROLLED_DEPTH = 8
_INDENT = "  "
_STATEMENT_TEXT = {
    "padding": "{1} = {0}, zeros around it",
    "init": "{0} = 0",
    "compute": "{2} += {0} * {1}",
    "write": "{1} = {0}",
}


@dataclass(frozen=True, eq=False)
class StatementBatch:
    """One statement of n schedules: L loops, outermost first, around accesses to B buffers.

    Attributes:
        name: name of the statement, one of `STATEMENTS`.
        buffers: names of the buffers [B]; those of sums and padded inputs differ in size among schedules.
        writes: whether each buffer is written, bool [B].
        present: whether the schedule has the statement, bool [n].
        shared: number of loops in common with the computation, int64 [n]; of the computation itself, all.
        extents: number of iterations of each loop, int64 [n, L]; 1 where there is none.
        annotations: codes of `ANNOTATIONS`, int8 [n, L].
        axes: position in `Operator.axes` of the axis that each loop runs over, int8 [n, L]; in the own loops
            of a copy the dimension of the buffer, counted from -1 downwards.
        levels: level of each loop's tile, int8 [n, L]; 0 in the own loops of a copy.
        strides: elements between the accesses of consecutive iterations, int64 [n, L, B].
        touched: distinct elements of the buffer accessed by one run of the loop, int64 [n, L, B]; an upper
            bound where a padded input is read without a copy.
        sizes: elements of each buffer, int64 [n, B].
    """

    name: str
    buffers: tuple[str, ...]
    writes: Bool
    present: Bool
    shared: I64
    extents: I64
    annotations: I8
    axes: I8
    levels: I8
    strides: I64
    touched: I64
    sizes: I64


@dataclass(frozen=True, eq=False)
class NestBatch:
    """The statements of n schedules of one operator.

    Attributes:
        operator: operator that is scheduled.
        statements: statements by name, in the order in which they run.
        unroll: largest number of statements that unrolled loops may become, int64 [n].
    """

    operator: Operator
    statements: Mapping[str, StatementBatch]
    unroll: I64

    def __len__(self) -> int:
        return len(self.unroll)


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop of more than one iteration.

    Attributes:
        name: axis and level ("co.3"), or the dimension of a copied buffer ("dim 2").
        extent: number of iterations.
        annotation: annotation of the loop, one of `ANNOTATIONS`.
        strides: elements between the accesses of consecutive iterations, per buffer.
        touched: distinct elements accessed by one run of the loop, per buffer.
    """

    name: str
    extent: int
    annotation: str
    strides: tuple[int, ...]
    touched: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LoopStatement:
    """One statement of one schedule.

    Attributes:
        name: name of the statement, one of `STATEMENTS`.
        loops: loops around it, outermost first.
        shared: number of these that are the computation's, too.
        buffers: name, whether it is written and number of elements of each buffer accessed.
    """

    name: str
    loops: tuple[Loop, ...]
    shared: int
    buffers: tuple[tuple[str, bool, int], ...]


@dataclass(frozen=True, slots=True)
class ScheduledNest:
    """The statements of one schedule.

    Attributes:
        operator: operator that is scheduled.
        statements: statements that it has, in the order in which they run.
    """

    operator: Operator
    statements: tuple[LoopStatement, ...]


def nest_batch(space: ScheduleSpace, rows: AnyInt) -> NestBatch:
    """Returns the loops of configurations [n, m] of a space."""
    levels = levels_of(space, rows)
    buffers = buffers_of(levels)
    statements = {}
    if space.operator.padding:
        statements["padding"] = _padding(levels, buffers)
    statements["init"] = _init(levels, buffers[-1])
    statements["compute"] = _compute(levels, buffers)
    statements["write"] = _write(levels, buffers[-1])
    mark_unrolled(statements, levels.first_reduce, levels.unroll)
    return NestBatch(space.operator, statements, levels.unroll)


def nest_of(space: ScheduleSpace, row: AnyInt) -> ScheduledNest:
    """Returns the loops of one configuration [m]."""
    return schedule_at(nest_batch(space, row[None]), 0)


def schedule_at(batch: NestBatch, index: int) -> ScheduledNest:
    """Returns one schedule of a batch, without loops of one iteration."""
    statements = [
        _statement(batch.operator, statement, index)
        for statement in batch.statements.values()
        if statement.present[index]
    ]
    return ScheduledNest(batch.operator, tuple(statements))


def _statement(operator: Operator, batch: StatementBatch, index: int) -> LoopStatement:
    real = np.flatnonzero(batch.extents[index] > 1)
    loops = []
    for loop in real.tolist():
        axis, level = int(batch.axes[index, loop]), int(batch.levels[index, loop])
        loops.append(
            Loop(
                f"{operator.axes[axis].name}.{level}" if axis >= 0 else f"dim {-1 - axis}",
                int(batch.extents[index, loop]),
                ANNOTATIONS[batch.annotations[index, loop]],
                tuple(batch.strides[index, loop].tolist()),
                tuple(batch.touched[index, loop].tolist()),
            )
        )
    shared = int(np.count_nonzero(real < batch.shared[index]))
    buffers = zip(batch.buffers, batch.writes.tolist(), batch.sizes[index].tolist(), strict=True)
    return LoopStatement(batch.name, tuple(loops), shared, tuple(buffers))


def _compute(levels: Levels, buffers: tuple[Buffer, ...]) -> StatementBatch:
    order = levels.permutation
    flat = levels.extents
    extents = np.take_along_axis(flat, order, axis=1)
    inside = _inside(extents, levels.axis_of[order], len(levels.operator.axes))
    annotations = np.zeros(extents.shape, dtype=np.int8)
    # The trunk is the same in all orders up to S1, so parallel loops are the first ones of every order.
    annotations[np.arange(extents.shape[1]) < levels.num_parallel[:, None]] = PARALLEL
    last = order == levels.vector_loop
    annotations[last & levels.vectorized[:, None] & (extents > 1)] = VECTORIZE
    strides = [np.take_along_axis(levels.strides(buffer), order, axis=1) for buffer in buffers]
    return StatementBatch(
        "compute",
        tuple(buffer.name for buffer in buffers),
        np.array([False] * (len(buffers) - 1) + [True]),
        np.ones(len(flat), dtype=bool),
        np.full(len(flat), extents.shape[1], dtype=np.int64),
        extents,
        annotations,
        levels.axis_of[order].astype(np.int8),
        levels.level_of[order].astype(np.int8),
        np.stack(strides, axis=2),
        np.stack([levels.touched(buffer, inside) for buffer in buffers], axis=2),
        np.stack([buffer.size for buffer in buffers], axis=1),
    )


def _inside(extents: I64, axes: I64, num_axes: int) -> I64:
    """Returns how many values of each axis one run of each loop goes through, int64 [n, L, A]."""
    values = np.where(axes[:, :, None] == np.arange(num_axes), extents[:, :, None], 1)
    return np.asarray(np.cumprod(values[:, ::-1], axis=1)[:, ::-1], dtype=np.int64)


def _init(levels: Levels, sums: Buffer) -> StatementBatch:
    num = levels.num_spatial
    extents = levels.extents[:, :num]
    axes = np.broadcast_to(levels.axis_of[:num], extents.shape)
    inside = _inside(extents, axes, len(levels.operator.axes))
    annotations = np.zeros(extents.shape, dtype=np.int8)
    annotations[np.arange(num) < levels.num_parallel[:, None]] = PARALLEL
    annotations[levels.vectorized & (extents[:, -1] > 1), -1] = VECTORIZE
    return StatementBatch(
        "init",
        (sums.name,),
        np.array([True]),
        np.ones(len(extents), dtype=bool),
        levels.first_reduce,
        extents,
        annotations,
        axes.astype(np.int8),
        np.broadcast_to(levels.level_of[:num], extents.shape).astype(np.int8),
        levels.strides(sums)[:, :num, None],
        levels.touched(sums, inside)[:, :, None],
        sums.size[:, None],
    )


def _write(levels: Levels, sums: Buffer) -> StatementBatch:
    num_axes = len(levels.operator.spatial)
    output = copy_buffers(levels, sums, levels.operator.output)
    shared = sums.outer * num_axes
    return _copy("write", levels, (sums, output), shared, 3 * num_axes, sums.outer > 0)


def _padding(levels: Levels, buffers: tuple[Buffer, ...]) -> StatementBatch:
    [(index, padded)] = [(i, buffer) for i, buffer in enumerate(buffers) if buffer.padded]
    source = copy_buffers(levels, padded, levels.operator.padding[levels.operator.accesses[index].tensor][0])
    shared = padded.outer * len(levels.operator.spatial)
    return _copy(
        "padding", levels, (source, padded), shared, 2 * len(levels.operator.spatial), ~padded.inline
    )


def _copy(
    name: str,
    levels: Levels,
    pair: tuple[Buffer, Buffer],
    shared: I64,
    num_outer: int,
    present: Bool,
) -> StatementBatch:
    """Returns the copy of a buffer into another, whose own loops run over the smaller one's dimensions."""
    small = pair[0] if name == "write" else pair[1]
    own_extents, vectorized = _split_last(small.shape, levels.vectorized)
    outer_extents = np.where(np.arange(num_outer) < shared[:, None], levels.extents[:, :num_outer], 1)
    extents = np.where(present[:, None], np.concatenate([outer_extents, own_extents], axis=1), 1)
    annotations = np.zeros(extents.shape, dtype=np.int8)
    parallel = (np.arange(num_outer) < levels.num_parallel[:, None]) & (shared > 0)[:, None]
    annotations[:, :num_outer][parallel] = PARALLEL
    annotations[vectorized & present, -1] = VECTORIZE
    num_dims = small.shape.shape[1]
    dims = np.minimum(np.arange(num_dims + 1), num_dims - 1)
    axes = np.concatenate([levels.axis_of[:num_outer], -1 - dims])
    tile_levels = np.concatenate([levels.level_of[:num_outer], np.zeros(num_dims + 1, dtype=np.int64)])
    inside = _inside_trunk(levels, num_outer)
    strides, touched = [], []
    for buffer in pair:
        steps = buffer.dim_strides[:, dims] * np.where(
            np.arange(num_dims + 1) == num_dims - 1, own_extents[:, -1:], 1
        )
        strides.append(np.concatenate([levels.strides(buffer)[:, :num_outer], steps], axis=1))
        trunk = levels.touched(buffer, inside)
        whole = np.cumprod(own_extents[:, ::-1], axis=1)[:, ::-1]
        limit = buffer.size[:, None]
        touched.append(np.minimum(np.concatenate([trunk, whole], axis=1), limit))
    # An absent loop has no stride and touches what the loops inside it touch; both are never looked at.
    shape = (len(extents), extents.shape[1])
    return StatementBatch(
        name,
        tuple(buffer.name for buffer in pair),
        np.array([False, True]),
        present,
        shared,
        extents,
        annotations,
        np.broadcast_to(axes, shape).astype(np.int8),
        np.broadcast_to(tile_levels, shape).astype(np.int8),
        np.stack(strides, axis=2),
        np.stack(touched, axis=2),
        np.stack([buffer.size for buffer in pair], axis=1),
    )


def _inside_trunk(levels: Levels, num_outer: int) -> I64:
    """Returns the values of each axis inside the trunk's loops, int64 [n, num_outer, A]."""
    num = levels.num_spatial
    axes = np.broadcast_to(levels.axis_of[:num], (len(levels.extents), num))
    inside = _inside(levels.extents[:, :num], axes, len(levels.operator.axes))[:, :num_outer]
    for index, axis in enumerate(levels.operator.axes):
        if axis.kind == "reduce":
            inside[:, :, index] = axis.extent
    return inside


def _split_last(shape: I64, vectorized: Bool) -> tuple[I64, Bool]:
    """Returns the loops over a buffer, the last one split, int64 [n, D + 1], and where it is vectorised."""
    lanes = np.ones(len(shape), dtype=np.int64)
    for width in range(2, LANES + 1):
        lanes = np.where(vectorized & (shape[:, -1] % width == 0), width, lanes)
    last = np.stack([shape[:, -1] // lanes, lanes], axis=1)
    return np.concatenate([shape[:, :-1], last], axis=1), lanes > 1


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
        loop = where & (extents > 1) & (annotations != VECTORIZE)
        unrolled: Bool = loop & (annotations == NONE) & ~self.rolled & (self.depth <= _MAX_UNROLLED_DEPTH)
        unrolled &= extents * self.statements <= limit
        self.statements = np.where(unrolled, extents * self.statements, self.statements)
        self.depth = self.depth + unrolled
        self.rolled = self.rolled | (loop & ~unrolled)
        return unrolled


def mark_unrolled(statements: Mapping[str, StatementBatch], first_reduce: I64, limit: I64) -> None:
    """Sets the annotations of unrolled loops.

    Args:
        statements: statements by name, among them "compute", whose loops are the trunk.
        first_reduce: number of loops of the trunk, int64 [n].
        limit: largest number of statements that unrolled loops may become, int64 [n].
    """
    compute = statements["compute"]
    count, num_loops = compute.extents.shape
    trunk = _Body(count, 1)
    for index in reversed(range(num_loops)):
        is_inside = index >= first_reduce
        unrolled = trunk.enclose(compute.extents[:, index], compute.annotations[:, index], limit, is_inside)
        compute.annotations[unrolled, index] = UNROLL
    other_bodies = [
        (statement, _mark_own_loops(statement, limit))
        for name, statement in statements.items()
        if name != "compute"
    ]
    for index in reversed(range(int(first_reduce.max(initial=0)))):
        for statement, body in other_bodies:
            trunk.add(body, statement.present & (statement.shared == index + 1))
        is_inside = index < first_reduce
        unrolled = trunk.enclose(compute.extents[:, index], compute.annotations[:, index], limit, is_inside)
        compute.annotations[unrolled, index] = UNROLL
        for statement, _ in other_bodies:
            if index < statement.extents.shape[1]:
                statement.annotations[unrolled & (index < statement.shared), index] = UNROLL


def _mark_own_loops(statement: StatementBatch, limit: I64) -> _Body:
    """Marks a statement's own loops and returns them as a body."""
    body = _Body(len(statement.extents), 1)
    has_shared = statement.shared > 0
    for index in reversed(range(statement.extents.shape[1])):
        is_own = has_shared & statement.present & (index >= statement.shared)
        unrolled = body.enclose(statement.extents[:, index], statement.annotations[:, index], limit, is_own)
        statement.annotations[unrolled, index] = UNROLL
    return body


def nest_text(nest: ScheduledNest) -> str:
    """Returns the loops of a schedule as indented lines; loops that statements share are written once."""
    lines: list[str] = []
    compute = next(statement for statement in nest.statements if statement.name == "compute")
    earlier = {
        statement.name: statement for statement in nest.statements if statement.name in ("padding", "init")
    }
    after = [statement for statement in nest.statements if statement.name == "write"]
    for depth, loop in enumerate((*compute.loops, None)):
        for statement in earlier.values():
            if statement.shared == depth:
                lines += _own_lines(statement, depth)
        if loop is not None:
            lines.append(_loop_line(loop.name, loop.extent, loop.annotation, depth))
    lines.append(_INDENT * len(compute.loops) + _statement_line(compute))
    for statement in after:
        lines += _own_lines(statement, statement.shared)
    return "\n".join(lines)


def _own_lines(statement: LoopStatement, depth: int) -> list[str]:
    """Returns the lines of a statement's own loops and of itself."""
    loops = statement.loops[statement.shared :]
    lines = [_loop_line(loop.name, loop.extent, loop.annotation, depth + i) for i, loop in enumerate(loops)]
    return [*lines, _INDENT * (depth + len(loops)) + _statement_line(statement)]


def _loop_line(name: str, extent: int, annotation: str, depth: int) -> str:
    note = "" if annotation == "none" else f"  # {annotation}"
    return f"{_INDENT * depth}for {name} in {extent}:{note}"


def _statement_line(statement: LoopStatement) -> str:
    return _STATEMENT_TEXT[statement.name].format(*(name for name, _, _ in statement.buffers))
