"""The schedules of an operator: one knob per decision, a schedule is one choice per knob.

As in autotvm2018 (section 3): multi-level tiling of every axis, loop order, caching, and annotations. Every
spatial axis is split into 4 levels S0 to S3 and every reduction axis into 2 levels R0 and R1, outermost
first. A configuration is a row of m integers, the index of the choice of each knob: these are the components
that equation 3 of the paper counts.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import numpy as np

from costbench.arrays import I16, I64, AnyInt, Bool
from costbench.errors import DataError
from costbench.search.space import Seen
from costbench_schedules.operators.operators import Axis, Operator

SPATIAL_LEVELS, REDUCE_LEVELS = 4, 2
_ENUMERATED = 1 << 13
"""Spaces up to this size are drawn from a list of what is left; larger ones by rejection."""
_IDLE_ROUNDS = 8
"""Draws in a row without anything new after which a large space is taken to be used up."""
Value = int | str | tuple[int, ...]

ORDERS: Mapping[str, tuple[str, ...]] = {
    "S0 S1 R0 S2 R1 S3": ("S0", "S1", "R0", "S2", "R1", "S3"),
    "S0 S1 R0 R1 S2 S3": ("S0", "S1", "R0", "R1", "S2", "S3"),
    "S0 S1 S2 R0 R1 S3": ("S0", "S1", "S2", "R0", "R1", "S3"),
    "S0 S1 S2 R0 S3 R1": ("S0", "S1", "S2", "R0", "S3", "R1"),
}
"""Orders of levels, outermost first. Within a level, axes are in the operator's order. What may be vectorised
is the last spatial axis in S3: the output's and mostly the weights' contiguous dimension."""

CACHES = ("none", "tile", "block")
"""Where sums are kept: in the output itself; in a buffer of what lies inside the spatial loops around the
reduction; in a buffer of what lies inside S0 (inside all loops that run in parallel, if these are more)."""

PARALLEL = ("none", "first", "S0", "S0 S1")
"""Loops that are fused and run in parallel: none, the first axis' S0, all S0, all S0 and S1."""

UNROLL = (0, 16, 64, 512)
"""Most statements that unrolled loops may become."""

PADDINGS = ("inline", "root", "tile")
"""Where zeros are added to an input: at each read, in a copy of all of it, or of what lies inside S1."""


@dataclass(frozen=True, slots=True)
class Knob:
    """One decision.

    Attributes:
        name: "tile AXIS", or what is decided.
        values: choices; factors, outermost first, for a tile.
    """

    name: str
    values: tuple[Value, ...]


@lru_cache(maxsize=1024)
def factorisations(extent: int, parts: int) -> tuple[tuple[int, ...], ...]:
    """Returns all ordered tuples of `parts` positive integers with product `extent`, ascending.

    >>> factorisations(4, 2)
    ((1, 4), (2, 2), (4, 1))
    """
    if parts == 1:
        return ((extent,),)
    divisors = [number for number in range(1, extent + 1) if extent % number == 0]
    return tuple((first, *rest) for first in divisors for rest in factorisations(extent // first, parts - 1))


def tile_name(axis: Axis) -> str:
    """Returns the name of the knob that splits an axis."""
    return f"tile {axis.name}"


def knobs_of(operator: Operator) -> tuple[Knob, ...]:
    """Returns the knobs of an operator: tiles in order of axes, then structure and annotations."""
    tiles = [
        Knob(tile_name(axis), factorisations(axis.extent, levels))
        for axes, levels in ((operator.spatial, SPATIAL_LEVELS), (operator.reduce, REDUCE_LEVELS))
        for axis in axes
    ]
    return (
        *tiles,
        Knob("order", tuple(ORDERS)),
        Knob("cache", CACHES),
        Knob("vectorize", (0, 1)),
        Knob("unroll", UNROLL),
        Knob("parallel", PARALLEL),
        Knob("padding", PADDINGS if operator.padding else ("none",)),
    )


class ScheduleSpace:
    """The schedules of an operator, or those left by a restriction; a `SearchSpace` of int64 [n, m].

    A neighbour has another choice for one knob, as in AutoTVM's own tuner.

    All combinations of choices can be compiled. Some are the same program, such as unrolling at most 16 or at
    most 64 statements where there are 8.

    Args:
        operator: operator that is scheduled.
        restrict: indices of the choices that remain, for some knobs.

    Attributes:
        operator: operator that is scheduled.
        knobs: knobs with the choices that remain.
        chosen: indices of these choices in the unrestricted space, for each knob.

    Raises:
        DataError: naming the knob, for an unknown one, or indices that are none, equal or not in it.
    """

    def __init__(self, operator: Operator, restrict: Mapping[str, Sequence[int]] | None = None) -> None:
        self.operator = operator
        full = knobs_of(operator)
        restrict_left = dict(restrict or {})
        chosen = [list(restrict_left.pop(knob.name, range(len(knob.values)))) for knob in full]
        if restrict_left:
            expected = ", ".join(knob.name for knob in full)
            raise DataError("no knob", where=operator.text, field=min(restrict_left), expected=expected)
        for knob, ids in zip(full, chosen, strict=True):
            if not ids or len(set(ids)) < len(ids) or min(ids) < 0 or max(ids) >= len(knob.values):
                expected = f"distinct indices from 0 to {len(knob.values) - 1}"
                raise DataError(f"choices {ids}", where=operator.text, field=knob.name, expected=expected)
        self.chosen = tuple(np.array(ids, dtype=np.int64) for ids in chosen)
        self.knobs = tuple(
            Knob(knob.name, tuple(knob.values[i] for i in ids.tolist()))
            for knob, ids in zip(full, self.chosen, strict=True)
        )

    @property
    def size(self) -> int:
        """Returns the number of configurations."""
        return prod(self.sizes.tolist())

    @cached_property
    def sizes(self) -> I64:
        """Returns the number of choices of each knob, int64 [m]."""
        return np.array([len(knob.values) for knob in self.knobs], dtype=np.int64)

    def full_rows(self, rows: AnyInt) -> I64:
        """Returns the same configurations as rows of the unrestricted space, int64 [n, m]."""
        columns = [ids[rows[:, knob]] for knob, ids in enumerate(self.chosen)]
        return np.stack(columns, axis=1) if len(rows) else np.empty((0, len(self.knobs)), dtype=np.int64)

    def rows(self, numbers: Sequence[int]) -> I64:
        """Returns the configurations with these numbers, int64 [n, m].

        Numbers are in mixed radix, the first knob most significant.
        """
        result = np.empty((len(numbers), len(self.knobs)), dtype=np.int64)
        rest = [int(number) for number in numbers]
        for knob in reversed(range(len(self.knobs))):
            radix = int(self.sizes[knob])
            result[:, knob] = [number % radix for number in rest]
            rest = [number // radix for number in rest]
        return result

    def numbers(self, rows: AnyInt) -> list[int]:
        """Inverts `rows`."""
        result = [0] * len(rows)
        for knob, radix in enumerate(self.sizes.tolist()):
            digits = rows[:, knob].tolist()
            result = [number * radix + digit for number, digit in zip(result, digits, strict=True)]
        return result

    def legal(self, configs: AnyInt) -> Bool:
        """Returns whether every index is one of its knob's, bool [n]."""
        inside: Bool = np.all((configs >= 0) & (configs < self.sizes), axis=1)
        return inside

    def sample(self, rng: np.random.Generator, count: int) -> I16:
        """Returns configurations drawn uniformly with replacement, int16 [count, m]."""
        return rng.integers(self.sizes, size=(count, len(self.knobs))).astype(np.int16)

    def decode(self, rows: AnyInt) -> I64:
        """Returns the configurations themselves."""
        return rows.astype(np.int64)

    def draw(self, rng: np.random.Generator, count: int, seen: Seen) -> I64:
        """Returns up to `count` distinct configurations not in `seen`, in random order.

        A space of more than 8,192 counts as exhausted after several draws without new ones.
        """
        if self.size <= _ENUMERATED:
            rows = self.rows(range(self.size))
            return rng.permutation(rows[seen.fresh(rows)])[:count]
        unique, parts, idle_rounds = Seen(), [self.rows([])], 0
        while len(unique) < count and idle_rounds < _IDLE_ROUNDS:
            samples = self.sample(rng, count - len(unique)).astype(np.int64)
            new = samples[seen.fresh(samples) & unique.fresh(samples)]
            idle_rounds = 0 if len(new) else idle_rounds + 1
            unique.add(new)
            parts.append(new)
        return np.concatenate(parts)

    def step(self, rows: AnyInt, rng: np.random.Generator) -> I64:
        """Returns each configuration with another choice for one random knob; itself if there is none."""
        moves = rows.astype(np.int64)
        free = np.flatnonzero(self.sizes > 1)
        if not len(free):
            return moves
        knobs = rng.choice(free, size=len(rows))
        sizes = self.sizes[knobs]
        indices = np.arange(len(rows))
        moves[indices, knobs] = (moves[indices, knobs] + rng.integers(1, sizes)) % sizes
        return moves

    def cross(self, first: AnyInt, second: AnyInt, rng: np.random.Generator) -> I64:
        """Returns children with the choice of each knob from one of the parents."""
        return np.where(rng.random(first.shape) < 0.5, first, second).astype(np.int64)

    def choices(self, row: AnyInt) -> dict[str, Value]:
        """Returns the choice of each knob by name."""
        return {knob.name: knob.values[int(i)] for knob, i in zip(self.knobs, row, strict=True)}

    def row_of(self, choices: Mapping[str, Value]) -> I64:
        """Inverts `choices`, int64 [m].

        Raises:
            DataError: naming the knob, if it has no or an unknown choice.
        """
        row = []
        for knob in self.knobs:
            value = choices.get(knob.name)
            if value not in knob.values:
                expected = "one of " + ", ".join(str(known) for known in itertools.islice(knob.values, 12))
                raise DataError(f"{value!r}", where=self.operator.text, field=knob.name, expected=expected)
            row.append(knob.values.index(value))
        return np.array(row, dtype=np.int64)

    def sub_space(self, choices: Mapping[str, Sequence[Value]]) -> ScheduleSpace:
        """Returns the space in which some knobs have only these choices.

        Raises:
            DataError: naming the knob, for an unknown knob or choice.
        """
        known = {knob.name: (knob, ids) for knob, ids in zip(self.knobs, self.chosen, strict=True)}
        restrict = {knob.name: ids.tolist() for knob, ids in known.values()}
        for name, values in choices.items():
            if name not in known:
                raise DataError("no knob", where=self.operator.text, field=name, expected=", ".join(known))
            knob, ids = known[name]
            for value in values:
                if value not in knob.values:
                    raise DataError(
                        f"{value!r}", where=self.operator.text, field=name, expected="a choice of the knob"
                    )
            restrict[name] = [int(ids[knob.values.index(value)]) for value in values]
        return ScheduleSpace(self.operator, restrict)
