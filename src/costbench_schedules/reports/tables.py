"""Tables of the page, as `tables.yaml` beside this file declares them."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from costbench.reports import declared_tables

fill_table = partial(declared_tables.fill_table, file=Path(__file__).with_name("tables.yaml"))
"""See `costbench.reports.declared_tables.fill_table`."""
