"""The audit on shards whose leaks are known by heart."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from costbench.datasets.leakage import (
    ProgramShards,
    common_fingerprints,
    fingerprints,
    leakage_audit,
    shards_by_program,
)
from costbench.datasets.record_types import FUSION
from costbench.datasets.splits import Split
from costbench.datasets.storage import Shard, write_shard
from costbench.errors import DataError
from tests.datasets.tile_columns import fusion_columns, metadata, tile_columns

Make = Callable[..., Path]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def write(
        program: str, fingerprints: list[int], default_ns: list[int], runs: list[int], chip: str = "tpu_v3"
    ) -> Path:
        columns = tile_columns([2] * len(fingerprints), fingerprints=fingerprints)
        columns["kernel_default_ns"] = np.array(default_ns, np.int64)
        columns["kernel_runs"] = np.array(runs, np.int64)
        path = tmp_path / "shards" / f"{program}.arrow"
        write_shard(path, columns, metadata(program, program.upper(), chip))
        return path

    return write


def _shards(tmp_path: Path) -> ProgramShards:
    return shards_by_program(tmp_path / "shards")


def test_leakage_by_count_and_by_runtime(make: Make, tmp_path: Path) -> None:
    make("a", [1, 2, 3], [10, 10, 10], [1, 1, 1])
    make("b", [4], [10], [1])
    make("c", [2, 4, 5, 6], [100, 200, 300, 50], [1, 2, 1, 2])
    make("d", [7], [1000], [1])
    make("v", [1, 8], [10, 30], [1, 1])
    make("x", [5, 6, 7], [1, 1, 1], [1, 1, 1])  # dropped: what it has in common with c and d is no leak
    report = leakage_audit(Split("manual", ("a", "b"), ("v",), ("c", "d"), ("x",)), _shards(tmp_path))
    # Of c, 2 and 4 occur in a and b: 100 + 2 * 200 of 100 + 400 + 300 + 100; nothing of d does.
    c, d = dict(report.by_program)["c"], dict(report.by_program)["d"]
    assert (c.kernels, c.leaked_kernels, c.runtime_ns, c.leaked_runtime_ns) == (4, 2, 900, 500)
    assert (d.kernels, d.leaked_kernels, d.runtime_ns, d.leaked_runtime_ns) == (1, 0, 1000, 0)
    assert report.test.share_of_kernels == pytest.approx(2 / 5)
    assert report.test.share_of_runtime == pytest.approx(500 / 1900)
    assert report.validation.share_of_kernels == 0.5
    assert report.validation.share_of_runtime == 0.25
    content = json.loads(json.dumps(report.to_dict()))
    assert content["split"] == "manual"
    assert content["test"]["leaked_kernels"] == 2
    assert content["by_program"]["c"]["share_of_kernels"] == 0.5


def test_nothing_leaks_without_kernels_or_validation(make: Make, tmp_path: Path) -> None:
    make("a", [1], [10], [1])
    make("b", [], [], [])
    report = leakage_audit(Split("random", ("a",), (), ("b",)), _shards(tmp_path))
    assert (report.test.share_of_kernels, report.test.share_of_runtime) == (0.0, 0.0)
    assert report.validation.kernels == 0


def test_programs_without_samples_count_nothing(make: Make, tmp_path: Path) -> None:
    make("a", [1], [10], [1])
    make("b", [1], [10], [1])
    split = Split("random", ("a", "elsewhere"), ("nowhere",), ("b", "missing"))
    report = leakage_audit(split, _shards(tmp_path))
    assert [name for name, _ in report.by_program] == ["b"]
    assert (report.test.kernels, report.test.leaked_kernels) == (1, 1)


def test_fusion_kernels_weigh_what_they_take_in_the_untuned_program(tmp_path: Path) -> None:
    def write(name: str, program: str, fingerprints: list[int], runs: list[int], runtime: list[int]) -> None:
        columns = fusion_columns(fingerprints, runs, runtime)
        write_shard(tmp_path / "shards" / name, columns, metadata(program, "F"), FUSION)

    write("a.arrow", "a", [1, 2], [1, 0], [10, 10])
    write("b.0.arrow", "b", [1, 3], [2, 1], [100, 50])
    # A second part of the same program; its kernel is leaked, but no part of the untuned program.
    write("b.1.arrow", "b", [2, 9], [0, 1], [1000, 7])
    report = leakage_audit(Split("random", ("a",), (), ("b",)), _shards(tmp_path))
    assert dict(report.by_program)["b"] == report.test
    leakage = report.test
    assert (leakage.kernels, leakage.leaked_kernels, leakage.runtime_ns, leakage.leaked_runtime_ns) == (
        4,
        2,
        257,
        200,
    )


def test_common_fingerprints_are_those_of_both_sides(make: Make) -> None:
    # 0 is sixteen zero bytes, which strings of bytes are apt to lose.
    a, b, c = (
        make(name, which, [1] * len(which), [1] * len(which))
        for name, which in (("a", [3, 0, 7]), ("b", [7, 8]), ("c", [0, 9, 255]))
    )
    mine = fingerprints(Shard.open(a))
    common = common_fingerprints([a], [b, c])
    assert np.isin(mine, common).tolist() == [False, True, True]
    assert common_fingerprints([a], []).tolist() == []
    assert common_fingerprints([], [a]).tolist() == []
    assert np.isin(fingerprints(Shard.open(c)), common_fingerprints([b, c], [c])).all()


def test_shards_are_of_one_chip_and_go_by_program(make: Make, tmp_path: Path) -> None:
    a, b = make("a", [1], [10], [1]), make("b", [1], [10], [1])
    assert _shards(tmp_path) == {"a": (a,), "b": (b,)}
    make("c", [1], [10], [1], chip="tpu_v2")
    with pytest.raises(DataError, match="shards of tpu_v2, tpu_v3"):
        _shards(tmp_path)
