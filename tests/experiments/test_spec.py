"""Cells and their names."""

from __future__ import annotations

import pytest

from costbench.errors import DataError
from costbench.experiments.spec import Cell, cell_from_name


def test_names_lead_back_to_cells() -> None:
    cell = Cell("tile", "random", "tpu_v2", "gat-column-wise", 12)
    assert cell.name == "tile-random-tpu_v2-gat-column-wise-s12"
    assert cell_from_name(cell.name) == cell


@pytest.mark.parametrize(
    "name",
    [
        "",
        "tile-random-tpu_v2",
        "tile-random-tpu_v2-s0",
        "tile-random-tpu_v2-main-sx",
        "x/tile-random-tpu_v2-main-s0",
    ],
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(DataError, match="names no cell"):
        cell_from_name(name)
