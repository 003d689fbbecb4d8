from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costbench.errors import DataError
from costbench_schedules.devices import device as device_module
from costbench_schedules.devices.device import CpuDevice
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.records.agreement import noise_report
from costbench_schedules.spaces.space import ScheduleSpace
from tests.schedules.devices.fake import FAKE

SPACE = ScheduleSpace(parse_operator("matmul:m=2,n=2,k=2"))


def rows_with(*kinds: int) -> np.ndarray:
    rows = np.zeros((len(kinds), len(SPACE.knobs)), dtype=np.int64)
    rows[:, -2] = kinds
    return rows


def test_failures_are_contained_and_say_why() -> None:
    with CpuDevice(limits=FAKE) as device:
        measurement = device.measure(SPACE, rows_with(0, 1, 2, 3, 0))
    assert measurement.failed.tolist() == [False, True, True, True, False]
    assert measurement.reasons[1] == "build error: no"
    assert measurement.reasons[2] == "build time-out"
    assert measurement.reasons[3] == "crash: SIGSEGV: about to fall over"
    assert measurement.runtime_ns.tolist() == [1000, 0, 0, 0, 1000]
    np.testing.assert_allclose(measurement.spread, [0.25, 0, 0, 0, 0.25])
    # What fails is charged until it does: the time-out is half a second.
    np.testing.assert_allclose(measurement.run_seconds[[0, 4]], 0.003)
    assert 0.5 <= measurement.run_seconds[2] < 5.0


def test_rows_of_a_sub_space_are_those_of_the_whole_one() -> None:
    part = SPACE.sub_space({"unroll": [16, 512]})
    with CpuDevice(limits=FAKE) as device:
        mine = device.measure(part, part.rows([0, 1, 4]))
        whole = device.measure(SPACE, part.full_rows(part.rows([0, 1, 4])))
    assert mine.runtime_ns.tolist() == whole.runtime_ns.tolist()


def test_a_worker_that_does_not_start_is_one_clear_error() -> None:
    broken = replace(FAKE, command=(sys.executable, "-c", "import sys; sys.exit('no compiler')"))
    with CpuDevice(limits=broken) as device, pytest.raises(DataError, match="no compiler"):
        device.measure(SPACE, rows_with(0))


def test_a_machine_that_turns_noisy_ends_the_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_module, "MAX_NOISY", 2)
    device = CpuDevice(limits=FAKE)
    timing = {"runtime_ns": 1.0, "median_ns": 1.5, "clean": 0, "total_ns": 1}
    steady = timing | {"median_ns": 1.1}
    for item in (timing, steady, timing):
        device._run_of({"timing": item, "build_ns": 1})
    with pytest.raises(DataError, match="interrupted"):
        device._run_of({"timing": timing, "build_ns": 1})


def test_a_device_without_noise_agrees_with_itself() -> None:
    rows = rows_with(0, 0, 0, 1)
    rows[:3, -3] = [0, 1, 2]
    with CpuDevice(limits=FAKE) as device:
        report = noise_report(device, SPACE, rows)
    assert (report.schedules, report.rounds) == (3, 3)
    assert (report.tau_median, report.tau_min) == (pytest.approx(1.0), pytest.approx(1.0))
    assert report.variation_max == report.interrupted == 0.0


def test_one_round_says_nothing() -> None:
    with pytest.raises(DataError, match="rounds"):
        noise_report(CpuDevice(limits=FAKE), SPACE, rows_with(0), rounds=1)


def test_several_threads_need_wall_time() -> None:
    limits = replace(FAKE, threads=2)
    with pytest.raises(DataError, match="expected the clock `wall`"):
        CpuDevice(limits=limits)
    with CpuDevice(limits=limits, clock="wall") as device:
        assert device.measure(SPACE, rows_with(0)).runtime_ns.tolist() == [1000]


def test_a_worker_gets_as_many_threads_as_its_limits_say(tmp_path: Path) -> None:
    said = tmp_path / "threads"
    text = f"import os; open({str(said)!r}, 'w').write(os.environ['TVM_NUM_THREADS'])"
    limits = replace(FAKE, threads=3, command=(sys.executable, "-c", text))
    with pytest.raises(DataError, match="does not start"):
        CpuDevice(limits=limits, clock="wall").measure(SPACE, rows_with(0))
    assert said.read_text() == "3"
