"""The real compiler and the real processor, where the extra `cpu` is installed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from costbench.cli.app import complete_app
from costbench.errors import ChoiceError
from costbench.rng import stream
from costbench_schedules.devices.device import CpuDevice
from costbench_schedules.devices.process import Limits
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.operators.reference import TOLERANCE, expected_output, inputs_of, largest_error
from costbench_schedules.records.table import read_table
from costbench_schedules.spaces.space import ScheduleSpace

tvm_adapter = pytest.importorskip(
    "costbench_schedules.devices.tvm_adapter", reason="needs the extra cpu (TVM)", exc_type=ImportError
)
OPERATORS = (
    "matmul:m=12,n=32,k=20",
    "batch_matmul:b=3,m=8,n=16,k=12",
    "dense:n=6,ci=24,co=40",
    "conv2d:n=2,h=9,w=9,ci=3,co=8,kh=3,kw=3,stride=2,pad=1",
    "depthwise_conv2d:n=1,h=8,w=8,c=24,kh=3,kw=3,stride=1,pad=1",
)


@pytest.mark.parametrize("text", OPERATORS)
@pytest.mark.parametrize("target", ["native", "generic"])
def test_every_schedule_computes_the_operator(text: str, target: str) -> None:
    operator = parse_operator(text)
    space, inputs = ScheduleSpace(operator), inputs_of(operator)
    expected = expected_output(operator, inputs)
    for row in space.sample(stream(0, "correct", text), 3):
        empty = np.full(operator.tensors["output"], np.nan, dtype=np.float32)
        arrays = tvm_adapter.device_arrays([*inputs, empty])
        tvm_adapter.build(operator, space.choices(row), target)(arrays)
        assert largest_error(tvm_adapter.to_numpy(arrays[-1]), expected) <= TOLERANCE, space.choices(row)


def test_a_trace_makes_the_same_program_again() -> None:
    from tvm import s_tir

    operator = parse_operator("matmul:m=12,n=32,k=20")
    space = ScheduleSpace(operator)
    choices = space.choices(space.sample(stream(0, "trace"), 1)[0])
    again = s_tir.Schedule(tvm_adapter.module_of(operator), debug_mask="none")
    s_tir.Trace.apply_json_to_schedule(json.loads(json.dumps(tvm_adapter.trace(operator, choices))), again)
    assert str(again.mod.script()) == tvm_adapter.script(operator, choices)


def test_unknown_processors_are_refused() -> None:
    with pytest.raises(ChoiceError, match="i386sx"):
        tvm_adapter.target_of("i386sx")


def test_measured_in_a_process_of_its_own() -> None:
    space = ScheduleSpace(parse_operator("matmul:m=32,n=32,k=32"))
    with CpuDevice(limits=Limits(build_s=60.0)) as device:
        measurement = device.measure(space, space.sample(stream(0, "measured"), 3))
        assert device.host["versions"]["tvm"]
    assert not measurement.failed.any(), measurement.reasons
    assert (measurement.runtime_ns > 0).all()
    assert (measurement.spread >= 0).all()


def test_a_table_of_a_described_operator_is_named_after_its_sizes(tmp_path: Path) -> None:
    arguments = ["record-schedules", "matmul:m=8,n=16,k=4", "--out", str(tmp_path), "--minutes", "0.2"]
    assert CliRunner().invoke(complete_app(), arguments).exit_code == 0
    table = read_table(tmp_path / "native" / "matmul-8x16x4.arrow")
    assert (table.workload, table.space.operator.text) == ("matmul-8x16x4", "matmul:m=8,n=16,k=4")
    assert table.num_measured > 0
