"""How simulated chips agree with recorded runs of real ones, and machines that explain these about as well.

The rows are files beside that of a chip. Those of recorded runs, which are no part of the project themselves,
are kernels that the chip was fitted to, and a test; `python -m benchmarks.recorded_runs` writes them.
Estimates on machines of other formulas and numbers are written by `python -m benchmarks.machine_findings`.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from costbench.reports.declared_tables import fill_table
from costbench.reports.table import Table

RECORDED_RUNS, MACHINES = ".recorded_runs.csv", ".machines.csv"
"""Endings of the files, beside the chip's."""
FITTED, TEST = "fitted", "test"
"""Uses of a row's runs: the machine was fitted to them, or it was compared with them afterwards."""
RECORDED_COLUMNS = (
    *("program", "item", "use", "runs", "recorded_us", "simulated_us"),
    *("error_percent", "tau", "lacks"),
)
SHIPPED, ALL = "shipped", "all"
"""Values of `rule` in the rows of the chip as it ships and of the whole ensemble."""
ORDERS: Mapping[str, tuple[str, ...]] = {
    "order_tau": ("tau_iterations", "tau_compiler", "tau_expert"),
    "order_ape": ("ape_iterations", "ape_compiler", "ape_expert"),
    "order_error": ("error_compiler", "error_expert"),
}
"""Column with the percentage of machines on which figures have the order that they have on the chip."""
COLUMNS = (
    "rule",
    "choice",
    "machines",
    "recorded_error",
    "recorded_tau",
    *ORDERS["order_tau"],
    "tau_shipped",
    *ORDERS["order_ape"],
    "ape_shipped",
    "ape_ten",
    *ORDERS["order_error"],
    "explained_compiler",
    "explained_expert",
    *ORDERS,
)
_NAMES = {SHIPPED: "as it ships", ALL: "all of the ensemble"}


def chip_file(chip: str, ending: str) -> Path:
    """Returns where rows of a chip that ships with the package are kept."""
    return Path(str(importlib.resources.files("costbench") / "chips" / (chip + ending)))


def _rows_of(chip: str, ending: str, columns: Sequence[str]) -> pd.DataFrame:
    """Returns the rows of a chip, none without a file."""
    path = chip_file(chip, ending)
    return pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=list(columns))


def agreement_of(chip: str) -> dict[str, object] | None:
    """Returns what the rows of a chip say, for a sentence; None without both fitted kernels and a test.

    Returns:
        `chip`; of the `kernels` that it was fitted to, their number, `runs`, and means of error (percent) and
        tau, `fitted_error` and `fitted_tau`; of the `program` that it was not fitted to `test_runs`,
        `test_ratio` (its simulated over its recorded runtime), `test_error` and `test_tau`.
    """
    rows = _rows_of(chip, RECORDED_RUNS, RECORDED_COLUMNS)
    fitted, test = rows[rows["use"] == FITTED], rows[rows["use"] == TEST]
    if not len(fitted) or not len(test):
        return None
    program = test.iloc[0]
    return {
        "chip": chip,
        "kernels": len(fitted),
        "runs": int(fitted["runs"].sum()),
        "fitted_error": float(fitted["error_percent"].mean()),
        "fitted_tau": float(fitted["tau"].mean()),
        "program": str(program["program"]),
        "test_runs": int(program["runs"]),
        "test_ratio": float(program["simulated_us"] / program["recorded_us"]),
        "test_error": float(program["error_percent"]),
        "test_tau": float(program["tau"]),
    }


def recorded_runs_table(chip: str) -> Table:
    """Returns the table of a chip, a row for each kernel or program with recorded runs."""
    rows = _rows_of(chip, RECORDED_RUNS, RECORDED_COLUMNS)
    return fill_table("recorded_runs", rows, name=f"recorded_runs_{chip}", chip=chip)


def machines_table(chip: str) -> Table:
    """Returns the table of a chip: medians over machines, all and by formula; no rows without a file."""
    rows = _rows_of(chip, MACHINES, COLUMNS)
    names = [
        _NAMES.get(rule, f"{rule}: {choice}")
        for rule, choice in zip(rows["rule"], rows["choice"], strict=True)
    ]
    return fill_table("machines", rows.assign(machine=names), name=f"machines_{chip}", chip=chip)
