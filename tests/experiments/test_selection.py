"""What is chosen is chosen on validation programs: code that chooses cannot read results of test programs."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from costbench.datasets.splits import read_training_programs
from costbench.execution.workers import Backend
from costbench.experiments.grid.cells import Cell
from costbench.experiments.grid.training_run import CellTask, Tracking, train_cell
from costbench.experiments.stages.train import TRAININGS, with_samples
from costbench.experiments.sweeps.best import best_path
from costbench.experiments.sweeps.sweep import sweep
from costbench.experiments.tracking.runs import OFF, Provenance
from costbench.features.feature_shards import feature_path
from costbench.models.spec import NetSpec
from costbench.params import load_yaml
from costbench.training.spec import BatchSpec, TrainSpec, ValidationSpec
from tests.experiments.toy_sweep import toy_task
from tests.features.finished_stages import SPLIT, write_stages

CHOOSES = (
    "training",
    "experiments/grid",
    "experiments/sweeps",
    "experiments/stages/register.py",
    "experiments/stages/sweep.py",
    "experiments/stages/train.py",
    "experiments/tracking",
)
SPEC = TrainSpec(
    net=NetSpec(hidden=8, opcode_embedding=4, encoder_layers=1),
    batch=BatchSpec(kernels=4, configs=8, per_epoch=4),
    validation=ValidationSpec(kernels=4, configs=8),
    epochs=2,
)


def sources(repository: Path) -> list[Path]:
    places = [repository / "src" / "costbench" / name for name in CHOOSES]
    return sorted(path for place in places for path in (place.rglob("*.py") if place.is_dir() else (place,)))


def test_code_that_chooses_knows_no_test_programs(repository: Path) -> None:
    """It gets `TrainingPrograms`, never a `Split`, and reads no result rows."""
    found = sources(repository)
    assert len(found) > 20
    for path in found:
        names = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
        attributes = {
            node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)
        }
        assert not names & {"Split", "read_split", "read_rows", "MetricRow"}, path
        assert not attributes & {"test", "sets"}, path


@pytest.fixture(scope="module")
def data(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Split and features without a shard of the test program."""
    root = tmp_path_factory.mktemp("out")
    write_stages(root, repository)
    assert not feature_path(root / "features", "tile", "tpu_v3", SPLIT.test[0]).exists()
    return root


def cell_of(data: Path, folder: Path, variant: str = "main") -> CellTask:
    programs = read_training_programs(data / "split" / "random.json")
    return CellTask(
        cell=Cell("tile", "random", "tpu_v3", variant, 0),
        training=TRAININGS["kernel"],
        features=data / "features",
        split=with_samples(programs, data / "features", "tile", "tpu_v3"),
        spec=SPEC,
        folder=folder / variant,
        code="code",
        cache_mb=16,
        provenance=Provenance("", "", ""),
        tracking=Tracking(OFF, "", ""),
    )


@pytest.mark.slow
def test_trainings_of_equal_settings_are_equal_whatever_they_are_called(data: Path, tmp_path: Path) -> None:
    """So that one may stand for the other. No test program has a shard."""
    first, second = (cell_of(data, tmp_path, name) for name in ("main", "scale-100"))
    results = [train_cell(first), train_cell(second)]
    assert results[0] == replace(results[1], key=first.key())
    for name in ("weights.pt", "model.json", "history.csv"):
        assert (first.folder / name).read_bytes() == (second.folder / name).read_bytes(), name


@pytest.mark.slow
def test_a_sweep_needs_no_test_programs(data: Path, tmp_path: Path, url: str) -> None:
    toy = toy_task(url, tmp_path, trials=2)
    cell = cell_of(data, tmp_path, "sweep")
    task = replace(toy, cell=replace(cell, spec=SPEC), space=replace(toy.space, base=SPEC))
    sweep([task], 1, Backend(jobs=1), tmp_path)
    best = load_yaml(best_path(tmp_path, "tile"))
    assert -1.0 <= best["metric"] <= 1.0
