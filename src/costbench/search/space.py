"""A common interface to all decision spaces, used by search strategies: decisions are rows of integers.

Tile sizes of a kernel are numbered (`DecisionSpace`); fusion and layout decisions about a program are vectors
of choices (`VectorSpace`). Here a decision is a row [m] of integers, m = 1 for the former, and every row has
a number, so a trace can hold any of them. Rows of one space are equal if and only if their bytes are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, Protocol, TypeVar

import numpy as np

from costbench.arrays import F64, I16, I64, AnyInt, Bool
from costbench.compiler.spaces import DecisionSpace, VectorSpace

Rows = AnyInt
"""Decisions, integers [n, m]."""
Decisions_co = TypeVar("Decisions_co", covariant=True)
Decisions = TypeVar("Decisions")
Proposals = Generator[Rows, F64, None]
"""Batches of decisions to score; each is answered by its scores."""

_KEY_BYTES = 16
_MAX_IDLE_DRAWS = 8
"""Draws in a row without anything new after which a large space is taken to be used up."""
_MAX_ENUMERATED_BITS = 16
"""Spaces up to this size in bits are enumerated when random draws find nothing new."""


class Seen:
    """A set of rows of one space."""

    def __init__(self, rows: Rows | None = None) -> None:
        self._keys: set[bytes] = set()
        if rows is not None:
            self.add(rows)

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, rows: Rows) -> None:
        """Adds rows to the set."""
        self._keys.update(keys(rows))

    def fresh(self, rows: Rows) -> Bool:
        """Returns which of [n, m] are not in the set and are the first of equal ones in `rows`, bool [n]."""
        batch: set[bytes] = set()
        is_fresh = np.zeros(len(rows), dtype=bool)
        for index, key in enumerate(keys(rows)):
            if key not in self._keys and key not in batch:
                batch.add(key)
                is_fresh[index] = True
        return is_fresh

    def take_fresh(self, rows: Rows) -> Rows:
        """Returns the rows for which `fresh` is true and adds them to the set."""
        new = rows[self.fresh(rows)]
        self.add(new)
        return new


def keys(rows: Rows) -> list[bytes]:
    """Returns the bytes of each row, or a digest of long ones, to save memory: a search keeps all keys."""
    if rows.shape[1] * rows.itemsize <= _KEY_BYTES:
        return [row.tobytes() for row in rows]
    return [hashlib.blake2b(row.tobytes(), digest_size=_KEY_BYTES).digest() for row in rows]


class SearchSpace(Protocol[Decisions_co]):
    """The operations on a decision space that strategies use."""

    @property
    def size(self) -> int:
        """Returns how many numbers there are (a Python int of any size); not every number need be legal."""
        ...

    def legal(self, rows: Rows) -> Bool:
        """Returns whether each decision can be compiled, bool [n]."""
        ...

    def decode(self, rows: Rows) -> Decisions_co:
        """Returns the decisions in the form that evaluators take."""
        ...

    def rows(self, numbers: Sequence[int]) -> Rows:
        """Returns the decisions with these numbers."""
        ...

    def numbers(self, rows: Rows) -> list[int]:
        """Returns the numbers of decisions, the inverse of `rows`."""
        ...

    def draw(self, rng: np.random.Generator, count: int, seen: Seen) -> Rows:
        """Returns up to `count` distinct legal decisions not in `seen`, in random order; none if all are."""
        ...

    def step(self, rows: Rows, rng: np.random.Generator) -> Rows:
        """Returns a random legal neighbour of each decision, or the decision itself where it has none."""
        ...

    def cross(self, first: Rows, second: Rows, rng: np.random.Generator) -> Rows:
        """Returns a legal child of each pair of parents."""
        ...


@dataclass(frozen=True, eq=False)
class NumberedSearchSpace(Generic[Decisions]):
    """A `SearchSpace` of numbered decisions, int64 [n, 1].

    Attributes:
        space: space of the decisions.
        radices: number of choices at each digit if numbers are in mixed radix (first digit most significant);
            crossover then takes each digit from one of the parents. If empty, a child equals one parent.
    """

    space: DecisionSpace[Decisions]
    radices: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Returns how many numbers there are."""
        return self.space.size

    def legal(self, rows: Rows) -> Bool:
        """Returns whether each number is in the space and can be compiled."""
        ids = _ids(rows)
        is_legal = (ids >= 0) & (ids < self.size)
        is_legal[is_legal] = self.space.legal(ids[is_legal])
        return is_legal

    def decode(self, rows: Rows) -> Decisions:
        """Returns the decisions as the space does."""
        return self.space.decode(_ids(rows))

    def rows(self, numbers: Sequence[int]) -> Rows:
        """Returns the numbers themselves."""
        return np.array(numbers, dtype=np.int64).reshape(-1, 1)

    def numbers(self, rows: Rows) -> list[int]:
        """Returns the numbers themselves."""
        return [int(number) for number in _ids(rows).tolist()]

    def draw(self, rng: np.random.Generator, count: int, seen: Seen) -> Rows:
        """Returns new numbers; none once every legal one is in `seen`."""
        # Of len(seen) + count distinct decisions at least `count` are new.
        rows = self.space.sample(rng, len(seen) + count).reshape(-1, 1)
        return rng.permutation(rows[seen.fresh(rows)])[:count]

    def step(self, rows: Rows, rng: np.random.Generator) -> Rows:
        """Returns one of the space's neighbours of each decision."""
        moves = rows.copy()
        for index, number in enumerate(_ids(rows).tolist()):
            neighbours = self.space.neighbours(number)
            if len(neighbours):
                moves[index, 0] = rng.choice(neighbours)
        return moves

    def cross(self, first: Rows, second: Rows, rng: np.random.Generator) -> Rows:
        """Returns children with digits mixed at random; the first parent where that is not legal."""
        if not self.radices:
            return first
        parents = [np.array(np.unravel_index(_ids(rows), self.radices)) for rows in (first, second)]
        mixed = np.where(rng.random(parents[0].shape) < 0.5, *parents)
        children = np.ravel_multi_index(tuple(mixed), self.radices).astype(np.int64).reshape(-1, 1)
        return np.where(self.legal(children)[:, None], children, first)


@dataclass(frozen=True, eq=False)
class VectorSearchSpace:
    """A `SearchSpace` of vectors of choices, int16 [n, m].

    The number of a vector is its choices written one after another, each in as many bits as it needs.

    Attributes:
        space: space of the decisions.
    """

    space: VectorSpace

    @property
    def size(self) -> int:
        """Returns two to the power of the total number of bits."""
        return 1 << len(self._positions)

    @cached_property
    def _widths(self) -> I64:
        """Returns the number of bits of each choice."""
        return np.array([max(1, int(n - 1).bit_length()) for n in self.space.num_choices], dtype=np.int64)

    @cached_property
    def _positions(self) -> I64:
        """Returns the choice that each bit belongs to, most significant first."""
        return np.repeat(np.arange(len(self._widths)), self._widths)

    @cached_property
    def _shifts(self) -> I64:
        """Returns the exponent of each bit within its choice."""
        ends = np.repeat(np.cumsum(self._widths), self._widths)
        return np.asarray(ends - 1 - np.arange(len(self._positions)), dtype=np.int64)

    def legal(self, rows: Rows) -> Bool:
        """Returns whether each vector is legal, as the space says."""
        return self.space.legal(rows.astype(np.int16))

    def decode(self, rows: Rows) -> I16:
        """Returns the vectors themselves."""
        return rows.astype(np.int16)

    def rows(self, numbers: Sequence[int]) -> Rows:
        """Returns vectors from their numbers."""
        count = len(self._positions)
        num_bytes = -(-count // 8)
        packed = b"".join(int(number).to_bytes(num_bytes, "big") for number in numbers)
        table = np.frombuffer(packed, dtype=np.uint8).reshape(len(numbers), num_bytes)
        bits = np.unpackbits(table, axis=1)[:, 8 * num_bytes - count :].astype(np.int64) << self._shifts
        if not count:
            return np.zeros((len(numbers), 0), dtype=np.int16)
        starts = np.cumsum(self._widths) - self._widths
        return np.add.reduceat(bits, starts, axis=1).astype(np.int16)

    def numbers(self, rows: Rows) -> list[int]:
        """Returns numbers of vectors."""
        bits = rows if len(self._positions) == rows.shape[1] else rows[:, self._positions] >> self._shifts & 1
        padding = np.zeros((len(rows), -len(self._positions) % 8), dtype=np.uint8)
        packed = np.packbits(np.concatenate([padding, bits.astype(np.uint8)], axis=1), axis=1)
        return [int.from_bytes(row.tobytes(), "big") for row in packed]

    def draw(self, rng: np.random.Generator, count: int, seen: Seen) -> Rows:
        """Returns new vectors; a large space counts as exhausted after several draws without new ones."""
        proposed = Seen()
        batches: list[Rows] = []
        idle = 0
        while len(proposed) < count and idle < _MAX_IDLE_DRAWS:
            rows = self.space.sample(rng, count - len(proposed))
            new = rows[seen.fresh(rows) & proposed.fresh(rows) & self.legal(rows)]
            idle = 0 if len(new) else idle + 1
            proposed.add(new)
            batches.append(new)
        if not len(proposed) and len(self._positions) <= _MAX_ENUMERATED_BITS:
            rows = self.rows(range(self.size))
            rows = rows[self.legal(rows)]
            return rng.permutation(rows[seen.fresh(rows)])[:count]
        return np.concatenate([self.rows([]), *batches])

    def step(self, rows: Rows, rng: np.random.Generator) -> Rows:
        """Returns one of the space's neighbours of each decision."""
        moves = [self.space.neighbours(row, rng, 1) for row in rows.astype(np.int16)]
        return np.array(
            [move[0] if len(move) else row for move, row in zip(moves, rows, strict=True)], dtype=np.int16
        ).reshape(rows.shape)

    def cross(self, first: Rows, second: Rows, rng: np.random.Generator) -> Rows:
        """Returns children by the space's own crossover."""
        pairs = zip(first.astype(np.int16), second.astype(np.int16), strict=True)
        children = [self.space.crossover(*parents, rng) for parents in pairs]
        return np.array(children, dtype=np.int16).reshape(first.shape)


def _ids(rows: Rows) -> I64:
    return np.ascontiguousarray(rows[:, 0], dtype=np.int64)
