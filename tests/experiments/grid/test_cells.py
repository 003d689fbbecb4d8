"""Cells and their names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from costbench.errors import DataError
from costbench.experiments.grid.cells import Cell, cell_from_name, listed_as, variant_labels
from costbench.experiments.grid.experiment import load_experiment
from costbench.experiments.parameter_file import Params, load_params


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
        ("hybrid-expert", ("hybrid", "expert"), ("hybrid", "expert-from-tpu_v2")),
        ("hybrid-wide", ("learned", "hybrid-wide"), ("learned", "hybrid-wide-from-tpu_v2")),
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


def test_labels_stand_beside_variants_and_change_no_training(repository: Path) -> None:
    params = load_params(repository / "params.yaml")
    plain = params.sections["experiments"]["folds-rivals-fusion"]
    changes = {"main": {}, "half": {"label": "half of them", "share": 0.5}}
    entries = {"folds-rivals-fusion": {**plain, "variants": changes}}
    labelled: Params = replace(params, sections={**params.sections, "experiments": entries})
    assert variant_labels(labelled) == {"half": "half of them"}
    assert load_experiment(labelled, "folds-rivals-fusion").variants["half"].share == 0.5
    assert variant_labels(params) == {"lpm2020-lstm": "LSTM alone, as in lpm2020"}
