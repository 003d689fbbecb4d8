"""Records of AutoTVM and MetaSchedule, and what becomes of damaged ones."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.errors import CostbenchError, DataError
from costbench_schedules.records.imported.autotvm import read_autotvm
from costbench_schedules.records.imported.importing import OTHERS_FILE, write_imported
from costbench_schedules.records.imported.metaschedule import (
    RECORDS_FILE,
    WORKLOADS_FILE,
    read_metaschedule,
)
from costbench_schedules.records.imported.record import ImportedRecord
from costbench_schedules.records.tune_log import read_log

TUTORIAL: dict[str, Any] = {
    "input": ["llvm -keys=cpu", "tutorial/matmul", [512, 256, 128, "float32"], {}],
    "config": {
        "index": 35,
        "code_hash": None,
        "entity": [["tile_y", "sp", [-1, 8]], ["tile_x", "sp", [-1, 32]]],
    },
    "result": [[0.0004, 0.0006], 0, 1.5, 1700000000.0],
    "version": 0.2,
    "tvm_version": "0.8.0",
}
CONV: dict[str, Any] = {
    "input": [
        "llvm -mcpu=core-avx2",
        "conv2d_NCHWc.x86",
        [
            ["TENSOR", [1, 64, 56, 56], "float32"],
            ["TENSOR", [128, 64, 3, 3], "float32"],
            [2, 2],
            [1, 1, 1, 1],
            [1, 1],
            "NCHW",
            "NCHW",
            "float32",
        ],
        {},
    ],
    "config": {
        "index": 1,
        "code_hash": None,
        "entity": [["tile_ic", "sp", [-1, 16]], ["unroll_kw", "ot", True]],
    },
    "result": [[0.001], 0, 1.0, 1.0],
    "version": 0.2,
}
OLD: dict[str, Any] = {
    "i": ["cuda", "topi_nn_dense", [], {}, [], {"i": 1, "t": "direct", "c": None, "e": []}],
    "r": [[1000000000.0], 4, 1.0, 1.0],
    "v": 0.1,
}
OLD["i"][2] = [["TENSOR", [16, 512], "float32"], ["TENSOR", [1000, 512], "float32"], None, "float32"]


def trace() -> list[Any]:
    """As TVM 0.27 writes it for a matmul: S0 is fused and parallel, sums are cached inside S0."""
    names = iter(f"l{n}" for n in range(100))
    loops = [next(names) for _ in range(3)]
    parts = [[next(names) for _ in range(size)] for size in (4, 4, 2)]
    steps: list[Any] = [
        ["GetSBlock", [], ["compute", "main"], ["b0"]],
        ["GetSBlock", [], ["root", "main"], ["b1"]],
        ["Annotate", ["b0", '"SSRSRS"'], ["meta_schedule.tiling_structure"], []],
        ["GetLoops", ["b0"], [], loops],
    ]
    decisions = []
    for loop, part, factors in zip(loops, parts, ([4, 2, 1, 8], [2, 16, 1, 1], [4, 4]), strict=True):
        values = [f"v{name}" for name in part]
        decisions.append([len(steps), factors])
        steps.append(["SamplePerfectTile", [loop], [len(part), 64], values])
        steps.append(["Split", [loop, *values], [1, 0], part])
    steps += [
        ["CacheWrite", ["b0", []], [0, "global"], ["b25"]],
        ["ReverseComputeAt", ["b25", parts[1][0]], [1, -1], []],
        ["Annotate", ["b1", 16], ["meta_schedule.parallel"], []],
        ["Annotate", ["b1", 64], ["meta_schedule.vectorize"], []],
    ]
    decisions.append([len(steps), 2])
    steps += [
        ["SampleCategorical", [], [[0, 16, 64, 512], [0.25] * 4], ["v26"]],
        ["Annotate", ["b1", "v26"], ["meta_schedule.unroll_explicit"], []],
        ["EnterPostproc", [], [], []],
        ["Fuse", [parts[0][0], parts[1][0]], [1], ["l40"]],
        ["Parallel", ["l40"], [], []],
    ]
    return [steps, decisions]


def matmul_record() -> list[Any]:
    tensors = [["TENSOR", "float32", shape] for shape in ([64, 16], [16, 32], [64, 32])]
    return [0, [trace(), [0.002, 0.004], {"kind": "llvm", "mcpu": "znver5"}, tensors]]


def autotvm(folder: Path, *lines: object) -> list[ImportedRecord]:
    path = folder / "log.json"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return list(read_autotvm(path))


def metaschedule(folder: Path, *lines: object) -> list[ImportedRecord]:
    (folder / WORKLOADS_FILE).write_text(json.dumps(["1", "AAAA"]) + "\n")
    (folder / RECORDS_FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return list(read_metaschedule(folder))


def test_the_tutorials_schedules_are_ours(tmp_path: Path) -> None:
    [record] = autotvm(tmp_path, TUTORIAL)
    # N, L, M of the tutorial are rows, summed extent and columns.
    assert record.operator is not None
    assert record.operator.text == "matmul:m=512,n=128,k=256"
    assert record.choices is not None
    assert record.choices["tile i"] == (64, 1, 1, 8)
    assert record.choices["tile j"] == (4, 1, 1, 32)
    assert record.choices["tile r"] == (256, 1)
    assert record.runtime_ns == pytest.approx(500_000)


def test_other_templates_keep_workload_and_runtime(tmp_path: Path) -> None:
    conv, old = autotvm(tmp_path, CONV, OLD)
    assert conv.operator is not None
    assert conv.operator.text == "conv2d:n=1,h=56,w=56,ci=64,co=128,kh=3,kw=3,stride=2,pad=1"
    assert conv.choices is None
    assert "conv2d_NCHWc.x86" in conv.unmapped
    assert conv.runtime_ns == pytest.approx(1e6)
    assert old.operator is not None
    assert old.operator.text == "dense:n=16,ci=512,co=1000"
    assert old.runtime_ns is None
    assert old.reason


def test_traces_tiled_as_ssrsrs_are_ours(tmp_path: Path) -> None:
    [record] = metaschedule(tmp_path, matmul_record())
    assert record.unmapped == ""
    assert record.operator is not None
    assert record.operator.text == "matmul:m=64,n=32,k=16"
    assert record.choices == {
        "tile i": (4, 2, 1, 8),
        "tile j": (2, 16, 1, 1),
        "tile r": (4, 4),
        "order": "S0 S1 R0 S2 R1 S3",
        "cache": "block",
        "vectorize": 1,
        "unroll": 64,
        "parallel": "S0",
        "padding": "none",
    }
    assert record.runtime_ns == pytest.approx(3e6)
    assert record.target == "znver5"


def _elsewhere(record: list[Any]) -> None:
    for step in record[1][0][0]:
        if step[0] == "ReverseComputeAt":
            step[1][1] = "l2"


def _untiled(record: list[Any]) -> None:
    del record[1][0][0][2]
    record[1][0][1] = [[index - 1, choice] for index, choice in record[1][0][1]]


def _halves(record: list[Any]) -> None:
    for item in record[1][3]:
        item[1] = "float16"


@pytest.mark.parametrize(
    ("change", "said"), [(_elsewhere, "cache elsewhere"), (_untiled, "SSRSRS"), (_halves, "float32")]
)
def test_other_traces_keep_the_runtime(
    change: Callable[[list[Any]], None], said: str, tmp_path: Path
) -> None:
    record = matmul_record()
    change(record)
    [result] = metaschedule(tmp_path, record)
    assert result.choices is None
    assert said in result.unmapped
    assert result.runtime_ns == pytest.approx(3e6)


def test_imported_schedules_become_logs(tmp_path: Path) -> None:
    other = copy.deepcopy(TUTORIAL)
    other["config"]["entity"][0][2] = [-1, 16]
    other["result"] = [[1000000000.0], 6, 1.0, 1.0]
    records = autotvm(tmp_path, TUTORIAL, CONV, other, TUTORIAL)
    summary = write_imported(records, tmp_path / "new", "log.json")
    [(path, count)] = summary.logs.items()
    assert (count, summary.repeated, sum(summary.others.values())) == (2, 1, 1)
    header, entries = read_log(path)
    assert [entry.runtime_ns for entry in entries] == [500_000, None]
    assert entries[1].reason == "build time-out"
    choices = header.space.choices(header.space.rows([entries[1].number])[0])
    assert choices["tile i"] == (32, 1, 1, 16)
    [line] = (tmp_path / "new" / OTHERS_FILE).read_text().splitlines()
    assert json.loads(line)["runtime_ns"] == pytest.approx(1e6)
    with pytest.raises(DataError, match="holds logs already"):
        write_imported(records, tmp_path / "new", "log.json")


def test_a_bad_line_loses_nothing_before_it(tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text("".join(json.dumps(line) + "\n" for line in (TUTORIAL, CONV)) + "{\n")
    with pytest.raises(DataError) as error:
        write_imported(read_autotvm(path), tmp_path / "new", "log.json")
    assert error.value.where == f"{path}:3"
    assert {file.name: len(file.read_text().splitlines()) for file in (tmp_path / "new").iterdir()} == {
        "matmul-m-512-n-128-k-256-llvm-keys-cpu.jsonl": 2,  # The header is a line as well.
        OTHERS_FILE: 1,
    }


def test_a_file_without_a_record_leaves_the_folder_free(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text("{\n")
    with pytest.raises(DataError, match=r"bad\.json:1"):
        write_imported(read_autotvm(tmp_path / "bad.json"), tmp_path / "new", "bad.json")
    summary = write_imported(autotvm(tmp_path, TUTORIAL), tmp_path / "new", "log.json")
    assert sum(summary.logs.values()) == 1


@pytest.mark.parametrize("cut", [10, 200, 260])
def test_a_truncated_line_is_named(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "log.json"
    path.write_text(json.dumps(TUTORIAL) + "\n" + json.dumps(CONV)[:cut])
    with pytest.raises(DataError, match=r"log\.json:2: no JSON"):
        list(read_autotvm(path))


def test_records_of_no_workload_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="workload 3"):
        metaschedule(tmp_path, [3, matmul_record()[1]])
    with pytest.raises(DataError, match=WORKLOADS_FILE):
        list(read_metaschedule(tmp_path / "nowhere"))


ODD = st.sampled_from([None, True, -1, 0, 1.5, "x", [], {}, [[]], 10**30, float("inf"), ["TENSOR", [0], "a"]])


def _places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    result = [path] if path else []
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inner:
        result += _places(item, (*path, key))
    return result


def _changed(value: Any, path: tuple[Any, ...], odd: object) -> Any:
    result = copy.deepcopy(value)
    at = result
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = odd
    return result


@given(data=st.data())
def test_mutated_lines_are_records_or_one_error(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("mutated")
    read, line = data.draw(
        st.sampled_from(
            [(autotvm, TUTORIAL), (autotvm, CONV), (autotvm, OLD), (metaschedule, matmul_record())]
        )
    )
    for _ in range(data.draw(st.integers(1, 3))):
        line = _changed(line, data.draw(st.sampled_from(_places(line))), data.draw(ODD))
    try:
        [record] = read(folder, line)
    except CostbenchError as error:
        assert ".json" in str(error)
        return
    assert (record.choices is None) == bool(record.unmapped)
    write_imported([record], folder / "new", "log.json")
