from __future__ import annotations

from math import comb

import numpy as np
import pytest

from costbench_schedules.crop.costs import average_latency, hit_probability, level_shares
from costbench_schedules.devices.processor import CacheLevel, Memory

SMALL = CacheLevel(kib=1, associativity=2, latency=4.0)  # 16 lines
LARGE = CacheLevel(kib=4, associativity=4, latency=10.0, shared=True)  # 64 lines
MEMORY = Memory(64, (SMALL, LARGE), 100.0, 5.0)


def equation_4(distance: int, ways: int, lines: int) -> float:
    return sum(
        comb(distance, a) * (ways / lines) ** a * ((lines - ways) / lines) ** (distance - a)
        for a in range(ways)
    )


@pytest.mark.parametrize("distance", [0, 1, 2, 3, 10, 16, 50, 400])
def test_hit_probability_is_equation_4(distance: int) -> None:
    probability = hit_probability(np.array([float(distance)]), SMALL)
    assert probability[0] == pytest.approx(equation_4(distance, 2, 16), rel=1e-12)


def test_direct_mapped_and_fully_associative_caches() -> None:
    direct = CacheLevel(kib=1, associativity=1, latency=4.0)
    assert hit_probability(np.array([3.0]), direct)[0] == pytest.approx((15 / 16) ** 3)
    full = CacheLevel(kib=1, associativity=1 << 16, latency=4.0)
    assert hit_probability(np.array([15.0, 16.0]), full).tolist() == [1.0, 0.0]


def test_first_accesses_miss() -> None:
    assert hit_probability(np.array([-1.0]), SMALL).tolist() == [0.0]


def test_shared_caches_are_divided() -> None:
    distances = np.array([20.0])
    alone, halved = hit_probability(distances, LARGE), hit_probability(distances, LARGE, sharers=2)
    assert alone[0] == pytest.approx(equation_4(20, 4, 64))
    assert halved[0] == pytest.approx(equation_4(20, 4, 32))


def test_levels_are_weighted_as_equation_6_does() -> None:
    distances = np.array([0.0, 12.0, 90.0, -1.0])
    shares = level_shares(distances, MEMORY)
    assert shares.sum(axis=1) == pytest.approx(np.ones(4))
    first, second = equation_4(12, 2, 16), equation_4(12, 4, 64)
    assert shares[1] == pytest.approx([first, (1 - first) * second, (1 - first) * (1 - second)])
    expected = first * 4.0 + (1 - first) * (second * 10.0 + (1 - second) * 100.0)
    assert average_latency(shares[1], MEMORY) == pytest.approx(expected)
    assert shares[3].tolist() == [0.0, 0.0, 1.0]
