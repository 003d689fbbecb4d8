"""The space of tile sizes of a kernel, and of many kernels of one computation.

It has balanced splits of every loop, without those that overflow the scratchpad. Many kernels stand with
their spaces for models that price them in one call.

A loop of D native tiles may be cut into n = 1..D parts of ceil(D/n); only such balanced extents are tried
(tpugraphs2023, section 3, and the recorded runs of the real machine). The space is the full cross product
over the loops, numbered in C order with the first loop most significant, so a tile size is one integer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from costbench.arrays import F64, I64, U64, Bool
from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.iteration_space import Loop
from costbench.compiler.lowering.loop_nest import LoopNest, LoweredKernels, loop_nest
from costbench.compiler.lowering.lower import Nests
from costbench.compiler.lowering.packed import bound_bytes, unpacked
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_footprint import new_tile, row_bytes
from costbench.errors import SpaceTooLargeError, UnsupportedKernelError
from costbench.execution.compiled import compiled, compiled_step
from costbench.target import Architecture

_CHUNK = 1 << 18
MAX_SIZE = 1 << 62
"""Limit on the number of tile sizes of a kernel, since a number must fit in int64."""
MAX_UNITS = 1 << 32
"""Limit on the native tiles along a loop, which has 131,071 candidates then: 16 TiB of 4 KiB each."""
MAX_LISTED = 1 << 24
"""Limit on the tile sizes that are listed, 128 MiB of numbers; larger spaces are sampled."""
_LIST_RATHER_THAN_DRAW = 1 << 22
_FEW_DRAWS, _MANY_DRAWS = (2, 16), 64
"""Draws for each sample that is wanted, before giving up."""
_EMPTY = np.int64(-1)


@lru_cache(maxsize=4096)
def balanced_splits(units: int) -> I64:
    """Returns the distinct values of ceil(units / n) for n = 1..units, ascending, at most 2 sqrt(units) + 1.

    The array is cached and read-only.

    >>> balanced_splits(26).tolist()
    [1, 2, 3, 4, 5, 6, 7, 9, 13, 26]
    """
    # ceil(units / n) is (units - 1) // n + 1. Values of m // n are those for n up to the root of m, and the
    # numbers from 0 to that root.
    last = max(0, units - 1)
    parts = np.arange(1, math.isqrt(last) + 1, dtype=np.int64)
    splits = 1 + np.unique(np.concatenate([parts - 1, parts, last // parts, np.array([last])]))
    splits = splits[:units]  # a loop of no tiles has no splits
    splits.flags.writeable = False
    return splits


def loop_candidates(loop: Loop) -> I64:
    """Returns the extents in native tiles of a loop, ascending: balanced splits, or all of a fixed loop."""
    return np.array([loop.units], dtype=np.int64) if loop.fixed else balanced_splits(loop.units)


class Candidates(NamedTuple):
    """Extents that each loop may take, loops end to end.

    Attributes:
        values: int64, ascending for each loop.
        offsets: int64 [num_loops + 1], where each loop's begin.
    """

    values: I64
    offsets: I64


@dataclass(frozen=True, eq=False)
class TileSpace:
    """The tile sizes of one kernel on one chip; a `DecisionSpace` of `TileSizes`.

    Attributes:
        nest: the lowered kernel.
        candidates: extents in native tiles that each loop may take, ascending, one array per loop.
        architecture: the chip, whose scratchpad limits what is legal.
    """

    nest: LoopNest
    candidates: tuple[I64, ...]
    architecture: Architecture

    def __repr__(self) -> str:
        """Returns the kernel and the number of tile sizes."""
        return f"TileSpace({self.nest.kernel!r}, {self.size:,} tile sizes)"

    @cached_property
    def radices(self) -> tuple[int, ...]:
        """Returns the number of candidates per loop."""
        return tuple(len(c) for c in self.candidates)

    @cached_property
    def size(self) -> int:
        """Returns the number of tile sizes, legal or not; 1 for a kernel without loops."""
        return math.prod(self.radices)

    @cached_property
    def packed(self) -> Candidates:
        """Returns the candidates as compiled code reads them."""
        offsets = [0]
        for radix in self.radices:
            offsets.append(offsets[-1] + radix)
        values = np.concatenate(self.candidates) if self.candidates else np.zeros(0, dtype=np.int64)
        return Candidates(values, np.array(offsets, dtype=np.int64))

    @property
    def limit_bytes(self) -> float:
        """Returns the scratchpad that a tile may take; infinite if all tiles fit, so no check is needed."""
        available = float(self.architecture.scratchpad_bytes)
        return float(needed_limit(self.nest.words, self.packed, available))

    def smaller(self, extents: I64) -> I64 | None:
        """Returns the extents whose longest loop is cut one step more, [num_loops]; None if it cannot be."""
        if not len(extents):
            return None
        loop = int(np.argmax(extents))
        shorter = self.candidates[loop][self.candidates[loop] < extents[loop]]
        if not len(shorter):
            return None
        result = extents.copy()
        result[loop] = shorter[-1]
        return result

    def extents(self, ids: I64) -> I64:
        """Returns loop extents of numbered tile sizes, int64 [n, num_loops]."""
        return _extents(self.packed, np.ascontiguousarray(ids))

    def decode(self, ids: I64) -> TileSizes:
        """Returns numbered tile sizes as the bounds a compiler records."""
        return self.nest.tile_sizes(self.extents(ids))

    def encode(self, tile_sizes: TileSizes) -> I64:
        """Returns the numbers of tile sizes: the inverse of `decode`.

        Raises:
            UnsupportedKernelError: for an extent that is no balanced split.
        """
        extents = self.nest.extents(tile_sizes)
        if not self.candidates:
            return np.zeros(len(extents), dtype=np.int64)
        digits = []
        for loop, candidates in enumerate(self.candidates):
            digit = np.minimum(np.searchsorted(candidates, extents[:, loop]), len(candidates) - 1)
            is_wrong = candidates[digit] != extents[:, loop]
            if is_wrong.any():
                raise UnsupportedKernelError(
                    f"extent {int(extents[is_wrong, loop][0])} of loop {loop}",
                    where=self.nest.kernel.module.name,
                    field="tile size",
                    expected=f"one of {candidates.tolist()}",
                )
            digits.append(digit)
        return np.ravel_multi_index(tuple(digits), self.radices).astype(np.int64)

    def legal(self, ids: I64) -> Bool:
        """Returns whether the tiles fit the scratchpad; the only tile of a kernel without loops does."""
        limit = self.limit_bytes
        if limit == math.inf:
            return np.ones(len(ids), dtype=bool)
        return _legal(self.nest.words, self.packed, np.ascontiguousarray(ids), limit)

    def number(self, extents: I64) -> int:
        """Returns the number of the tile size with loop extents [num_loops], each a candidate of its loop."""
        return int(number_of(self.packed, extents))

    @property
    def has_legal_tile(self) -> bool:
        """Returns whether any tile size fits the scratchpad."""
        smallest = np.zeros(1, dtype=np.int64)
        # The smallest tile nearly always needs least; if it does not fit, legal ones are searched for.
        return bool(self.legal(smallest)[0]) or len(self.sample(np.random.default_rng(0), 1)) > 0

    def legal_ids(self) -> I64:
        """Returns the numbers of all legal tile sizes, ascending; for spaces that are to be enumerated.

        Raises:
            SpaceTooLargeError: for more than `MAX_LISTED` tile sizes, which can only be sampled.
        """
        if self.size > MAX_LISTED:
            raise _too_large(
                self.nest, f"{self.size} tile sizes to list", f"at most {MAX_LISTED}, or a sample"
            )
        chunks = [
            ids[self.legal(ids)]
            for start in range(0, self.size, _CHUNK)
            for ids in [np.arange(start, min(start + _CHUNK, self.size), dtype=np.int64)]
        ]
        return np.concatenate(chunks)

    def sample(self, rng: np.random.Generator, count: int) -> I64:
        """Returns up to `count` distinct legal numbers, ascending, drawn uniformly.

        Raises:
            SpaceTooLargeError: for a space and a count that are both above `MAX_LISTED`.
        """
        if self.size <= count:
            return self.legal_ids()
        if count > MAX_LISTED:
            raise _too_large(self.nest, f"a sample of {count} tile sizes", f"at most {MAX_LISTED}")
        words, candidates, limit = self.nest.words, self.packed, self.limit_bytes
        # Where few tile sizes are legal, listing them all is cheaper than more draws.
        tries = _FEW_DRAWS if self.size <= _LIST_RATHER_THAN_DRAW else (*_FEW_DRAWS, _MANY_DRAWS)
        for per_sample in tries:
            draws = min(self.size, per_sample * count)
            raw = rng.integers(2**64, size=draws, dtype=np.uint64)
            ids = np.sort(_draw(words, candidates, raw, limit, count))
            if len(ids) == count or draws == self.size or per_sample == _MANY_DRAWS:
                return ids
        ids = self.legal_ids()
        return ids if len(ids) <= count else np.sort(rng.choice(ids, count, replace=False))

    def neighbours(self, identifier: int) -> I64:
        """Returns the legal tile sizes in which one loop takes the next smaller or larger candidate."""
        digits = np.array(np.unravel_index(identifier, self.radices)) if self.candidates else np.zeros(0, int)
        numbers = []
        for loop, radix in enumerate(self.radices):
            for step in (-1, 1):
                if 0 <= digits[loop] + step < radix:
                    other = digits.copy()
                    other[loop] += step
                    numbers.append(int(np.ravel_multi_index(tuple(other), self.radices)))
        ids = np.array(sorted(numbers), dtype=np.int64)
        return ids[self.legal(ids)]


def tile_space(kernel: Kernel, architecture: Architecture) -> TileSpace:
    """Lowers a kernel and lists the candidates of its loops.

    Raises:
        UnsupportedKernelError: if the kernel cannot be lowered.
    """
    return nest_tile_space(loop_nest(kernel), architecture)


def nest_tile_space(nest: LoopNest, architecture: Architecture) -> TileSpace:
    """Returns what `tile_space` does, for a kernel that is already lowered.

    Raises:
        SpaceTooLargeError: for a loop of more than `MAX_UNITS` native tiles, or `MAX_SIZE` tile sizes.
    """
    for number, loop in enumerate(nest.loops):
        if loop.units > MAX_UNITS:
            raise _too_large(nest, f"{loop.units} native tiles along loop {number}", f"at most {MAX_UNITS}")
    space = TileSpace(nest, tuple(map(loop_candidates, nest.loops)), architecture)
    if space.size >= MAX_SIZE:
        raise _too_large(nest, f"{space.size} tile sizes", f"fewer than {MAX_SIZE}")
    return space


def _too_large(nest: LoopNest, problem: str, expected: str) -> SpaceTooLargeError:
    kernel = nest.kernel
    return SpaceTooLargeError(
        problem,
        where=kernel.module.name,
        field=f"kernel of {kernel.instruction(kernel.outputs[0]).name}",
        expected=expected,
    )


@compiled_step
def set_extents(candidates: Candidates, number: int, extents: I64) -> None:
    """Fills in the loop extents [num_loops] of a numbered tile size."""
    for loop in range(len(extents) - 1, -1, -1):
        radix = candidates.offsets[loop + 1] - candidates.offsets[loop]
        rest = number // radix
        extents[loop] = candidates.values[candidates.offsets[loop] + number - rest * radix]
        number = rest


@compiled
def number_of(candidates: Candidates, extents: I64) -> int:
    """Returns the number of the tile size with these loop extents, each a candidate of its loop."""
    number = 0
    for loop in range(len(candidates.offsets) - 1):
        first, end = candidates.offsets[loop], candidates.offsets[loop + 1]
        index = first
        while index < end - 1 and candidates.values[index] < extents[loop]:
            index += 1
        number = number * (end - first) + (index - first)
    return number


@compiled
def needed_limit(words: F64, candidates: Candidates, available: float) -> float:
    """Returns the scratchpad that a tile may take; infinite if all tiles fit, so no check is needed."""
    return np.inf if len(candidates.offsets) == 1 or bound_bytes(words) <= available else available


@compiled
def _extents(candidates: Candidates, ids: I64) -> I64:
    result = np.empty((len(ids), len(candidates.offsets) - 1), dtype=np.int64)
    for i in range(len(ids)):
        set_extents(candidates, ids[i], result[i])
    return result


@compiled
def _legal(words: F64, candidates: Candidates, ids: I64, limit_bytes: float) -> Bool:
    nest = unpacked(words)
    result = np.empty(len(ids), dtype=np.bool_)
    extents, tile = np.empty(len(nest.loops), dtype=np.int64), new_tile(nest)
    for i in range(len(ids)):
        set_extents(candidates, ids[i], extents)
        result[i] = row_bytes(nest, extents, tile) <= limit_bytes
    return result


@compiled
def _draw(
    words: F64,
    candidates: Candidates,
    raw: U64,
    limit_bytes: float,
    count: int,
) -> I64:
    """Returns up to `count` legal numbers from `len(raw)` draws without replacement.

    The draws are the first elements of a random permutation (Fisher-Yates shuffle); a hash table stores only
    the elements that have moved. Numbers of a space of N are equally likely to N / 2^64.
    """
    nest = unpacked(words)
    size = 1
    for loop in range(len(nest.loops)):
        size *= candidates.offsets[loop + 1] - candidates.offsets[loop]
    slots = 4
    while slots < 4 * len(raw):
        slots *= 2
    keys, moved = np.full(slots, _EMPTY), np.empty(slots, dtype=np.int64)
    extents, tile = np.empty(len(nest.loops), dtype=np.int64), new_tile(nest)
    ids = np.empty(count, dtype=np.int64)
    num_ids = 0
    for i in range(len(raw)):
        position = i + int(raw[i] % np.uint64(size - i))
        slot, front_slot = _slot(keys, position), _slot(keys, i)
        number = int(moved[slot]) if keys[slot] == position else position
        keys[slot] = position
        moved[slot] = moved[front_slot] if keys[front_slot] == i else i
        set_extents(candidates, number, extents)
        if limit_bytes == np.inf or row_bytes(nest, extents, tile) <= limit_bytes:
            ids[num_ids] = number
            num_ids += 1
            if num_ids == count:
                break
    return ids[:num_ids].copy()


@compiled_step
def _slot(keys: I64, key: int) -> int:
    """Returns the slot of a key in an open-addressing table, or where it would be inserted."""
    mask = len(keys) - 1
    slot = (key * 0x9E3779B1) & mask
    while keys[slot] != _EMPTY and keys[slot] != key:
        slot = (slot + 1) & mask
    return slot


# ---- many kernels of one computation ---------------------------------------------------------------------


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
        spaces, is_numbered = [], []
        for space in self.lowered.spaces:
            is_short = all(loop.units <= MAX_UNITS for loop in space.loops)
            loops = [loop_candidates(loop) for loop in space.loops] if is_short else []
            is_numbered.append(is_short and math.prod(map(len, loops)) < MAX_SIZE)
            spaces.append(loops if is_numbered[-1] else [])
        candidates = [extents for loops in spaces for extents in loops]
        return SpaceCandidates(
            np.cumsum([0, *map(len, spaces)], dtype=np.int64),
            np.concatenate([np.zeros(0, dtype=np.int64), *candidates]),
            np.cumsum([0, *map(len, candidates)], dtype=np.int64),
            np.array(is_numbered, dtype=np.bool_),
        )

    @cached_property
    def max_loops(self) -> int:
        """Returns the largest number of loops of an iteration space."""
        return max((len(space.loops) for space in self.lowered.spaces), default=0)

    def smallest_fits(self, limit_bytes: float) -> Bool:
        """Returns whether the smallest tile size of each kernel fits a scratchpad, [k].

        It is False for a kernel whose tile sizes are too many to be numbered.
        """
        return _smallest_fits(self.lowered.nests, self.candidates, limit_bytes)

    def numbered(self, chosen: I64, extents: I64) -> tuple[I64, I64]:
        """Returns the numbers [m] of tile sizes in their spaces, and the spaces' sizes [m].

        Args:
            chosen: numbers of the kernels, [m].
            extents: extents of their loops, [m, max_loops].
        """
        return _numbered(self.lowered.nests, self.candidates, chosen, extents)


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
