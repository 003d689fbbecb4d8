"""Costs of operations on this machine: what holds on every processor, even one that is busy."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from costbench.errors import DataError
from costbench_schedules.devices.host import cache_facts
from costbench_schedules.devices.instrumented.description import _walked_bytes
from costbench_schedules.devices.instrumented.engine import CompiledModule
from costbench_schedules.devices.instrumented.microbenchmarks import (
    FORMS,
    LineMemory,
    Rounds,
    TimedLoop,
    _loop,
    accesses,
    chain,
    forwarding,
    gathers,
    linear_walk,
    pin_to_one_processor,
    pointer_chase,
    scatters,
    side_by_side,
    time_fastest,
)

QUICK = Rounds(rounds=6, block_ns=100_000)


def times(**loops: TimedLoop) -> dict[str, float]:
    return time_fastest(loops, QUICK)


@pytest.mark.parametrize("kind", FORMS)
def test_chains_take_no_less_than_work_side_by_side(kind: str) -> None:
    bits = 64 if kind.startswith("integer") else 128
    times_ns = times(one=chain(kind, bits), many=side_by_side(kind, bits))
    assert 0.0 < times_ns["many"] <= 1.2 * times_ns["one"]


def test_a_division_takes_longer_than_an_addition() -> None:
    times_ns = times(divide=chain("divide", 128), add=chain("add", 128))
    assert times_ns["divide"] > 1.5 * times_ns["add"]


def test_more_lanes_take_longer_to_gather() -> None:
    narrow, wide = (gathers(bits, chained=False) for bits in (128, 256))
    times_ns = times(narrow=narrow, wide=wide, chained=gathers(256, chained=True), scatter=scatters(128))
    assert times_ns["narrow"] < times_ns["wide"] < 1.2 * times_ns["chained"]
    assert times_ns["scatter"] > 0.0


def test_a_stored_value_takes_longer_than_one_in_a_register() -> None:
    times_ns = times(memory=forwarding(128), load=accesses("load", 128), store=accesses("store", 128))
    assert times_ns["memory"] > max(times_ns["load"], times_ns["store"]) > 0.0


def test_a_walk_at_random_takes_longer_than_one_in_order() -> None:
    times_ns = times(random=pointer_chase(256 << 10), linear=linear_walk(256 << 10))
    assert times_ns["random"] > 1.5 * times_ns["linear"] > 0.0


def test_a_random_walk_goes_through_every_line_once() -> None:
    loop = pointer_chase(64 * 64)
    memory = loop.memory
    assert memory is not None
    index, seen = 0, set()
    for _ in range(64):
        seen.add(index)
        index = int(memory.words[index // 8]) - memory.address
    assert index == 0
    assert seen == set(range(0, 64 * 64, 64))


def test_memory_begins_at_a_large_page() -> None:
    memory = LineMemory(4096)
    assert memory.address % (2 << 20) == 0
    assert len(memory.words) == 512
    assert not memory.words.any()


def test_a_loop_runs_as_often_as_it_is_told() -> None:
    assert CompiledModule(_loop("multiply_add", 256, 3)).call("loop", 17, 0) == 17


class Recorded(TimedLoop):
    """A loop whose blocks take what is given, one after another, and which knows what it was asked for."""

    def __init__(self, *times: float) -> None:
        self.times, self.asked = list(times), list[str]()

    def iterations_for(self, block_ns: int) -> int:
        return 8

    def warm_up(self, iterations: int) -> None:
        self.asked.append(f"warm {iterations}")

    def block_ns(self, iterations: int) -> float:
        self.asked.append(f"time {iterations}")
        return self.times.pop(0)


def test_the_fastest_block_of_all_rounds_counts() -> None:
    one, other = Recorded(5.0, 4.0, 6.0, 3.0), Recorded(2.0, 2.0, 2.5, 1.5)
    assert time_fastest({"one": one, "other": other}, Rounds(rounds=2, blocks=2)) == {
        "one": 3.0,
        "other": 1.5,
    }
    assert other.asked == ["warm 8", "time 8", "time 8"] * 2


def test_a_block_is_as_long_as_it_is_told() -> None:
    loop = chain("add", 128)
    iterations = loop.iterations_for(200_000)
    # 16 operations an iteration.
    assert loop.block_ns(iterations) * iterations * 16 > 50_000


@pytest.mark.parametrize("walk", [pointer_chase, linear_walk])
def test_a_walk_goes_on_where_it_stopped(walk: Callable[[int], TimedLoop]) -> None:
    loop = walk(4096)
    assert loop.memory is not None
    start, indices = loop._address, []
    # 64 lines, 16 of them an iteration.
    for _ in range(4):
        loop.run(1)
        indices.append(loop._address - start)
    assert indices[-1] == 0
    assert len(set(indices)) == 4
    assert all(0 <= index < 4096 and index % 64 == 0 for index in indices)


def test_pin_to_one_processor_is_given_back() -> None:
    before = os.sched_getaffinity(0)
    with pin_to_one_processor():
        assert os.sched_getaffinity(0) == {max(before)}
    assert os.sched_getaffinity(0) == before


def write_cache(folder: Path, index: int, **facts: str) -> None:
    position = folder / f"index{index}"
    position.mkdir(parents=True)
    for name, text in facts.items():
        (position / name).write_text(text + "\n", "utf-8")


def test_caches_are_read_from_the_system(tmp_path: Path) -> None:
    shared = {"ways_of_associativity": "16", "coherency_line_size": "64"}
    write_cache(tmp_path, 0, level="1", type="Data", size="48K", shared_cpu_list="0", **shared)
    write_cache(tmp_path, 1, level="1", type="Instruction", size="32K", shared_cpu_list="0", **shared)
    write_cache(tmp_path, 2, level="3", type="Unified", size="32M", shared_cpu_list="0-3,8", **shared)
    caches = cache_facts(tmp_path)
    assert [(item.level, item.kib, item.sharers) for item in caches] == [(1, 48.0, 1), (3, 32768.0, 5)]


def test_a_system_that_says_nothing_of_caches_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no facts of caches"):
        cache_facts(tmp_path)
    write_cache(tmp_path, 0, level="1", type="Data", size="48K")
    with pytest.raises(DataError, match="incomplete facts of a cache"):
        cache_facts(tmp_path)


def test_walks_are_half_a_cache_and_not_far_beyond_the_one_before(tmp_path: Path) -> None:
    shared = {"ways_of_associativity": "16", "coherency_line_size": "64", "type": "Unified"}
    write_cache(tmp_path, 0, level="1", size="32K", **shared)
    write_cache(tmp_path, 1, level="2", size="64K", **shared)
    write_cache(tmp_path, 2, level="3", size="8M", **shared)
    # Half of 32 and of 64 KiB; four times 64 KiB, for half of 8 MiB is more; four times the last one.
    assert _walked_bytes(cache_facts(tmp_path)) == [16 << 10, 32 << 10, 256 << 10, 32 << 20]


def test_memory_is_walked_beyond_any_last_cache(tmp_path: Path) -> None:
    shared = {"ways_of_associativity": "16", "coherency_line_size": "64", "type": "Unified"}
    write_cache(tmp_path, 0, level="1", size="2048K", **shared)
    write_cache(tmp_path, 1, level="2", size="320M", **shared)
    # Half of the first, four times the first, twice the last one.
    assert _walked_bytes(cache_facts(tmp_path)) == [1 << 20, 8 << 20, 640 << 20]
