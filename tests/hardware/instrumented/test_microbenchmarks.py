"""Costs of operations on this machine: what holds on every processor, even one that is busy."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.errors import DataError
from costbench.hardware.instrumented.description import cache_facts
from costbench.hardware.instrumented.engine import Compiled
from costbench.hardware.instrumented.microbenchmarks import (
    FORMS,
    _loop,
    fastest,
    forwarding_latency,
    lane_access,
    operation_times,
)


@pytest.mark.parametrize("kind", FORMS)
def test_chains_take_no_less_than_work_side_by_side(kind: str) -> None:
    found = operation_times(kind, 64 if kind.startswith("integer") else 128)
    assert 0.0 < found.inverse <= 1.2 * found.latency


def test_a_division_takes_longer_than_an_addition() -> None:
    assert operation_times("divide", 128).latency > 1.5 * operation_times("add", 128).latency


def test_more_lanes_take_longer_to_gather() -> None:
    narrow, wide = (lane_access("gather", bits) for bits in (128, 256))
    assert narrow.inverse < wide.inverse
    assert wide.inverse < 1.2 * wide.latency
    assert lane_access("scatter", 128).inverse > 0.0


def test_a_stored_value_takes_longer_than_one_in_a_register() -> None:
    assert forwarding_latency(128) > 0.0


def test_a_loop_runs_as_often_as_it_is_told() -> None:
    assert Compiled(_loop("multiply_add", 256, 3)).call("loop", 17, 0) == 17


def test_the_fastest_run_counts() -> None:
    calls: list[int] = []
    assert fastest(lambda: calls.append(sum(range(1000))), repeats=3) >= 1.0
    assert len(calls) == 4


def write_cache(folder: Path, index: int, **facts: str) -> None:
    place = folder / f"index{index}"
    place.mkdir(parents=True)
    for name, text in facts.items():
        (place / name).write_text(text + "\n", "utf-8")


def test_caches_are_read_from_the_system(tmp_path: Path) -> None:
    shared = {"ways_of_associativity": "16", "coherency_line_size": "64"}
    write_cache(tmp_path, 0, level="1", type="Data", size="48K", shared_cpu_list="0", **shared)
    write_cache(tmp_path, 1, level="1", type="Instruction", size="32K", shared_cpu_list="0", **shared)
    write_cache(tmp_path, 2, level="3", type="Unified", size="32M", shared_cpu_list="0-3,8", **shared)
    found = cache_facts(tmp_path)
    assert [(each.level, each.kib, each.sharers) for each in found] == [(1, 48.0, 1), (3, 32768.0, 5)]


def test_a_system_that_says_nothing_of_caches_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no facts of caches"):
        cache_facts(tmp_path)
    write_cache(tmp_path, 0, level="1", type="Data", size="48K")
    with pytest.raises(DataError, match="incomplete facts of a cache"):
        cache_facts(tmp_path)
