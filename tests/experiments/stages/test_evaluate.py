"""Which test kernels the stage takes for seen, and which models it asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.artifacts import write_text
from costbench.datasets.storage import write_shard
from costbench.experiments.evaluation.program import Checkpoint, EvaluateParams, ProgramResult, ProgramTask
from costbench.experiments.grid.cells import Cell
from costbench.experiments.grid.experiment import Experiment, Grid, Variant
from costbench.experiments.identity import StageIdentity, identify, read_identity, write_identity
from costbench.experiments.stages import evaluate
from costbench.experiments.stages.evaluate import EvaluationTask, _checkpoints, _rows, _seen, evaluated
from costbench.features.feature_shards import feature_path
from costbench.training.spec import TrainSpec
from tests.datasets.tile_columns import metadata, tile_columns


def test_kernels_of_training_programs_are_seen(tmp_path: Path) -> None:
    programs = {"a": [0, 1, 255], "b": [1, 4], "c": [0, 1, 2]}
    paths = {name: feature_path(tmp_path, "tile", "tpu_v3", name) for name in programs}
    for name, fingerprints in programs.items():
        columns = tile_columns([2] * len(fingerprints), fingerprints=fingerprints)
        write_shard(paths[name], columns, metadata(name, "F"))
    # A fingerprint of zeros is as long as any other.
    assert _seen([paths["c"]], [paths["a"], paths["b"]]) == {"00" * 16, "01" * 16}


def test_rows_of_a_fold_are_rows_of_all_folds() -> None:
    metrics = {"all": {("learned", "main", 0): {"kendall_tau": 0.5}}}
    result = evaluated("k", ProgramResult("F", metrics), "revision")
    params = EvaluateParams(("random",), (1,), (0,))
    program = ProgramTask(Path(), Path(), "tpu_v3", "p", (), (), params, frozenset())
    for split, listed in (("fold2", "folds"), ("random", "random")):
        cell = Cell("tile", split, "tpu_v3", "main", 0)
        task = EvaluationTask(cell, program, "a later revision", Path())
        (row,) = _rows(task, result, StageIdentity("a", "b", "c"))
        assert (row.split, row.program, row.model, row.value) == (listed, "p", "learned", 0.5)
        assert row.git_revision == "revision"


def test_a_program_meets_the_models_of_its_own_fold() -> None:
    grid = Grid("tile", ("folds",), ("tpu_v3",), (0,))
    experiment = Experiment("e", grid, {"main": Variant(TrainSpec())}, num_folds=2)
    for split in experiment.splits:
        (found,) = _checkpoints(experiment, split, "tpu_v3", Path("train"))
        assert found.folder.name == f"tile-{split}-tpu_v3-main-s0"


def test_models_are_tested_where_they_were_trained_and_elsewhere_if_asked() -> None:
    variants = {"main": Variant(TrainSpec())}
    train, chips = Path("train"), ("tpu_v2", "tpu_v3")
    plain = Experiment("e", Grid("tile", ("random", "manual"), chips, (0, 1)), variants)
    own = tuple(
        Checkpoint("learned", "main", s, train / "e" / f"tile-random-tpu_v3-main-s{s}") for s in (0, 1)
    )
    assert _checkpoints(plain, "random", "tpu_v3", train) == own
    both = Experiment("e", Grid("tile", ("random",), chips, (0,), transfer=True), variants)
    found = _checkpoints(both, "random", "tpu_v3", train)
    assert [(one.variant, one.folder.name) for one in found] == [
        ("from-tpu_v2", "tile-random-tpu_v2-main-s0"),
        ("main", "tile-random-tpu_v3-main-s0"),
    ]


def test_restored_results_ask_for_no_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    params = tmp_path / "params.yaml"
    run = "run: {name: tiny, root: ., params: params.yaml, out: out, reports: reports}\n"
    sections = "evaluate: {models: [analytical], top_k: [1], random_seeds: [0]}\ntrain: {tile: {}}\n"
    experiments = "experiments: {e: {task: tile, splits: [random], chips: [tpu_v3]}}\n"
    write_text(params, run + sections + experiments)
    trained = StageIdentity("params", "data", "code")
    write_identity(tmp_path / "out/train/e", trained)

    def compute(*_: object) -> None:
        raise RuntimeError("evaluated")

    monkeypatch.setattr(evaluate, "evaluation_tasks", compute)
    with pytest.raises(RuntimeError):
        evaluate.run(params)
    identity = identify(evaluate.__name__, EvaluateParams(("analytical",), (1,), (0,)), "data", trained)
    write_identity(tmp_path / "out/evaluate/e", identity)
    evaluate.run(params)
    assert read_identity(tmp_path / "out/evaluate/e") == identity
    # Where the networks are at hand, they are evaluated.
    write_text(tmp_path / "out/train/e/tile-random-tpu_v3-main-s0/weights.pt", "weights")
    with pytest.raises(RuntimeError):
        evaluate.run(params)
