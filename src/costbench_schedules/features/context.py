"""Context features: a vector for every loop of a schedule, for tree networks and relation features.

As in autotvm2018 (section 4, Figure 3b) and AutoTVM's own extractor: the loop's length, place and annotation,
and how each buffer is accessed inside it. Loops that two statements share belong to the computation, so every
loop of the program's tree has one vector. Numbers of wide range are log2(1 + x).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costbench.arrays import F32, I64, Bool
from costbench_schedules.spaces.nest import (
    ANNOTATIONS,
    NONE,
    STATEMENTS,
    NestBatch,
    StatementBatch,
)

BUFFERS = ("written", "first", "second")
"""Buffers of a statement in the order of their columns: the one it writes, then those it reads."""
ELEMENT_BYTES = 4
_PER_BUFFER = ("touched", "reuse", "stride")
_LOOP = ("extent", "depth", "height", "top_down", "bottom_up", "working_set", "reduce")
FEATURE_NAMES: tuple[str, ...] = (
    *_LOOP,
    *ANNOTATIONS[1:],
    *STATEMENTS,
    *(f"{kind}_{buffer}" for buffer in BUFFERS for kind in _PER_BUFFER),
)
"""Names of the features of a loop, in order:

- extent: iterations.
- depth, height: loops around it and inside it; counted, not in logarithms.
- top_down, bottom_up: iterations of all loops around it and of all inside, its own included.
- working_set: bytes of all buffers that one run of the loop touches.
- reduce, annotations and statements: 1 or 0.
- touched_B: bytes of a buffer that one run of the loop touches.
- reuse_B: iterations of the innermost loop per element of these.
- stride_B: bytes between the accesses of consecutive iterations, without sign.
"""
NUM_FEATURES = len(FEATURE_NAMES)


@dataclass(frozen=True, eq=False)
class ContextBatch:
    """Context features of n schedules of one operator, with K places for loops.

    Attributes:
        values: float32 [n, K, F]; zeros where there is no loop.
        real: whether a place holds a loop of more than one iteration, bool [n, K].
        parents: place of the loop around each one, int64 [n, K]; -1 for an outermost loop.
        leaves: place of the innermost loop around each statement, int64 [n, S]; -1 for one without loops.
        present: whether a schedule has each statement, bool [n, S].
        names: axis (or, below 0, dimension of a copy) and level of the loop at each place, int64
            [n, K, 2].
        statements: codes of the statements, positions in `STATEMENTS`, [S].
        starts: first place of each statement, [S]; the computation's loops are one block.
        shared: number of first places of the computation that are around each statement, int64 [n, S]; of
            the computation itself, all.
    """

    values: F32
    real: Bool
    parents: I64
    leaves: I64
    present: Bool
    names: I64
    statements: tuple[int, ...]
    starts: tuple[int, ...]
    shared: I64

    def __len__(self) -> int:
        return len(self.values)

    def block(self, statement: str) -> slice:
        """Returns the places of a statement's loops."""
        number = self.statements.index(STATEMENTS.index(statement))
        ends = (*self.starts[1:], self.real.shape[1])
        return slice(self.starts[number], ends[number])


def context_features(nests: NestBatch) -> ContextBatch:
    """Returns the context features of schedules; `FEATURE_NAMES` says which."""
    batches = list(nests.statements.values())
    widths = [batch.extents.shape[1] for batch in batches]
    starts = (np.cumsum(widths) - widths).tolist()
    trunk = nests.statements["compute"]
    first = starts[batches.index(trunk)]
    reduces = np.array([axis.kind == "reduce" for axis in nests.operator.axes])
    parts = [_of_statement(batch, trunk is batch, reduces) for batch in batches]
    real = np.concatenate([is_own for _, is_own in parts], axis=1)
    parents, leaves = [], []
    for start, batch, (_, is_own) in zip(starts, batches, parts, strict=True):
        parent, last = _parents(is_own, start)
        if batch is not trunk:
            # Loops of its own hang from the innermost loop that it shares with the computation.
            stem = _last_before(trunk.extents > 1, batch.shared, first)
            parent = np.where(is_own & (parent < 0), stem[:, None], parent)
            last = np.where(last < 0, stem, last)
        parents.append(parent)
        leaves.append(np.where(batch.present, last, -1))
    axes = np.concatenate([batch.axes for batch in batches], axis=1)
    levels = np.concatenate([batch.levels for batch in batches], axis=1)
    return ContextBatch(
        np.concatenate([values for values, _ in parts], axis=1),
        real,
        np.concatenate(parents, axis=1),
        np.stack(leaves, axis=1),
        np.stack([batch.present for batch in batches], axis=1),
        np.stack([axes, levels], axis=2).astype(np.int64),
        tuple(STATEMENTS.index(batch.name) for batch in batches),
        tuple(starts),
        np.stack([batch.shared for batch in batches], axis=1),
    )


def _of_statement(batch: StatementBatch, whole: bool, reduces: Bool) -> tuple[F32, Bool]:
    """Returns the features of a statement's loops and which of them are its own, [n, L, F] and [n, L].

    Args:
        batch: loops of the statement.
        whole: whether all its loops are its own.
        reduces: whether each axis is a reduction, [A].
    """
    loops = batch.extents > 1
    is_own = loops & batch.present[:, None]
    if not whole:
        is_own &= np.arange(batch.extents.shape[1]) >= batch.shared[:, None]
    extents = batch.extents.astype(np.float64)
    top_down = np.cumprod(extents, axis=1)
    bottom_up = np.cumprod(extents[:, ::-1], axis=1)[:, ::-1]
    depth: I64 = np.cumsum(loops, axis=1) - loops
    height = loops.sum(axis=1)[:, None] - 1 - depth
    values = np.zeros((*batch.extents.shape, NUM_FEATURES), dtype=np.float32)
    buffers = [buffer for written in (True, False) for buffer in np.flatnonzero(batch.writes == written)]
    touched = batch.touched[:, :, buffers].astype(np.float64)
    strides = np.abs(batch.strides[:, :, buffers]).astype(np.float64) * ELEMENT_BYTES
    reuse = bottom_up[:, :, None] / np.maximum(touched, 1.0)
    working_set = touched.sum(axis=2) * ELEMENT_BYTES
    for column, numbers in enumerate((extents, depth, height, top_down, bottom_up, working_set)):
        values[:, :, column] = numbers if column in (1, 2) else np.log2(1.0 + numbers)
    values[:, :, len(_LOOP) - 1] = np.append(reduces, False)[np.maximum(batch.axes, -1)]
    column = len(_LOOP)
    for code in range(len(ANNOTATIONS)):
        if code != NONE:
            values[:, :, column] = batch.annotations == code
            column += 1
    values[:, :, column + STATEMENTS.index(batch.name)] = 1.0
    column += len(STATEMENTS)
    for buffer in range(len(buffers)):
        per_buffer = (touched[:, :, buffer] * ELEMENT_BYTES, reuse[:, :, buffer], strides[:, :, buffer])
        for numbers in per_buffer:
            values[:, :, column] = np.log2(1.0 + numbers)
            column += 1
    values *= is_own[:, :, None]
    return values, is_own


def _parents(is_own: Bool, start: int) -> tuple[I64, I64]:
    """Returns the place of the own loop before each one, and of the last one; -1 if there is none."""
    indices = np.where(is_own, np.arange(is_own.shape[1]) + start, -1)
    latest = np.maximum.accumulate(indices, axis=1)
    before = np.concatenate([np.full((len(is_own), 1), -1), latest[:, :-1]], axis=1)
    return np.where(is_own, before, -1), latest[:, -1]


def _last_before(loops: Bool, stop: I64, start: int) -> I64:
    """Returns the place of the last loop among the first `stop` ones, int64 [n]; -1 if there is none."""
    inside = loops & (np.arange(loops.shape[1]) < stop[:, None])
    indices = np.where(inside, np.arange(loops.shape[1]) + start, -1)
    return np.asarray(indices.max(axis=1, initial=-1), dtype=np.int64)
