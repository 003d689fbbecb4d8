"""Cells and their names."""

from __future__ import annotations

import pytest

from costbench.errors import DataError
from costbench.experiments.grid.cells import Cell, cell_from_name, listed_as


@pytest.mark.parametrize("split", ["random", "fold1", "fold12"])
def test_names_lead_back_to_cells(split: str) -> None:
    cell = Cell("tile", split, "tpu_v2", "gat-column-wise", 12)
    assert cell.name == f"tile-{split}-tpu_v2-gat-column-wise-s12"
    assert cell_from_name(cell.name) == cell


@pytest.mark.parametrize(
    ("variant", "here", "elsewhere"),
    [
        ("main", ("learned", "main"), ("learned", "from-tpu_v2")),
        ("gat-lstm", ("learned", "gat-lstm"), ("learned", "gat-lstm-from-tpu_v2")),
        ("hybrid", ("hybrid", "main"), ("hybrid", "from-tpu_v2")),
        ("tuned", ("tuned", "main"), ("tuned", "from-tpu_v2")),
        ("lpm2021", ("lpm2021", "main"), ("lpm2021", "from-tpu_v2")),
        (
            "lpm2021-plus-loops",
            ("learned", "lpm2021-plus-loops"),
            ("learned", "lpm2021-plus-loops-from-tpu_v2"),
        ),
    ],
)
def test_results_are_listed_by_model_and_variant(
    variant: str, here: tuple[str, str], elsewhere: tuple[str, str]
) -> None:
    cell = Cell("tile", "random", "tpu_v2", variant, 0)
    assert (listed_as(cell, "tpu_v2"), listed_as(cell, "tpu_v3")) == (here, elsewhere)


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
