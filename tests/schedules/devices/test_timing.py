from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from time import sleep

from costbench_schedules.devices.timing import CLOCKS, TimingSpec, time_call


class Machine:
    """A clock that a call moves on by what comes next; calls in `dirty` are interrupted."""

    def __init__(self, times: Iterator[int], dirty: tuple[int, ...] = ()) -> None:
        self._times, self._dirty = times, dirty
        self.now = self.calls = self.switches = 0

    def call(self) -> None:
        self.now += next(self._times)
        self.switches += self.calls in self._dirty
        self.calls += 1

    def clock(self) -> int:
        return self.now

    def interruptions(self) -> int:
        return self.switches


def test_blocks_are_filled_and_the_fastest_counts() -> None:
    times = iter([500, 100, *[100] * 10, *[90] * 10, *[110] * 10])
    machine = Machine(times)
    timing = time_call(machine.call, TimingSpec(1000, 3, 9, 10**9), machine.clock, machine.interruptions)
    assert (timing.runtime_ns, timing.median_ns, timing.clean, timing.blocks) == (90, 100, 3, 3)
    assert (timing.runs, timing.total_ns) == (32, 3600)
    assert timing.spread == 100 / 90 - 1


def test_interrupted_blocks_do_not_count() -> None:
    # One run a block: calls 2 and 3 are the first blocks; the fast one was interrupted.
    machine = Machine(iter([200, 200, 50, 210, 205]), dirty=(2,))
    timing = time_call(machine.call, TimingSpec(100, 2, 9, 10**9), machine.clock, machine.interruptions)
    assert (timing.runtime_ns, timing.clean, timing.blocks) == (205, 2, 3)


def test_all_count_where_all_were_interrupted() -> None:
    machine = Machine((200 + i for i in count()), dirty=tuple(range(99)))
    timing = time_call(machine.call, TimingSpec(100, 2, 4, 10**9), machine.clock, machine.interruptions)
    assert (timing.runtime_ns, timing.clean, timing.blocks) == (202, 0, 4)


def test_a_slow_call_is_repeated_once_after_its_warm_up() -> None:
    machine = Machine(iter([900, 800]))
    timing = time_call(machine.call, TimingSpec(100, 7, 9, 1000), machine.clock, machine.interruptions)
    assert (timing.runtime_ns, timing.blocks, timing.runs) == (800, 1, 2)


def test_wall_time_goes_on_while_a_thread_sleeps() -> None:
    spec = TimingSpec(block_ns=1_000, blocks=1, max_blocks=1, budget_ns=10**9)
    by_name = {name: time_call(lambda: sleep(0.02), spec, *clock) for name, clock in CLOCKS.items()}
    assert by_name["wall"].runtime_ns >= 20_000_000
    assert by_name["processor"].runtime_ns < 20_000_000
