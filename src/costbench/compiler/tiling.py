"""The tile sizes of a kernel: balanced splits of every loop, less what overflows the scratchpad.

A loop of D native tiles may be cut into n = 1..D parts of ceil(D/n); only such balanced extents are tried
(tpugraphs2023, section 3, and the recorded runs of the real machine). The space is the full cross product
over the loops, numbered in C order with the first loop most significant, so a tile size is one integer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from costbench.compiler.footprint import scratchpad_bound, scratchpad_bytes
from costbench.compiler.kernel import Kernel
from costbench.compiler.loop_nest import LoopNest, loop_nest
from costbench.compiler.tile_sizes import TileSizes
from costbench.errors import UnsupportedKernelError
from costbench.target import Architecture

IntArray = npt.NDArray[np.int64]
_CHUNK = 1 << 18
_MAX_SIZE = 1 << 62
_MAX_LISTED = 1 << 22
_LISTED_PER_DRAWN = 8
_SAMPLING_ROUNDS = 8


def balanced_splits(units: int) -> IntArray:
    """Distinct values of ceil(units / n) for n = 1..units, ascending.

    >>> balanced_splits(26).tolist()
    [1, 2, 3, 4, 5, 6, 7, 9, 13, 26]
    """
    return np.unique(-(-units // np.arange(1, units + 1, dtype=np.int64)))


@dataclass(frozen=True, eq=False)
class TileSpace:
    """The tile sizes of one kernel on one chip; a `DecisionSpace` of `TileSizes`.

    Attributes:
        nest: the lowered kernel.
        candidates: extents in native tiles that each loop may take, ascending, one array per loop.
        architecture: the chip, whose scratchpad limits what is legal.
    """

    nest: LoopNest
    candidates: tuple[IntArray, ...]
    architecture: Architecture

    @cached_property
    def radices(self) -> tuple[int, ...]:
        """Candidates per loop."""
        return tuple(len(c) for c in self.candidates)

    @property
    def size(self) -> int:
        """Tile sizes before the scratchpad is looked at; 1 for a kernel without loops."""
        return math.prod(self.radices)

    def extents(self, ids: IntArray) -> IntArray:
        """Loop extents of numbered tile sizes, int64 [n, num_loops]."""
        if not self.candidates:
            return np.zeros((len(ids), 0), dtype=np.int64)
        digits = np.unravel_index(ids, self.radices)
        return np.stack([c[d] for c, d in zip(self.candidates, digits, strict=True)], axis=1)

    def decode(self, ids: IntArray) -> TileSizes:
        """Numbered tile sizes as the bounds a compiler records."""
        return self.nest.tile_sizes(self.extents(ids))

    def encode(self, tile_sizes: TileSizes) -> IntArray:
        """Numbers of tile sizes: the inverse of `decode`.

        Raises:
            UnsupportedKernelError: for an extent that is no balanced split.
        """
        extents = self.nest.extents(tile_sizes)
        if not self.candidates:
            return np.zeros(len(extents), dtype=np.int64)
        digits = []
        for loop, candidates in enumerate(self.candidates):
            digit = np.minimum(np.searchsorted(candidates, extents[:, loop]), len(candidates) - 1)
            wrong = candidates[digit] != extents[:, loop]
            if wrong.any():
                raise UnsupportedKernelError(
                    f"extent {int(extents[wrong, loop][0])} of loop {loop}",
                    where=self.nest.kernel.module.name,
                    field="tile size",
                    expected=f"one of {candidates.tolist()}",
                )
            digits.append(digit)
        return np.ravel_multi_index(tuple(digits), self.radices).astype(np.int64)

    def legal(self, ids: IntArray) -> npt.NDArray[np.bool_]:
        """Whether the tiles fit the scratchpad; the one tile of a kernel without loops always does."""
        if not self.candidates or scratchpad_bound(self.nest) <= self.architecture.scratchpad_bytes:
            return np.ones(len(ids), dtype=bool)
        needed = scratchpad_bytes(self.nest, self.extents(ids))
        result: npt.NDArray[np.bool_] = needed <= self.architecture.scratchpad_bytes
        return result

    def number(self, extents: IntArray) -> int:
        """Number of the tile size with these loop extents, [num_loops], each one of its loop's candidates."""
        identifier = 0
        for candidates, extent in zip(self.candidates, extents, strict=True):
            identifier = identifier * len(candidates) + int(np.searchsorted(candidates, extent))
        return identifier

    @property
    def has_legal_tile(self) -> bool:
        """Whether any tile size fits the scratchpad."""
        smallest = np.zeros(1, dtype=np.int64)
        # Smaller tiles need less but for corner cases, in which all are looked at.
        return bool(self.legal(smallest)[0]) or len(self.sample(np.random.default_rng(0), 1)) > 0

    def legal_ids(self) -> IntArray:
        """Numbers of all legal tile sizes, ascending; for spaces that are to be enumerated."""
        found = [
            ids[self.legal(ids)]
            for start in range(0, self.size, _CHUNK)
            for ids in [np.arange(start, min(start + _CHUNK, self.size), dtype=np.int64)]
        ]
        return np.concatenate(found)

    def sample(self, rng: np.random.Generator, count: int) -> IntArray:
        """Up to `count` distinct legal numbers, ascending, drawn uniformly."""
        found = np.zeros(0, dtype=np.int64)
        # Drawing is cheaper than listing where few of many are wanted, unless hardly anything is legal.
        rounds = _SAMPLING_ROUNDS if self.size <= _MAX_LISTED else 8 * _SAMPLING_ROUNDS
        if self.size <= _LISTED_PER_DRAWN * count:
            rounds = 0
        for _ in range(rounds):
            drawn = rng.integers(self.size, size=2 * count, dtype=np.int64)
            fresh = np.setdiff1d(drawn, found)
            found = np.concatenate([found, rng.permutation(fresh[self.legal(fresh)])])
            if len(found) >= count:
                return np.sort(found[:count])
        if self.size > _MAX_LISTED:
            return np.sort(found)
        ids = self.legal_ids()
        return ids if len(ids) <= count else np.sort(rng.choice(ids, count, replace=False))

    def neighbours(self, identifier: int) -> IntArray:
        """Legal tile sizes in which one loop takes the next smaller or larger candidate."""
        digits = np.array(np.unravel_index(identifier, self.radices)) if self.candidates else np.zeros(0, int)
        found = []
        for loop, radix in enumerate(self.radices):
            for step in (-1, 1):
                if 0 <= digits[loop] + step < radix:
                    other = digits.copy()
                    other[loop] += step
                    found.append(int(np.ravel_multi_index(tuple(other), self.radices)))
        ids = np.array(sorted(found), dtype=np.int64)
        return ids[self.legal(ids)]


def tile_space(kernel: Kernel, architecture: Architecture) -> TileSpace:
    """Lowers a kernel and lists the candidates of its loops.

    Raises:
        UnsupportedKernelError: if the kernel cannot be lowered.
    """
    return nest_tile_space(loop_nest(kernel), architecture)


def nest_tile_space(nest: LoopNest, architecture: Architecture) -> TileSpace:
    """The same for a lowered kernel.

    Raises:
        UnsupportedKernelError: if there are too many tile sizes to number.
    """
    candidates = tuple(
        np.array([loop.units], dtype=np.int64) if loop.fixed else balanced_splits(loop.units)
        for loop in nest.loops
    )
    space = TileSpace(nest, candidates, architecture)
    if space.size >= _MAX_SIZE:
        raise UnsupportedKernelError(
            f"{space.size} tile sizes", where=nest.kernel.module.name, expected=f"fewer than {_MAX_SIZE}"
        )
    return space
