"""One small matmul tuned live and compared with NumPy, and MetaSchedule measured as we measure."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from costbench_schedules.devices.device import CpuDevice
from costbench_schedules.devices.process import Limits
from costbench_schedules.devices.reference_tuner import ReferenceSpec, meta_schedule
from costbench_schedules.experiments.live import (
    BEST_FILE,
    CODE_FILE,
    LOG_FILE,
    TRACE_FILE,
    Hooks,
    ScheduleOptions,
    tune_schedule,
)
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.operators.reference import TOLERANCE, expected_output, inputs_of, largest_error
from costbench_schedules.records.imported.metaschedule import read_metaschedule
from costbench_schedules.search.finders import ChainSpec
from costbench_schedules.search.guided import GuidedSpec

tvm_adapter = pytest.importorskip(
    "costbench_schedules.devices.tvm_adapter", reason="needs the extra cpu (TVM)", exc_type=ImportError
)
pytestmark = pytest.mark.slow
MATMUL = "matmul:m=64,n=64,k=64"
PATIENT = Limits(build_s=60.0, run_s=60.0)


def test_a_matmul_is_tuned_live(tmp_path: Path) -> None:
    search = GuidedSpec(batch=16, chains=ChainSpec(chains=32, steps=50))
    options = ScheduleOptions(MATMUL, trials=48, search=search)
    with CpuDevice(limits=PATIENT) as device:
        outcome = tune_schedule(tmp_path, options, device, Hooks(), resume=False)
    assert outcome.failure is None
    assert len((tmp_path / LOG_FILE).read_text().splitlines()) == 1 + 48
    assert outcome.progress.failed == 0
    # What the trace of the best schedule computes, applied to the operator again.
    operator = parse_operator(MATMUL)
    from tvm import s_tir

    again = s_tir.Schedule(tvm_adapter.module_of(operator), debug_mask="none")
    s_tir.Trace.apply_json_to_schedule(json.loads((tmp_path / TRACE_FILE).read_text()), again)
    tvm_adapter.write_program(again.mod, tmp_path / "program.json")
    program = tvm_adapter.build_program(tmp_path / "program.json", "native")
    inputs = inputs_of(operator)
    arrays = tvm_adapter.device_arrays([*inputs, np.full((64, 64), np.nan, dtype=np.float32)])
    program(arrays)
    expected = expected_output(operator, inputs)
    assert largest_error(tvm_adapter.to_numpy(arrays[-1]), expected) <= TOLERANCE
    assert "T.prim_func" in (tmp_path / CODE_FILE).read_text()
    # A lot slower than any processor that TVM builds for, and faster than none.
    assert 0.1 < json.loads((tmp_path / BEST_FILE).read_text())["gflops"] < 10_000


def test_metaschedule_is_measured_as_we_measure(tmp_path: Path) -> None:
    operator = parse_operator(MATMUL)
    result = meta_schedule(operator, ReferenceSpec(trials=8), tmp_path)
    assert len(result.trials) == 8
    [fastest] = result.fastest(1)
    assert fastest.runtime_ns is not None
    with CpuDevice(limits=PATIENT) as device:
        again = device.measure_program(operator, Path(fastest.program))
    assert not again.failed[0], again.reasons
    assert again.runtime_ns[0] < 3 * fastest.runtime_ns
    records = list(read_metaschedule(tmp_path))
    assert {record.operator for record in records} == {operator}
    assert sorted(record.runtime_ns for record in records if record.runtime_ns) == pytest.approx(
        sorted(trial.runtime_ns for trial in result.trials if trial.runtime_ns), rel=1e-6
    )
