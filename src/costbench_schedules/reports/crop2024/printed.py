"""Table 2 of crop2024 as data."""

from __future__ import annotations

from pathlib import Path

from costbench.params import load_section
from costbench.reports.papers.printed import PrintedTable

_FILE = Path(__file__).with_suffix(".yaml")


def printed_scores() -> PrintedTable:
    """Returns Table 2: a row for each model and k, labelled `MODEL:k`, a column for each network.

    Raises:
        ParamsError: if the data file of the package is broken.
    """
    return load_section(_FILE, "scores", PrintedTable)
