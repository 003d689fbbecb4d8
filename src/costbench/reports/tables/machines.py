"""Estimates on machines of other formulas and numbers that explain the recorded runs about as well.

The rows are a file beside that of the chip, which `python -m benchmarks.machine_findings` writes.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from costbench.reports.declared_tables import fill_table
from costbench.reports.table import Table

SUFFIX = ".machines.csv"
"""Ending of the file, beside the chip's."""
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


def machines_path(chip: str) -> Path:
    """Returns where the rows of a chip that ships with the package are kept."""
    return Path(str(importlib.resources.files("costbench") / "chips" / (chip + SUFFIX)))


def machines_table(chip: str) -> Table:
    """Returns the table of a chip: medians over machines, all and by formula; no rows without a file."""
    path = machines_path(chip)
    rows = pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=list(COLUMNS))
    names = [
        _NAMES.get(rule, f"{rule}: {choice}")
        for rule, choice in zip(rows["rule"], rows["choice"], strict=True)
    ]
    return fill_table("machines", rows.assign(machine=names), name=f"machines_{chip}", chip=chip)
