"""Stage `autotune`: which programs are tuned, what is left, and what is kept when it runs again."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costbench.artifacts import read_json
from costbench.datasets.splits import Split, write_split
from costbench.errors import DataError, ParamsError, UnsupportedKernelError
from costbench.experiments.autotuning.work_items import AutotuneParams, TuningItem, TuningItems
from costbench.experiments.identity import StageIdentity, read_identity, write_identity
from costbench.experiments.parameter_file import load_params, load_sections
from costbench.experiments.stages import autotune, features, generate
from costbench.experiments.workspace import load_workspace
from costbench.metrics.rows import MetricRow, read_rows
from costbench.params import merge
from costbench.store import WorkItem
from tests.experiments.finished_cells import finish_cell
from tests.sentences import numbers

TEST, OTHER = "rnn_char_b64_infer_f32", "wavernn_3_b1_infer_bf16"
SEARCH = {
    "tile": {"search": {"top_k": [1, 4], "max_tiles_per_kernel": 8}},
    "fusion": {
        "search": {
            "hardware_minutes": [1],
            "best_known_minutes": 3,
            "model_minutes": 0.001,
            "repeats": 2,
            "free_evaluations": 20,
        }
    },
}


def profile(folder: Path, repository: Path, **changes: object) -> Path:
    """Parameters of a run that samples two programs, one of which is tested on."""
    sections: Any = load_sections(repository / "profiles" / "smoke" / "params.yaml")
    sections["run"] |= {"root": str(repository), "out": str(folder / "out"), "jobs": 1}
    sections["generate"] |= {"tasks": ["tile", "fusion"], "programs": [TEST, OTHER]}
    sections["features"]["tasks"] = ["tile", "fusion"]
    sections["generate"]["tile"] |= {"max_tiles_per_kernel": 6, "max_kernels_per_program": 4}
    sections["autotune"] = merge(merge(sections["autotune"], SEARCH), changes)
    path = folder / "params.yaml"
    path.write_text(json.dumps(sections))
    return path


@pytest.fixture(scope="module", autouse=True)
def untracked() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COSTBENCH_TRACKING", "off")
        yield


@pytest.fixture(scope="module")
def params(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A profile of which all stages before this one have run, with models that were not trained."""
    folder = tmp_path_factory.mktemp("profile")
    path = profile(folder, repository)
    generate.run(path)
    features.run(path)
    out = folder / "out"
    write_split(out / "split" / "random.json", Split("random", (OTHER,), (), (TEST,)))
    write_split(out / "split" / "manual.json", Split("manual", (TEST,), (), (OTHER,)))
    write_identity(out / "split", StageIdentity("s", "d", "c"))
    cells = [
        ("main-tile", "main"),
        ("hybrid-tile", "hybrid"),
        ("tuned-tile", "tuned"),
        ("main-fusion", "main"),
        ("hybrid-fusion", "hybrid"),
    ]
    finish_cell(out / "train" / "main-tile" / "tile-manual-tpu_v2-main-s0", "tile", "key", 1.0)
    for experiment, variant in cells:
        task = experiment.split("-")[1]
        finish_cell(out / "train" / experiment / f"{task}-random-tpu_v2-{variant}-s0", task, "key", 1.0)
        write_identity(out / "train" / experiment, StageIdentity(experiment, "d", "c"))
    autotune.run(path)
    return path


def rows_of(params: Path) -> tuple[MetricRow, ...]:
    return read_rows(params.parent / "out" / "autotune" / "rows.jsonl")


def items_of(params: Path) -> dict[str, tuple[int, bytes]]:
    """By name, when each was written, and what."""
    folder = params.parent / "out" / "autotune" / "work_items"
    return {path.stem: (path.stat().st_mtime_ns, path.read_bytes()) for path in sorted(folder.iterdir())}


def test_rows_of_tiles(params: Path) -> None:
    rows = [row for row in rows_of(params) if row.task == "tile"]
    # What only the other split tests gains most, there being nothing else.
    assert {(row.split, row.program) for row in rows} == {("random", TEST), ("gains", OTHER)}
    assert {(row.chip, row.kernels, row.seed) for row in rows} == {("tpu_v2", "all", 0)}
    models = ("learned", "hybrid", "tuned", "analytical")
    expected = {(m, v) for m in (*models, "alternating", "random") for v in ("top1", "top4")}
    expected |= {*((m, "compiler") for m in models), ("best", "main")}
    expected |= {("exhaustive", "all"), ("sample", "all")}
    assert {(row.model, row.variant) for row in rows} == expected
    # Only one of the models was trained for the split that tests it.
    of_gains = {row.model for row in rows if row.split == "gains" and row.variant == "compiler"}
    assert of_gains == {"learned", "analytical"}
    metrics = {"speedup", "slowdown", "num_measured", "hardware_seconds"}
    assert {row.metric for row in rows if row.model != "best"} == metrics
    slowdowns = [row.value for row in rows if row.metric == "slowdown" and row.model != "best"]
    assert min(slowdowns) == 0.0


def test_rows_of_fusions(params: Path) -> None:
    rows = [row for row in rows_of(params) if row.task == "fusion"]
    assert {(row.split, row.program) for row in rows} == {("random", TEST)}
    arms = ("hardware", "model and hardware", "hybrid and hardware", "analytical and hardware")
    expected = {(arm, f"{start}-1m", s) for arm in arms for start in ("default", "random") for s in (0, 1)}
    expected |= {("hardware", "default-3m", 0), ("best known", "all", 0), ("best", "main", 0)}
    assert {(row.model, row.variant, row.seed) for row in rows} == expected
    predicted = {row.model for row in rows if row.metric == "num_predicted" and row.value > 0}
    assert predicted == set(arms[1:])


def test_every_row_says_what_it_follows_from(params: Path) -> None:
    identity = read_identity(params.parent / "out" / "autotune")
    found = {(row.params_digest, row.data_digest) for row in rows_of(params)}
    assert found == {(identity.params_digest, identity.data_digest)}
    assert {row.application for row in rows_of(params)} == {"RNN", "WaveRNN"}


def test_curves_end_at_the_bars(params: Path) -> None:
    curves: Any = read_json(params.parent / "out" / "autotune" / "search.json")
    assert len(curves) == 2 * 4
    speedups: dict[tuple[str, str], list[float]] = {}
    for row in rows_of(params):
        if row.task == "fusion" and row.metric == "speedup":
            speedups.setdefault((row.model, row.variant), []).append(row.value)
    for curve in curves:
        place = (curve["task"], curve["split"], curve["chip"], curve["program"])
        assert place == ("fusion", "random", "tpu_v2", TEST)
        minutes = curve["seconds"][-1] / 60
        found = speedups[curve["model"], f"{curve['start']}-{minutes:g}m"]
        assert curve["median"][-1] == np.median(found)
        assert (curve["lowest"][-1], curve["highest"][-1]) == (min(found), max(found))


def test_a_second_run_keeps_everything(params: Path, caplog: pytest.LogCaptureFixture) -> None:
    before, rows = items_of(params), rows_of(params)
    with caplog.at_level(logging.INFO, "costbench"):
        autotune.run(params)
    # Programs, results that are kept, and what is left to do.
    assert [3, 3, 0] in [numbers(message) for message in caplog.messages]
    assert (items_of(params), rows_of(params)) == (before, rows)


def test_only_what_is_missing_or_changed_is_done(params: Path, repository: Path) -> None:
    folder = params.parent
    before, rows = items_of(params), rows_of(params)
    items = folder / "out" / "autotune" / "work_items"
    # One is lost, one is damaged, and one is of another run.
    (items / f"tile-random-tpu_v2-{TEST}.json").unlink()
    (items / f"fusion-random-tpu_v2-{TEST}.json").write_text("{}")
    (items / "tile-manual-tpu_v9-none.json").write_text("{}")
    autotune.run(params)
    after = items_of(params)
    assert {name: content for name, (_, content) in after.items()} == {
        name: content for name, (_, content) in before.items()
    }
    kept = [name for name in after if after[name][0] == before[name][0]]
    assert kept == [f"tile-gains-tpu_v2-{OTHER}"]
    assert rows_of(params) == rows
    # Parameters of one decision are nothing to the work items of the other.
    autotune.run(profile(folder, repository, tile={"search": {"top_k": [1, 2]}}))
    changed = items_of(params)
    assert [name for name in changed if changed[name] == after[name]] == [f"fusion-random-tpu_v2-{TEST}"]
    autotune.run(profile(folder, repository))
    assert rows_of(params) == rows


def test_large_programs_are_left_out(
    params: Path, repository: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "out").mkdir()
    for stage in ("features", "split", "train"):
        (tmp_path / "out" / stage).symlink_to(params.parent / "out" / stage)
    small = {"programs": {"max_instructions": 10, "gains": 0}}
    with caplog.at_level(logging.INFO, "costbench"):
        autotune.run(profile(tmp_path, repository, fusion=small, tile=small))
    assert f"{TEST} is left out" in caplog.text
    assert rows_of(tmp_path / "params.yaml") == ()


def tile_items(path: Path) -> list[TuningItem]:
    params = load_params(path)
    section = params.section("autotune", AutotuneParams)
    return list(TuningItems(load_workspace(params), 0).of("tile", section.tile))


def test_a_program_that_does_not_fit_the_chip_has_no_results(
    params: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And does not end the stage, hours later."""

    def fails(task: object) -> None:
        raise UnsupportedKernelError("no tile fits", where="program")

    monkeypatch.setattr(autotune, "autotune", fails)
    item, *_ = tile_items(params)
    tuned = autotune.tune_program(WorkItem.of(item.name, (item, "revision"), tmp_path, ["key"]))
    assert (tuned.entries, tuned.curves) == ((), ())
    assert len(list(tmp_path.iterdir())) == 1


def test_programs_of_folds_are_tuned_with_the_networks_of_their_fold(
    params: Path, repository: Path, tmp_path: Path
) -> None:
    """Listed under `folds`, all seeds of them; a variant of an experiment is named after a dot."""
    out = tmp_path / "out"
    (out / "features").parent.mkdir()
    (out / "features").symlink_to(params.parent / "out" / "features")
    write_split(out / "split" / "fold1.json", Split("fold1", (OTHER,), (), (TEST,)))
    write_split(out / "split" / "fold2.json", Split("fold2", (TEST,), (), (OTHER,)))
    programs = {"splits": ["folds"], "gains": 0}
    models = ["folds-tile", "folds-tile.hybrid"]
    path = profile(tmp_path, repository, tile={"programs": programs, "models": models})
    sections = load_sections(path)
    sections["experiments"]["folds-tile"]["seeds"] = [1, 0]
    path.write_text(json.dumps(sections))
    items = {item.name: item for item in tile_items(path)}
    assert {*items} == {f"tile-folds-tpu_v2-{TEST}", f"tile-folds-tpu_v2-{OTHER}"}
    checkpoints = items[f"tile-folds-tpu_v2-{OTHER}"].task.checkpoints
    cells = {model: [folder.name for folder in folders] for model, folders in checkpoints.items()}
    assert cells == {
        "learned": ["tile-fold2-tpu_v2-main-s0", "tile-fold2-tpu_v2-main-s1"],
        "hybrid": ["tile-fold2-tpu_v2-hybrid-s0", "tile-fold2-tpu_v2-hybrid-s1"],
    }
    wrong = profile(tmp_path, repository, tile={"programs": programs, "models": ["folds-tile.hybird"]})
    with pytest.raises(ParamsError, match=r"no variant 'hybird' of folds-tile.*main, hybrid, lpm2021"):
        tile_items(wrong)


# MLflow's own use of SQLAlchemy.
@pytest.mark.filterwarnings("ignore:The ``noload``:DeprecationWarning")
def test_what_the_user_can_mend(
    params: Path, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError, match="finished stage"):
        autotune.run(profile(tmp_path, repository))
    with pytest.raises(ParamsError, match=r"fusion.*only for tile sizes"):
        autotune.run(profile(tmp_path, repository, fusion={"programs": {"gains": 1}}))
    with pytest.raises(ParamsError, match="must be different ones"):
        autotune.run(profile(tmp_path, repository, tile={"programs": {"chips": ["tpu_v2", "tpu_v2"]}}))
    # Before anything is tuned.
    monkeypatch.setattr(autotune, "compute", None)
    monkeypatch.delenv("COSTBENCH_TRACKING", raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{params}/mlflow.db")
    with pytest.raises(DataError, match=r"params\.yaml/mlflow\.db"):
        autotune.run(params)
