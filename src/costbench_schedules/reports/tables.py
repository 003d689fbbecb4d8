"""Tables of the page are declared in `tables.yaml` beside this file."""

from __future__ import annotations

from pathlib import Path

TABLES = Path(__file__).with_name("tables.yaml")
"""File that `costbench.reports.declared_tables.fill_table` takes."""
