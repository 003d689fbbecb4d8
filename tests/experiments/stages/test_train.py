"""What the cells of an experiment are trained on."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from costbench.artifacts import read_json, write_json, write_text
from costbench.datasets.splits import TrainingPrograms
from costbench.experiments.grid.cells import Cell
from costbench.experiments.grid.training_run import CellTask, Tracking, train_cell
from costbench.experiments.identity import closure
from costbench.experiments.stages import train
from costbench.experiments.stages.train import longest_first, share_of, training_of, with_samples
from costbench.experiments.tracking.runs import Provenance
from costbench.features.feature_shards import feature_path
from costbench.models.spec import NetSpec
from costbench.training.spec import TrainSpec

SPLIT = TrainingPrograms(tuple(f"p{i}" for i in range(10)), ("v", "w"))


def test_a_share_is_rounded_up_and_part_of_every_larger_one() -> None:
    shares = [share_of(SPLIT, share, 3) for share in (0.01, 0.25, 0.5, 1.0)]
    assert [len(names) for names in shares] == [1, 3, 5, 10]
    for smaller, larger in pairwise(shares):
        assert set(smaller) < set(larger)
    assert shares[-1] == tuple(sorted(SPLIT.train))


def test_another_seed_draws_another_share() -> None:
    assert len({share_of(SPLIT, 0.5, seed) for seed in range(8)}) > 4


def test_programs_without_samples_are_left_out(tmp_path: Path) -> None:
    for name in ("p1", "p7", "w"):
        path = feature_path(tmp_path, "fusion", "tpu_v2", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = with_samples(SPLIT, tmp_path, "fusion", "tpu_v2")
    assert (found.train, found.validation) == (("p1", "p7"), ("w",))


def cell(variant: str, spec: TrainSpec, folder: Path) -> CellTask:
    """A cell of that variant."""
    named = Cell("tile", "random", "tpu_v2", variant, 0)
    nowhere = Provenance("", "", ""), Tracking("", "", "")
    return CellTask(named, training_of(named.task), folder, SPLIT, spec, folder, "", 1, *nowhere)


def test_long_cells_come_first(tmp_path: Path) -> None:
    """More samples before fewer, and of equally many the reductions that take longest."""
    short = TrainSpec(epochs=2)
    tasks = [
        cell("a", short, tmp_path),
        cell("b", replace(short, net=NetSpec(reduction="lstm")), tmp_path),
        cell("c", replace(short, net=NetSpec(reduction="transformer")), tmp_path),
        cell("d", replace(short, epochs=3), tmp_path),
        cell("e", replace(short, net=NetSpec(reduction="per-node")), tmp_path),
    ]
    for order in (tasks, tasks[::-1]):
        assert [task.cell.variant for task in longest_first(order)] == ["d", "c", "b", "a", "e"]


def test_networks_of_layouts_are_no_part_of_what_tile_networks_follow_from() -> None:
    tiles, fusions, layouts = (
        closure(train_cell, type(training_of(task))) for task in ("tile", "fusion", "layout")
    )
    assert "costbench.models.layout.network" in set(layouts.modules) - set(tiles.modules)
    assert "costbench.models.networks.cost_network" in set(tiles.modules) - set(layouts.modules)
    assert tiles.digest() == fusions.digest() != layouts.digest()


def test_processor_time_stands_beside_the_wall_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timing = tmp_path / "cell.json"
    item = SimpleNamespace(task=SimpleNamespace(timing=timing, folder=tmp_path / "cell"))
    monkeypatch.setattr(train, "train_item", lambda item: write_json(timing, {"seconds": 2.5}))
    train.train_timed(item)  # type: ignore[arg-type]
    times = read_json(timing)
    assert (times["seconds"], set(times)) == (2.5, {"seconds", "core_seconds"})
    assert times["core_seconds"] >= 0.0
    # What an attempt that was killed has taken is not known.
    write_text(tmp_path / "cell" / "history.csv", "")
    train.train_timed(item)  # type: ignore[arg-type]
    assert read_json(timing) == {"seconds": 2.5}
    written = timing.read_bytes()
    # A cell that is there already was not trained.
    monkeypatch.setattr(train, "train_item", lambda item: None)
    train.train_timed(item)  # type: ignore[arg-type]
    assert timing.read_bytes() == written
