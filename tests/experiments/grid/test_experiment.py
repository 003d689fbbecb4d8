"""Entries of section `experiments`: their cells, their variants as changes, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from costbench.errors import ParamsError
from costbench.experiments.grid.cells import cell_from_name, experiment_names, selected
from costbench.experiments.grid.experiment import BudgetGrid, Experiment, load_experiment
from costbench.experiments.parameter_file import load_params
from costbench.experiments.sweeps.best import BestTrial, best_path, write_best

TRAIN: dict[str, Any] = {
    "tile": {"net": {"hidden": 8, "encoder_layers": 2}, "epochs": 3},
    "fusion": {"loss": "mse", "monitor": "mape"},
}
ENTRY: dict[str, Any] = {
    "task": "tile",
    "splits": ["random", "manual"],
    "chips": ["tpu_v2"],
    "seeds": [0, 1],
    "variants": {"main": {}, "wide-1": {"net": {"hidden": 16}, "share": 0.5}},
}


def load(folder: Path, **changes: object) -> Experiment:
    path = folder / "params.yaml"
    path.write_text(json.dumps({"train": TRAIN, "experiments": {"one": ENTRY | changes}}))
    return load_experiment(load_params(path), "one")


def test_cells_are_the_whole_grid(tmp_path: Path) -> None:
    cells = load(tmp_path).cells
    assert len(cells) == 2 * 1 * 2 * 2
    assert list(cells) == sorted(cells)
    assert cells[0].name == "tile-manual-tpu_v2-main-s0"


def test_task_and_variants_are_enough(tmp_path: Path) -> None:
    """The rest is the first split, the first chip, seed 0, no baselines."""
    path = tmp_path / "params.yaml"
    entry = {"task": "tile", "variants": {"wide": {"net": {"hidden": 16}}}}
    sections = {
        "train": TRAIN,
        "split": {"names": ["manual", "random"]},
        "features": {"chips": ["tpu_v3", "x"]},
    }
    path.write_text(json.dumps({**sections, "experiments": {"mine": entry}}))
    experiment = load_experiment(load_params(path), "mine")
    assert [cell.name for cell in experiment.cells] == ["tile-manual-tpu_v3-wide-s0"]
    assert experiment.grid.follows == "features"
    assert not experiment.grid.baselines


def test_trees_of_several_budgets_need_no_network(tmp_path: Path) -> None:
    budget = {"kernels": 400, "configs": 12, "max_trees": 60, "patience": 20}
    experiment = load(tmp_path, variants={}, budgets={"kernels-400": budget})
    assert experiment.cells == ()
    assert experiment.fits_baselines
    assert not load(tmp_path).fits_baselines
    grid = experiment.grid
    assert isinstance(grid, BudgetGrid)
    assert grid.budgets["kernels-400"].kernels == 400


def test_folds_are_a_cell_each(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    entry = ENTRY | {"splits": ["folds", "random"], "seeds": [0], "variants": {"main": {}}}
    split = {"folds": {"k": 3, "seed": 0, "num_validation": 2}}
    path.write_text(json.dumps({"train": TRAIN, "split": split, "experiments": {"one": entry}}))
    experiment = load_experiment(load_params(path), "one")
    assert experiment.splits == ("fold1", "fold2", "fold3", "random")
    assert [cell.name for cell in experiment.cells] == [
        f"tile-{split}-tpu_v2-main-s0" for split in ("fold1", "fold2", "fold3", "random")
    ]
    assert [cell_from_name(cell.name) for cell in experiment.cells] == list(experiment.cells)
    for split in ({}, {"folds": {"k": 3}}):
        path.write_text(json.dumps({"train": TRAIN, "split": split, "experiments": {"one": entry}}))
        with pytest.raises(ParamsError, match=r"params\.yaml: split\.folds"):
            load_experiment(load_params(path), "one")


def test_a_variant_changes_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    variants = load(tmp_path).variants
    assert (variants["main"].spec.net.hidden, variants["wide-1"].spec.net.hidden) == (8, 16)
    assert variants["wide-1"].spec.net.encoder_layers == 2
    assert variants["wide-1"].spec.epochs == 3
    assert (variants["main"].share, variants["wide-1"].share) == (1.0, 0.5)


def test_settings_change_all_variants_which_have_the_last_word(tmp_path: Path) -> None:
    variants = load(tmp_path, settings={"epochs": 1, "net": {"hidden": 4}}).variants
    assert {variant.spec.epochs for variant in variants.values()} == {1}
    assert (variants["main"].spec.net.hidden, variants["wide-1"].spec.net.hidden) == (4, 16)


@pytest.mark.parametrize(("follows", "hidden"), [("features", 8), ("sweep", 32)])
def test_an_experiment_that_follows_the_sweep_takes_its_values(
    tmp_path: Path, follows: str, hidden: int
) -> None:
    swept = tmp_path / "sweep"
    write_best(
        best_path(swept, "tile"),
        BestTrial("tile", "s", 3, "tau", 0.5, {"net.hidden": 32, "loss": "logistic"}),
    )
    load(tmp_path, follows=follows, settings={"epochs": 2})
    variants = load_experiment(load_params(tmp_path / "params.yaml"), "one", swept).variants
    spec = variants["main"].spec
    assert (spec.net.hidden, spec.net.encoder_layers, spec.epochs) == (hidden, 2, 2)
    assert spec.loss == ("logistic" if follows == "sweep" else "hinge")
    # The variant's own change is on top.
    assert variants["wide-1"].spec.net.hidden == 16


def test_a_task_that_was_not_swept_is_an_error(tmp_path: Path) -> None:
    load(tmp_path, follows="sweep")
    with pytest.raises(ParamsError, match=r"tile\.yaml: no such file"):
        load_experiment(load_params(tmp_path / "params.yaml"), "one", tmp_path / "sweep")


def test_the_settings_are_those_of_the_task(tmp_path: Path) -> None:
    fusion = load(tmp_path, task="fusion", variants={"main": {}})
    assert fusion.variants["main"].spec.loss == "mse"


def test_without_variants_there_is_the_main_one(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    entry = {key: value for key, value in ENTRY.items() if key != "variants"}
    path.write_text(json.dumps({"train": TRAIN, "experiments": {"one": entry, "two": ENTRY}}))
    assert list(load_experiment(load_params(path), "one").variants) == ["main"]
    assert experiment_names(load_params(path)) == selected(load_params(path), None) == ("one", "two")
    assert selected(load_params(path), "two") == ("two",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "schedule"}, "experiments.one.task"),
        ({"splits": []}, "splits are"),
        ({"follows": "train"}, "experiments.one.follows"),
        ({"settings": 3}, "experiments.one.settings: is no mapping"),
        ({"settings": {"epoch": 3}}, "epoch: unknown key"),
        ({"colour": 1}, "experiments.one.colour: unknown key"),
        ({"variants": {}}, "experiments.one.variants: no variants"),
        ({"budgets": {"many": {"kernels": 0}}}, "experiments.one.budgets"),
        ({"variants": {"Main!": {}}}, "experiments.one.variants.Main!: is no name"),
        ({"variants": {"main": 3}}, "experiments.one.variants.main: is no mapping"),
        ({"variants": {"main": {"net": {"hiden": 3}}}}, "variants.main.spec.net.hiden: unknown key"),
        ({"variants": {"main": {"share": 0}}}, "share is 0.0, must be above 0"),
        ({"variants": {"main": {"monitor": "mape"}}}, "needs absolute runtimes"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ParamsError) as caught:
        load(tmp_path, **changes)
    assert message in str(caught.value)
    assert "params.yaml" in str(caught.value)


def test_an_unknown_experiment_is_named_with_those_there_are(tmp_path: Path) -> None:
    load(tmp_path)
    with pytest.raises(ParamsError, match=r"no experiment 'two'.*one"):
        load_experiment(load_params(tmp_path / "params.yaml"), "two")
