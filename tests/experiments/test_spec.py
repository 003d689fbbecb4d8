"""Cells, their names, and the grid."""

from __future__ import annotations

import pytest

from costbench.errors import DataError
from costbench.experiments.spec import Cell, cell_from_name, grid


def test_names_lead_back_to_cells() -> None:
    cell = Cell("tile", "random", "tpu_v2", 12)
    assert cell.name == "tile-random-tpu_v2-s12"
    assert cell_from_name(cell.name) == cell


@pytest.mark.parametrize(
    "name", ["", "tile-random-tpu_v2", "tile-random-tpu_v2-sx", "x/tile-random-tpu_v2-s0"]
)
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(DataError, match="names no cell"):
        cell_from_name(name)


def test_the_grid_is_complete_and_sorted() -> None:
    cells = grid(["tile"], ["random", "manual"], ["tpu_v3", "tpu_v2"], [1, 0])
    assert len(cells) == 8
    assert list(cells) == sorted(cells)
    assert cells[0].name == "tile-manual-tpu_v2-s0"
