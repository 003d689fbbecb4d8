"""Real runs from a file, priced."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.datasets.tpugraphs.proto import tuning_pb2
from costbench.errors import DataError
from costbench.experiments.evaluation.recorded_runs import evaluate_file
from costbench.target import load_target


def test_calibration_kernels(shared_data: Path) -> None:
    report = evaluate_file(shared_data / "real_tpu" / "tile_calibration.pb", load_target("tpu_v3"))
    assert len(report.chip.kernels) == 7
    # 352 recorded runs, of which two are failed compiles.
    assert sum(kernel.num_runs for kernel in report.chip.kernels) == 350
    assert report.spread is not None
    assert report.spread.num_machines == 32
    assert report.held_out is None
    # Every machine has one choice of each rule, and those of no rule are off by much more than the others.
    assert set(report.by_rule) == {"overlap", "chunks", "edges"}
    for choices in report.by_rule.values():
        assert len(choices) == 3
        assert sum(spread.num_machines for spread in choices.values()) == 32
        for spread in choices.values():
            assert spread.mape is not None
            assert spread.mape.median < 8.0
            assert spread.kendall_tau is not None
            assert spread.kendall_tau.median > 0.88


def test_kernels_held_out_are_reported(shared_data: Path) -> None:
    file = shared_data / "real_tpu" / "tile_calibration.pb"
    report = evaluate_file(file, load_target("tpu_v3"), with_held_out=True)
    assert report.held_out is not None
    # The goal for kernels that no fit has seen.
    assert report.held_out.kendall_tau is not None
    assert report.held_out.kendall_tau >= 0.88
    assert report.held_out.mape <= 20.0
    assert report.held_out.top1_slowdown <= 0.03
    assert set(report.to_dict()) >= {"kernels", "overall", "ensemble", "leave_one_out"}


def test_a_file_without_runs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.pb").write_bytes(tuning_pb2.TuningData().SerializeToString())
    with pytest.raises(DataError, match=r"empty\.pb"):
        evaluate_file(tmp_path / "empty.pb", load_target("tpu_v3"))
