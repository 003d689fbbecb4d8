"""Many kernels of one computation with their tile spaces, for models that price them in one call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from costbench.arrays import F64, I64, Bool
from costbench.compiler.lowering.loop_nest import LoweredKernels
from costbench.compiler.lowering.packed import unpacked
from costbench.compiler.lowering.writing import Nests
from costbench.compiler.tiling.footprint import new_tile, row_bytes
from costbench.compiler.tiling.space import (
    MAX_SIZE,
    MAX_UNITS,
    Candidates,
    loop_candidates,
    needed_limit,
    number_of,
    set_extents,
)
from costbench.execution.compiled import compiled


class SpaceCandidates(NamedTuple):
    """Extents that the loops of s iteration spaces may take.

    Attributes:
        first_loop: [s + 1], index of the first loop of each space among all loops.
        values: int64, ascending for each loop, loops end to end.
        offsets: [loops + 1], where the values of each loop begin.
        is_numbered: bool [s], whether the space is small enough that its tile sizes can be numbered; there
            are no candidates where it is not.
    """

    first_loop: I64
    values: I64
    offsets: I64
    is_numbered: Bool


@dataclass(frozen=True, eq=False)
class KernelBatch:
    """k kernels of one computation and the tile sizes that they may take.

    Attributes:
        lowered: the kernels.
    """

    lowered: LoweredKernels

    def __len__(self) -> int:
        return len(self.lowered)

    @cached_property
    def candidates(self) -> SpaceCandidates:
        """Returns the extents that the loops of the kernels' iteration spaces may take."""
        found, numbered = [], []
        for space in self.lowered.spaces:
            is_short = all(loop.units <= MAX_UNITS for loop in space.loops)
            loops = [loop_candidates(loop) for loop in space.loops] if is_short else []
            numbered.append(is_short and math.prod(map(len, loops)) < MAX_SIZE)
            found.append(loops if numbered[-1] else [])
        flat = [candidates for loops in found for candidates in loops]
        return SpaceCandidates(
            np.cumsum([0, *map(len, found)], dtype=np.int64),
            np.concatenate([np.zeros(0, dtype=np.int64), *flat]),
            np.cumsum([0, *map(len, flat)], dtype=np.int64),
            np.array(numbered, dtype=np.bool_),
        )

    @cached_property
    def most_loops(self) -> int:
        """Returns the largest number of loops of an iteration space."""
        return max((len(space.loops) for space in self.lowered.spaces), default=0)

    def smallest_fits(self, limit_bytes: float) -> Bool:
        """Returns whether the smallest tile size of each kernel fits a scratchpad, [k]; False for a kernel
        whose tile sizes are too many to be numbered.
        """
        return _smallest_fits(self.lowered.nests, self.candidates, limit_bytes)

    def numbered(self, chosen: I64, extents: I64) -> tuple[I64, I64]:
        """Returns the numbers [m] of tile sizes in their spaces, and the spaces' sizes [m].

        Args:
            chosen: numbers of the kernels, [m].
            extents: extents of their loops, [m, most_loops].
        """
        numbers, sizes = _numbered(self.lowered.nests, self.candidates, chosen, extents)
        return numbers, sizes


@compiled
def words_of(nests: Nests, kernel: int) -> F64:
    """Returns the packed nest of one of the kernels."""
    return nests.words[nests.ends[kernel] : nests.ends[kernel + 1]]


@compiled
def candidates_of(spaces: SpaceCandidates, space: int) -> Candidates:
    """Returns the extents that the loops of one iteration space may take."""
    first, end = spaces.first_loop[space], spaces.first_loop[space + 1]
    return Candidates(spaces.values, spaces.offsets[first : end + 1])


@compiled
def _smallest_fits(nests: Nests, spaces: SpaceCandidates, available: float) -> Bool:
    fits = np.zeros(len(nests.spaces), dtype=np.bool_)
    for k in range(len(fits)):
        if not spaces.is_numbered[nests.spaces[k]]:
            continue
        words, candidates = words_of(nests, k), candidates_of(spaces, nests.spaces[k])
        if needed_limit(words, candidates, available) == np.inf:
            fits[k] = True
        else:
            nest = unpacked(words)
            extents = np.empty(len(nest.loops), dtype=np.int64)
            set_extents(candidates, 0, extents)
            fits[k] = row_bytes(nest, extents, new_tile(nest)) <= available
    return fits


@compiled
def _numbered(nests: Nests, spaces: SpaceCandidates, chosen: I64, extents: I64) -> tuple[I64, I64]:
    numbers, sizes = np.zeros(len(chosen), dtype=np.int64), np.ones(len(chosen), dtype=np.int64)
    for i in range(len(chosen)):
        candidates = candidates_of(spaces, nests.spaces[chosen[i]])
        numbers[i] = number_of(candidates, extents[i])
        for loop in range(len(candidates.offsets) - 1):
            sizes[i] *= candidates.offsets[loop + 1] - candidates.offsets[loop]
    return numbers, sizes
