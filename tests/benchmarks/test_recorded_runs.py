"""Rows of recorded runs: by hand for a kernel, and again from the real runs where they are at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.recorded_runs import kernel_row, rows_of, text_of
from costbench.hardware.simulator import simulate
from costbench.reports.tables.machines import RECORDED_RUNS, chip_file
from costbench.target import load_target
from tests.hardware.test_fidelity import V3, recorded


def test_the_times_of_a_kernel_are_those_of_its_fastest_tile() -> None:
    # Twice as long as simulated, but for the second tile.
    item = recorded([2.0, 1.0, 2.0, 2.0, 2.0], "copy.24")
    row = kernel_row(item, V3)
    fastest = int(np.argmin(item.runtime_ns))
    simulated_ns = simulate(item.kernel, item.tile_sizes, V3).runtime_ns[fastest]
    # Runs are in picoseconds here.
    assert float(str(row["recorded_us"])) == pytest.approx(item.runtime_ns[fastest] / 1e3, rel=5e-4)
    assert float(str(row["simulated_us"])) == pytest.approx(simulated_ns / 1e3, rel=5e-4)
    assert (row["use"], row["runs"]) == ("fitted", 5)
    assert str(row["item"]).startswith("copy.24: ")


@pytest.mark.slow
def test_the_rows_of_the_package_are_those_of_the_shipped_machine(shared_data: Path) -> None:
    """After a change of the machine, write them again as `benchmarks.recorded_runs` says."""
    runs = shared_data / "real_tpu"
    rows = rows_of(runs / "tile_calibration.pb", runs / "layout_module.pb", load_target("tpu_v3"))
    assert text_of(rows) == chip_file("tpu_v3", RECORDED_RUNS).read_text("utf-8")
