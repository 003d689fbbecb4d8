"""Findings over machines: orders and medians by hand, and again on all machines."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from benchmarks.machine_findings import PROGRAMS, estimate_kernels, figures, findings, summarise
from costbench.experiments.evaluation.recorded_runs import recorded_kernels
from costbench.reports.tables.machines import COLUMNS, MACHINES, ORDERS, chip_file
from costbench.target import load_target
from tests.hardware.machines import changed, with_rules

V3 = load_target("tpu_v3")


def test_orders_are_compared_with_the_chip() -> None:
    # The second machine exchanges two taus, the third one two errors.
    plain = dict.fromkeys(COLUMNS[3:], 0.0) | {
        name: float(i) for names in ORDERS.values() for i, name in enumerate(names)
    }
    second, third = plain | {"tau_compiler": 5.0}, plain | {"error_expert": -1.0, "recorded_error": 4.0}
    frame = pd.DataFrame([plain, second, third, plain])
    table = summarise(frame, [("shipped", "", [0]), ("edges", "full", [1, 2]), ("edges", "rows", [3])])
    assert table["machines"].tolist() == [1, 2, 1]
    assert table["order_tau"].tolist() == [100, 50, 100]
    assert table["order_ape"].tolist() == [100, 100, 100]
    assert table["order_error"].tolist() == [100, 50, 100]
    assert table["recorded_error"].tolist() == [0, 2, 0]


def test_a_machine_is_its_own_best_model() -> None:
    kernels = [estimate_kernels("dlrm_b2048_train_f32", V3)]
    regular = changed(V3, codegen_compute_sd=0.0, codegen_transfer_sd=0.0)
    same, other = (
        figures(kernels, machine, V3) for machine in (regular, with_rules(regular, overlap="maximum"))
    )
    assert same["tau_shipped"] == pytest.approx(1.0)
    assert other["tau_shipped"] < 1.0
    assert same["ape_ten"] <= same["ape_compiler"]
    assert 0.0 < same["explained_expert"] < 1.0


@pytest.mark.slow
def test_the_rows_of_the_package_are_those_of_its_machines(shared_data: Path) -> None:
    """After a change of the machine or its ensemble, write them again as the benchmark says."""
    recorded = recorded_kernels(shared_data / "real_tpu" / "tile_calibration.pb")
    expected = pd.read_csv(chip_file("tpu_v3", MACHINES))
    rows = findings(recorded, V3, PROGRAMS)
    for column in COLUMNS[2:]:
        assert rows[column].tolist() == pytest.approx(expected[column].tolist(), rel=2e-3), column
