from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from costbench.errors import DataError
from costbench_schedules.devices import library
from costbench_schedules.devices.library import library_calls, library_times, write_library_times
from costbench_schedules.devices.timing import TimingSpec
from costbench_schedules.operators.operators import OPERATORS, parse_operator
from costbench_schedules.operators.reference import inputs_of

QUICK = TimingSpec(block_ns=1_000, blocks=2, max_blocks=4, budget_ns=1_000_000)
SMALL = {
    "batch_matmul": "batch_matmul:b=3,m=8,n=16,k=12",
    "conv2d": "conv2d:n=2,h=9,w=9,ci=3,co=8,kh=3,kw=3,stride=2,pad=1",
    "dense": "dense:n=6,ci=24,co=40",
    "depthwise_conv2d": "depthwise_conv2d:n=1,h=8,w=8,c=24,kh=3,kw=3,stride=1,pad=1",
    "grouped_conv2d": "grouped_conv2d:n=1,h=8,w=8,g=4,ci=3,co=5,kh=3,kw=3,stride=2,pad=1",
    "matmul": "matmul:m=12,n=32,k=20",
}


@pytest.mark.parametrize("kind", sorted(OPERATORS))
def test_the_library_computes_every_operator(kind: str) -> None:
    operator = parse_operator(SMALL[kind])
    ways = library_calls(operator, inputs_of(operator))
    with torch.inference_mode():
        shapes = {tuple(call().shape) for call in ways.values()}
    assert shapes == {operator.tensors["output"]}


def test_the_fastest_way_counts(tmp_path: Path) -> None:
    before = torch.get_num_threads()
    measured = library_times(["matmul:m=12,n=32,k=20", SMALL["conv2d"]], QUICK)
    assert torch.get_num_threads() == before
    conv = measured[SMALL["conv2d"]]
    assert conv.runtime_ns == conv.ways[conv.way] == min(conv.ways.values())
    # 2 images, 5 x 5 outputs of 8 channels, 3 x 3 x 3 products each.
    assert conv.gflops == pytest.approx(2 * 2 * 25 * 8 * 27 / conv.runtime_ns)
    write_library_times(tmp_path / "library.json", measured, QUICK)
    written = json.loads((tmp_path / "library.json").read_text())
    assert written["workloads"][SMALL["conv2d"]]["way"] == conv.way
    assert written["processor_name"]
    assert written["versions"]["torch"] == torch.__version__


def test_a_wrong_result_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        library._CALLS,  # type: ignore[index]
        "matmul",
        lambda size, left, right: {"twice": lambda: 2 * (left @ right)},
    )
    operator = parse_operator(SMALL["matmul"])
    with pytest.raises(DataError, match="twice: relative error"):
        library_calls(operator, [np.asarray(array) for array in inputs_of(operator)])
