"""Sub-spaces small enough to measure completely, with good schedules inside: what recorded tables are of.

A random schedule of the full space is an order of magnitude slower than the best, and two of them are hardly
ever neighbours. A sub-space has few choices per knob. Among them are those of hand-written kernels: a vector
of one to four registers in the innermost loop, some rows beside it so that sums stay in registers, one level
of cache tiles around them. So are their opposites, or there would be nothing to find out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log, prod

from costbench.arrays import I64
from costbench.errors import DataError
from costbench_schedules.operators.operators import Axis, Operator, parse_operator
from costbench_schedules.spaces.space import CACHES, ORDERS, PADDINGS, ScheduleSpace, Value, tile_name

MAX_SIZE = 4_000
"""Most configurations of a sub-space."""


@dataclass(frozen=True)
class _Preference:
    """Choices of a knob, the preferred first.

    Attributes:
        values: choices that the sub-space may have.
        keep: number of choices that stay at least.
    """

    values: tuple[Value, ...]
    keep: int


def recorded_space(operator: Operator, limit: int = MAX_SIZE) -> ScheduleSpace:
    """Returns a sub-space of at most `limit` configurations.

    The choices of a smaller limit are among those of a larger one.

    Raises:
        DataError: if the limit is below what the rules keep.
    """
    preferences = _preferences(operator)
    counts = {name: len(preference.values) for name, preference in preferences.items()}
    while prod(counts.values()) > limit:
        name = max(
            preferences,
            key=lambda knob: counts[knob] / min(preferences[knob].keep, len(preferences[knob].values)),
        )
        if counts[name] <= preferences[name].keep:
            expected = f"at least {prod(counts.values())}"
            raise DataError(f"a limit of {limit} configurations", where=operator.text, expected=expected)
        counts[name] -= 1
    return ScheduleSpace(operator).sub_space(
        {name: preference.values[: counts[name]] for name, preference in preferences.items()}
    )


def recorded_schedule(workload: str, number: int, limit: int = MAX_SIZE) -> tuple[ScheduleSpace, I64]:
    """Returns the sub-space of a workload, and one of its configurations, int64 [m].

    Raises:
        ChoiceError: for an unknown workload.
        DataError: for a number that no configuration has, or see `recorded_space`.
    """
    space = recorded_space(parse_operator(workload), limit)
    if not 0 <= number < space.size:
        raise DataError(f"no configuration {number}", where=workload, expected=f"a number below {space.size}")
    return space, space.rows([number])[0]


def _preferences(operator: Operator) -> Mapping[str, _Preference]:
    real = [axis for axis in operator.spatial if axis.extent > 1] or operator.spatial[-1:]
    preferences: dict[str, _Preference] = {}
    for axis in operator.spatial:
        if axis is real[-1]:
            preferences[tile_name(axis)] = _tiles(
                axis, ((1, 32), (1, 8), (4, 16), (1, 64), (1, 16), (2, 2)), 3
            )
        elif len(real) > 1 and axis is real[-2]:
            preferences[tile_name(axis)] = _tiles(axis, ((1, 8), (1, 1), (4, 4), (1, 28), (1, 4), (2, 2)), 4)
        else:
            preferences[tile_name(axis)] = _tiles(axis, ((1, 1), (4, 1), (1, 2)), 1)
    for axis in operator.reduce:
        largest = axis.extent == max(other.extent for other in operator.reduce)
        inner = (4, axis.extent, 64) if largest else (1, axis.extent)
        preferences[tile_name(axis)] = _Preference(_divisions(axis, inner), 2 if largest else 1)
    orders = tuple(ORDERS)
    preferences["order"] = _Preference((orders[2], orders[3], orders[0], orders[1]), 3)
    preferences["cache"] = _Preference((CACHES[1], CACHES[0]), 2)
    preferences["vectorize"] = _Preference((1, 0), 2)
    preferences["unroll"] = _Preference((512, 0, 16, 64), 2)
    preferences["parallel"] = _Preference(("none",), 1)
    if operator.padding:
        preferences["padding"] = _Preference((PADDINGS[1], PADDINGS[0], PADDINGS[2]), 2)
    return preferences


def _tiles(axis: Axis, inner: Iterable[tuple[int, int]], keep: int) -> _Preference:
    """Returns tiles of a spatial axis with extents of S2 and S3 near those wanted."""
    tiles: list[Value] = []
    for second, third in inner:
        innermost = _nearest(axis.extent, third)
        above = _nearest(axis.extent // innermost, second)
        tile = (axis.extent // innermost // above, 1, above, innermost)
        if tile not in tiles:
            tiles.append(tile)
    return _Preference(tuple(tiles), min(keep, len(tiles)))


def _divisions(axis: Axis, inner: Iterable[int]) -> tuple[Value, ...]:
    divisions = [(axis.extent // size, size) for size in (_nearest(axis.extent, target) for target in inner)]
    return tuple(dict.fromkeys(divisions))


def _nearest(extent: int, wanted: int) -> int:
    """Returns the divisor of an extent with the smallest ratio to what is wanted, the larger of two."""
    divisors = [number for number in range(1, extent + 1) if extent % number == 0]
    return min(divisors, key=lambda number: (abs(log(number / wanted)), -number))
