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
    assert len(report.kernels) == 7
    # 352 recorded runs, of which two are failed compiles.
    assert sum(kernel.num_runs for kernel in report.kernels) == 350


def test_a_file_without_runs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.pb").write_bytes(tuning_pb2.TuningData().SerializeToString())
    with pytest.raises(DataError, match=r"empty\.pb"):
        evaluate_file(tmp_path / "empty.pb", load_target("tpu_v3"))
