"""How simulated chips agree with recorded runs of real ones: kernels they were fitted to, and a test.

The rows are a file beside that of the chip, which `python -m benchmarks.recorded_runs` writes, since the
recorded runs themselves are not part of the project.
"""

from __future__ import annotations

import importlib.resources
from pathlib import Path

import pandas as pd

from costbench.reports.declared_tables import fill_table
from costbench.reports.table import Table

SUFFIX = ".recorded_runs.csv"
"""Ending of the file, beside the chip's."""
FITTED, TEST = "fitted", "test"
"""Uses of a row's runs: the machine was fitted to them, or it was compared with them afterwards."""
COLUMNS = (
    "program",
    "item",
    "use",
    "runs",
    "recorded_us",
    "simulated_us",
    "error_percent",
    "tau",
    "lacks",
)


def recorded_runs_path(chip: str) -> Path:
    """Returns where the rows of a chip that ships with the package are kept."""
    return Path(str(importlib.resources.files("costbench") / "chips" / (chip + SUFFIX)))


def recorded_runs(chip: str) -> pd.DataFrame:
    """Returns the rows of a chip, none for a chip of which nothing was recorded."""
    path = recorded_runs_path(chip)
    return pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=list(COLUMNS))


def agreement_of(chip: str) -> dict[str, object] | None:
    """Returns what the rows of a chip say, for a sentence; None without both fitted kernels and a test.

    Returns:
        `chip`; of the `kernels` that it was fitted to, their number, `runs`, and means of error (percent) and
        tau, `fitted_error` and `fitted_tau`; of the `program` that it was not fitted to `test_runs`,
        `test_ratio` (its simulated over its recorded runtime), `test_error` and `test_tau`.
    """
    rows = recorded_runs(chip)
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
    return fill_table("recorded_runs", recorded_runs(chip), name=f"recorded_runs_{chip}", chip=chip)
