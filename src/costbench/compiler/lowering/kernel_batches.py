"""Batches of kernels: many of one computation lowered together, for models that price them together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from costbench.compiler.kernel import Kernel
from costbench.compiler.kernel_arrays import KernelArrays
from costbench.compiler.lowering.arrays import CONTRACTION_WALK, FIRST_LOOP, NUM_LOOPS, LoweringTables
from costbench.compiler.lowering.batch import LEFT_OUT, Nests, lower_from, new_scratch
from costbench.compiler.lowering.batch_propagation import MISSING_KEY, new_room
from costbench.compiler.lowering.loop_nest import LoopNest, Lowering
from costbench.compiler.lowering.packed import unpacked
from costbench.compiler.tiling.footprint import new_tile, row_bytes
from costbench.compiler.tiling.space import Candidates, set_extents
from costbench.execution.compiled import compiled

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Number = TypeVar("Number", np.int64, np.float64)
_INTS_PER_NODE, _FLOATS_PER_NODE = 8, 32


class Walks(NamedTuple):
    """The loops of w walks.

    Attributes:
        first_loop: [w + 1], where those of each walk begin among all loops.
        values: extents that each loop may take, ascending, loops end to end.
        offsets: [loops + 1], where each loop's begin.
    """

    first_loop: IntArray
    values: IntArray
    offsets: IntArray


class Ragged(NamedTuple):
    """Arrays of several lengths end to end: those of walk w are `values[ends[w] : ends[w + 1]]`."""

    values: FloatArray
    ends: IntArray


@dataclass(frozen=True, eq=False)
class KernelBatch:
    """k kernels of one computation, lowered.

    Attributes:
        source: that lowered them.
        kernels: positions.
        nests: packed; nothing for those that are `left_out`.
        walks: the loops that their walks are over.
    """

    source: BatchLowering
    kernels: KernelArrays
    nests: Nests
    walks: Walks

    def __len__(self) -> int:
        return len(self.nests.walks)

    @property
    def left_out(self) -> BoolArray:
        """Which kernels have to be lowered on their own, [k]."""
        result: BoolArray = self.nests.walks == LEFT_OUT
        return result

    @cached_property
    def everything(self) -> Kernel:
        """All instructions of the kernels as if they were one, to ask a `WorkTable` about."""
        inside = tuple(np.unique(self.kernels.instructions).tolist())
        return replace(self.source.kernel(self.kernels, 0), instructions=inside, inputs=(), outputs=())

    @property
    def most_loops(self) -> int:
        """Loops of the kernel that has most."""
        return int(np.diff(self.walks.first_loop).max(initial=0))

    def smallest_fits(self, limit_bytes: float) -> BoolArray:
        """Whether the smallest tile size fits a scratchpad, [k]; never for those left out."""
        return _smallest_fits(self.nests, self.walks, limit_bytes)

    def numbered(self, chosen: IntArray, extents: IntArray) -> tuple[IntArray, IntArray]:
        """Numbers of tile sizes in their spaces, and the spaces' sizes, of m chosen kernels.

        Args:
            chosen: which kernels, [m]; none that is left out.
            extents: of their loops, [m, most_loops].
        """
        numbers, sizes = _numbered(self.nests, self.walks, chosen, extents)
        return numbers, sizes


class BatchLowering:
    """Lowers the kernels of one computation; what they share is worked out once.

    What is kept grows with the computation, not with the number of kernels.

    Args:
        lowering: of the program, for what a batch leaves out.
        computation: its position.
    """

    def __init__(self, lowering: Lowering, computation: int) -> None:
        self._lowering = lowering
        self._computation = computation
        self._body = lowering.module.computations[computation]
        self._start()

    def _start(self) -> None:
        self._tables = LoweringTables(self._body)
        self._contractions: dict[int, LoopNest] = {}
        self._numbers: dict[str, dict[int, FloatArray]] = {}

    def lower(self, kernels: KernelArrays) -> KernelBatch:
        """Lowers kernels given by positions.

        Raises:
            UnsupportedKernelError: if a kernel cannot be lowered.
        """
        if self._tables.is_full:
            self._start()
        tables = self._tables
        tables.make_ready(np.unique(np.concatenate([kernels.inputs, kernels.instructions])))
        count, nodes = len(kernels.inputs_offsets) - 1, len(kernels.inputs) + len(kernels.instructions)
        room, scratch = new_room(len(self._body.instructions)), new_scratch(len(self._body.instructions))
        ends = np.zeros((2, count + 1), dtype=np.int64)
        nests = Nests(
            np.zeros(_INTS_PER_NODE * (nodes + count), dtype=np.int64),
            np.zeros(_FLOATS_PER_NODE * (nodes + count)),
            ends[0], ends[1], np.full(count, LEFT_OUT, dtype=np.int64),
        )  # fmt: skip
        done = 0
        while (done := lower_from(tables.arrays, room, scratch, kernels, done, nests)) < count:
            if key := int(room.state[MISSING_KEY]):
                tables.fill(key)
            else:
                nests = nests._replace(ints=_longer(nests.ints), floats=_longer(nests.floats))
        batch = KernelBatch(self, kernels, nests, self._walks())
        self._keep_contractions(batch)
        return batch

    def kernel(self, kernels: KernelArrays, number: int) -> Kernel:
        """One of the kernels on its own."""
        instructions, inputs, outputs = (
            tuple(positions[offsets[number] : offsets[number + 1]].tolist())
            for offsets, positions in zip(kernels[::2], kernels[1::2], strict=True)
        )
        return Kernel(self._lowering.module, self._computation, instructions, inputs, outputs)

    def loop_nest(self, kernel: Kernel) -> LoopNest:
        """A kernel lowered on its own."""
        return self._lowering.loop_nest(kernel)

    def of_contractions(self, name: str, number: Callable[[LoopNest], FloatArray]) -> Ragged:
        """Numbers of the contraction of each walk, kept under a name; none for a walk without one."""
        known = self._numbers.setdefault(name, {})
        for walk, nest in self._contractions.items():
            if walk not in known:
                known[walk] = number(nest)
        nothing = np.zeros(0)
        arrays = [known.get(walk, nothing) for walk in range(self._tables.num_walks)]
        ends = np.cumsum([0, *map(len, arrays)], dtype=np.int64)
        return Ragged(np.concatenate(arrays), ends)

    def _walks(self) -> Walks:
        candidates = self._tables.loop_candidates
        columns = self._tables.arrays.walks[: self._tables.num_walks]
        offsets = np.cumsum([0, *map(len, candidates)], dtype=np.int64)
        ends = columns[-1, FIRST_LOOP] + columns[-1, NUM_LOOPS]
        values = np.concatenate([np.zeros(0, dtype=np.int64), *candidates])
        return Walks(np.append(columns[:, FIRST_LOOP], ends), values, offsets)

    def _keep_contractions(self, batch: KernelBatch) -> None:
        """Keeps one lowered kernel of each walk over a contraction: what it computes follows from that."""
        found, places = np.unique(batch.nests.walks, return_index=True)
        contracts = self._tables.arrays.walks[:, CONTRACTION_WALK]
        for walk, place in zip(found.tolist(), places.tolist(), strict=True):
            if walk != LEFT_OUT and contracts[walk] and walk not in self._contractions:
                self._contractions[walk] = self.loop_nest(self.kernel(batch.kernels, place))


def _longer(array: npt.NDArray[Number]) -> npt.NDArray[Number]:
    return np.concatenate([array, np.zeros_like(array)])


@compiled
def nest_of(nests: Nests, kernel: int) -> tuple[IntArray, FloatArray]:
    """The packed nest of one kernel of a batch."""
    return (
        nests.ints[nests.ints_ends[kernel] : nests.ints_ends[kernel + 1]],
        nests.floats[nests.floats_ends[kernel] : nests.floats_ends[kernel + 1]],
    )


@compiled
def candidates_of(walks: Walks, walk: int) -> Candidates:
    """What each loop of a walk may take."""
    return Candidates(walks.values, walks.offsets[walks.first_loop[walk] : walks.first_loop[walk + 1] + 1])


@compiled
def row_of(ragged: Ragged, walk: int) -> FloatArray:
    """The numbers of one walk."""
    return ragged.values[ragged.ends[walk] : ragged.ends[walk + 1]]


@compiled
def needed_limit(floats: FloatArray, candidates: Candidates, available: float) -> float:
    """Scratchpad that a tile may take; infinite where all tiles fit, so that nothing need be checked."""
    return np.inf if len(candidates.offsets) == 1 or floats[0] <= available else available


@compiled
def _smallest_fits(nests: Nests, walks: Walks, available: float) -> BoolArray:
    fits = np.zeros(len(nests.walks), dtype=np.bool_)
    for k in range(len(fits)):
        if nests.walks[k] == LEFT_OUT:
            continue
        ints, floats = nest_of(nests, k)
        candidates = candidates_of(walks, nests.walks[k])
        if needed_limit(floats, candidates, available) == np.inf:
            fits[k] = True
        else:
            nest = unpacked(ints, floats)
            extents = np.empty(len(nest.loops), dtype=np.int64)
            set_extents(candidates, 0, extents)
            fits[k] = row_bytes(nest, extents, new_tile(nest)) <= available
    return fits


@compiled
def _numbered(nests: Nests, walks: Walks, chosen: IntArray, extents: IntArray) -> tuple[IntArray, IntArray]:
    numbers, sizes = np.zeros(len(chosen), dtype=np.int64), np.ones(len(chosen), dtype=np.int64)
    for i in range(len(chosen)):
        c = candidates_of(walks, nests.walks[chosen[i]])
        for loop in range(len(c.offsets) - 1):
            radix, place = c.offsets[loop + 1] - c.offsets[loop], 0
            while c.values[c.offsets[loop] + place] < extents[i, loop]:
                place += 1
            numbers[i] = numbers[i] * radix + place
            sizes[i] *= radix
    return numbers, sizes
