"""The legal configurations of a kernel's tuning parameters, as a list that every strategy can search.

Restrictions of a tuning space (a block may have 1,024 threads, a tile must divide another one) are what the
list leaves out: a configuration is legal if it is on it. A decision is a row of indices of values, and its
number is its position in the list, so an array of measurements in the same order is a recorded table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from costbench.arrays import F64, I64, AnyInt, Bool
from costbench.search.space import Seen

_TRIES = 16
"""Mixtures of two parents that are tried for a legal child."""
_MIN_CHUNK = 64
_MAX_SMALL, _MAX_VALUES = 127, 1 << 15
"""Values of a parameter whose indices fit into int8, and into int16."""


class ParameterSpace:
    """Listed configurations of named parameters; a `SearchSpace` of rows int8 or int16 [n, m].

    A neighbour differs in one parameter.

    Args:
        parameters: values of each parameter by name, in order.
        listed: legal configurations as indices of values, [k, m], at least one, distinct.

    Attributes:
        parameters: values of each parameter by name.
        listed: legal configurations, [k, m]; int8 where all indices fit, for sets of rows are sets of bytes.

    Raises:
        ValueError: if there are none, two are equal, an index is none of a value, or a parameter has more
            than 32,768 values.
    """

    def __init__(self, parameters: Mapping[str, Sequence[Any]], listed: AnyInt) -> None:
        self.parameters = {name: tuple(values) for name, values in parameters.items()}
        for name, values in self.parameters.items():
            if len(values) > _MAX_VALUES:
                raise ValueError(f"{name} has {len(values):,} values, expected at most {_MAX_VALUES:,}")
        small = all(len(values) <= _MAX_SMALL for values in self.parameters.values())
        self.listed: AnyInt = np.ascontiguousarray(listed, dtype=np.int8 if small else np.int16)
        sizes = np.array([len(values) for values in self.parameters.values()])
        if not len(listed) or np.any(np.asarray(listed) < 0) or np.any(np.asarray(listed) >= sizes):
            raise ValueError("configurations are no indices of values, or there are none")
        codes = _codes(self.listed)
        self._order = np.argsort(codes, kind="stable")
        self._sorted = codes[self._order]
        if np.any(self._sorted[1:] == self._sorted[:-1]):
            raise ValueError("a configuration is listed twice")

    @property
    def size(self) -> int:
        """Returns the number of legal configurations."""
        return len(self.listed)

    @cached_property
    def columns(self) -> tuple[tuple[str, ...], F64]:
        """Returns names and float64 [k, d] of the parameters that vary, as models of costs read them.

        A number is itself, a tuple of numbers a column for each; any other value is a column of 0 and 1.
        """
        names: list[str] = []
        parts: list[F64] = []
        for indices, (name, values) in zip(self.listed.T, self.parameters.items(), strict=True):
            for suffix, column in _encode(values).items():
                encoded = column[indices]
                if np.ptp(encoded) > 0.0:
                    names.append(name + suffix)
                    parts.append(encoded)
        return tuple(names), np.stack(parts, axis=1) if parts else np.zeros((self.size, 0))

    def indices(self, rows: AnyInt) -> I64:
        """Returns the number of each configuration [n, m]; -1 for one that is not legal."""
        codes = _codes(np.asarray(rows))
        positions = np.minimum(np.searchsorted(self._sorted, codes), self.size - 1)
        return np.where(self._sorted[positions] == codes, self._order[positions], -1).astype(np.int64)

    def indices_of(self, other: ParameterSpace) -> I64:
        """Returns the number here of each configuration of another space, int64 [its size]; -1 without one.

        A configuration is the same if it has the same values by name. Parameters that one of the spaces lacks
        are ignored if they have one value there.
        """
        rows = np.full((other.size, len(self.parameters)), -1, dtype=np.int16)
        names = list(other.parameters)
        for column, (name, values) in enumerate(self.parameters.items()):
            if name in other.parameters:
                numbers = {value: index for index, value in enumerate(values)}
                translated = [numbers.get(value, -1) for value in other.parameters[name]]
                rows[:, column] = np.array(translated, dtype=np.int16)[other.listed[:, names.index(name)]]
            elif len(values) == 1:
                rows[:, column] = 0
        extra = [names.index(name) for name in other.parameters if name not in self.parameters]
        if np.any(np.ptp(other.listed[:, extra], axis=0)):
            rows[:] = -1
        return self.indices(rows)

    def legal(self, rows: AnyInt) -> Bool:
        """Returns whether each configuration is listed, bool [n]."""
        return self.indices(rows) >= 0

    def decode(self, rows: AnyInt) -> I64:
        """Returns the numbers of configurations, which is what recorded measurements are looked up by."""
        return self.indices(rows)

    def rows(self, numbers: Sequence[int] | I64) -> AnyInt:
        """Returns the configurations with these numbers, [n, m]."""
        return self.listed[np.asarray(numbers, dtype=np.int64)]

    def numbers(self, rows: AnyInt) -> list[int]:
        """Inverts `rows`."""
        return [int(number) for number in self.indices(rows).tolist()]

    def draw(self, rng: np.random.Generator, count: int, seen: Seen) -> AnyInt:
        """Returns up to `count` distinct configurations that are not in `seen`, in random order."""
        order = rng.permutation(self.size)
        parts, missing, chunk = [self.listed[:0]], count, max(_MIN_CHUNK, 2 * count)
        for start in range(0, self.size, chunk):
            rows = self.listed[order[start : start + chunk]]
            parts.append(rows[seen.fresh(rows)][:missing])
            missing -= len(parts[-1])
            if missing <= 0:
                break
        return np.concatenate(parts)

    @cached_property
    def neighbours(self) -> tuple[I64, I64]:
        """Returns offsets and numbers: the neighbours of i are numbers[offsets[i] : offsets[i + 1]]."""
        sources: list[I64] = [np.zeros(0, dtype=np.int64)]
        targets: list[I64] = [np.zeros(0, dtype=np.int64)]
        for parameter in range(self.listed.shape[1]):
            rest = np.delete(self.listed, parameter, axis=1)
            groups = np.unique(_codes(rest), return_inverse=True)[1]
            order = np.argsort(groups, kind="stable").astype(np.int64)
            counts = np.bincount(groups)
            first = np.cumsum(counts) - counts
            # All pairs within each group: a block of `counts` targets for every source.
            lengths = np.repeat(counts, counts)
            source = np.repeat(order, lengths)
            within = np.arange(len(source)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            target = order[np.repeat(np.repeat(first, counts), lengths) + within]
            apart = source != target
            sources.append(source[apart])
            targets.append(target[apart])
        source, target = np.concatenate(sources), np.concatenate(targets)
        order = np.argsort(source, kind="stable")
        offsets = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=self.size))])
        return offsets.astype(np.int64), target[order]

    def step(self, rows: AnyInt, rng: np.random.Generator) -> AnyInt:
        """Returns a random neighbour of each configuration; itself if it has none."""
        offsets, targets = self.neighbours
        numbers = self.indices(rows)
        counts = offsets[numbers + 1] - offsets[numbers]
        picks = offsets[numbers] + rng.integers(np.maximum(1, counts))
        moves = numbers.copy()
        moves[counts > 0] = targets[picks[counts > 0]]
        return self.listed[moves]

    def cross(self, first: AnyInt, second: AnyInt, rng: np.random.Generator) -> AnyInt:
        """Returns legal children with each value from one of the parents; the first parent if tries fail."""
        children = np.array(first, dtype=self.listed.dtype)
        left = np.arange(len(children))
        for _ in range(_TRIES):
            mixed = np.where(rng.random((len(left), children.shape[1])) < 0.5, first[left], second[left])
            legal = self.legal(mixed)
            children[left[legal]] = mixed[legal]
            left = left[~legal]
            if not len(left):
                break
        return children

    def choices(self, row: AnyInt) -> dict[str, Any]:
        """Returns the value of each parameter by name."""
        pairs = zip(self.parameters.items(), row.tolist(), strict=True)
        return {name: values[index] for (name, values), index in pairs}


def _codes(rows: AnyInt) -> np.ndarray[Any, np.dtype[np.bytes_]]:
    """Returns a sortable string of bytes for each row; equal if and only if the rows are."""
    width = max(1, rows.shape[1])
    # Trailing zeros do not count in a comparison; all strings are of one length, so nothing is lost.
    big_endian = np.zeros((len(rows), width), dtype=">i2")
    big_endian[:, : rows.shape[1]] = rows
    return big_endian.view(f"S{2 * width}")[:, 0]


def _encode(values: tuple[Any, ...]) -> dict[str, F64]:
    """Returns the columns of a parameter by suffix of their name, [number of values] each."""
    if all(isinstance(value, int | float) for value in values):
        return {"": np.array(values, dtype=np.float64)}
    tuples = [value for value in values if isinstance(value, tuple)]
    lengths = {len(value) for value in tuples}
    if len(tuples) == len(values) and len(lengths) == 1:
        table = np.array(values, dtype=np.float64)
        return {f"[{index}]": table[:, index] for index in range(table.shape[1])}
    return {f"={value}": np.array([float(value == other) for other in values]) for value in values}
