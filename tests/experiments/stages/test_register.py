"""Stage `register`: the best tracked model of a task becomes its champion, or the log says why not."""

from __future__ import annotations

import hashlib
import logging
import shutil
from pathlib import Path

import pytest
import yaml

from costbench.artifacts import read_json
from costbench.cli.serve import trained_model
from costbench.errors import ParamsError
from costbench.experiments.grid.cells import Cell
from costbench.experiments.stages.register import run
from costbench.experiments.tracking.registry import example
from costbench.experiments.tracking.runs import client_of
from costbench.serving.service import load_service
from tests.experiments.finished_cells import finish_cell, track_cell
from tests.pipelines.workplace import call, digest_folder
from tests.serving.test_service import FAR

pytestmark = [
    # MLflow's own use of SQLAlchemy, and what it says of its own type hints.
    pytest.mark.filterwarnings("ignore:The ``noload``:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred:UserWarning"),
]


def profile(folder: Path, **changes: object) -> Path:
    sections = {
        "run": {"name": "toy", "root": ".", "params": "params.yaml", "out": "out", "reports": "out/reports"},
        "register": {"split": "random", "chip": "tpu_v2", **changes},
    }
    path = folder / "params.yaml"
    path.write_text(yaml.safe_dump(sections))
    return path


def champions(folder: Path) -> object:
    return read_json(folder / "out" / "register" / "champions.json")


def test_the_best_cell_of_the_profile_split_and_chip_is_the_champion(
    tracking_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_store)
    cells = (
        ("good", 0.5, Cell("tile", "random", "tpu_v2", "main", 0), "toy"),
        ("worse", 0.25, Cell("tile", "random", "tpu_v2", "main", 1), "toy"),
        ("other split", 0.75, Cell("tile", "manual", "tpu_v2", "main", 0), "toy"),
        ("other chip", 0.75, Cell("tile", "random", "tpu_v3", "main", 0), "toy"),
        ("other profile", 0.75, Cell("tile", "random", "tpu_v2", "main", 0), "laptop"),
    )
    runs = {}
    for key, tau, cell, name in cells:
        folder = finish_cell(tmp_path / key, "tile", key, tau)
        runs[key] = track_cell(tracking_store, cell, folder, key, tau, profile=name)
    run(profile(tmp_path))
    version = client_of(tracking_store).get_model_version_by_alias("costbench-tile-toy", "champion")
    assert version.run_id == runs["good"]
    assert [model.name for model in client_of(tracking_store).search_registered_models()] == [
        "costbench-tile-toy"
    ]
    chosen = champions(tmp_path)
    assert isinstance(chosen, dict)
    assert set(chosen) == {"tile"}
    assert {"metric": 0.5, "monitor": "tau", "key": "good"}.items() <= chosen["tile"].items()


def _copies(folder: Path) -> dict[str, bytes]:
    """Files of the copied champions by cell and name."""
    register = folder / "out" / "register"
    return {path.relative_to(register).as_posix(): path.read_bytes() for path in register.glob("*/*")}


def test_a_champion_is_copied_and_stays_where_no_run_tells_of_it(
    tracking_store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until its cell is trained again there, or a better one is."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_store)
    cell = Cell("tile", "random", "tpu_v2", "main", 0)
    folder = finish_cell(tmp_path / "out" / "train" / "main" / cell.name, "tile", "one", 0.5)
    track_cell(tracking_store, cell, folder, "one", 0.5, profile="toy")
    params = profile(tmp_path)
    run(params)
    weights = (folder / "weights.pt").read_bytes()
    copies = _copies(tmp_path)
    assert set(copies) == {f"{cell.name}/model.json", f"{cell.name}/weights.pt"}
    assert copies[f"{cell.name}/weights.pt"] == weights
    page = (tmp_path / "out" / "reports" / "champions.md").read_text()
    assert (
        f"out/register/{cell.name}/weights.pt | {len(weights):,} | {hashlib.md5(weights).hexdigest()}" in page
    )
    assert f"$ costbench serve out/register/{cell.name}\n" in page
    before = champions(tmp_path)

    monkeypatch.setenv("COSTBENCH_TRACKING", "off")
    run(params)
    shutil.rmtree(folder)  # a clone that pulled the champion and nothing else
    run(params)
    assert (champions(tmp_path), _copies(tmp_path)) == (before, copies)
    run(profile(tmp_path, chip="tpu_v3"))
    assert (champions(tmp_path), _copies(tmp_path)) == ({}, {})
    profile(tmp_path)
    monkeypatch.delenv("COSTBENCH_TRACKING")
    finish_cell(folder, "tile", "one", 0.5)
    run(params)
    assert champions(tmp_path) == before

    finish_cell(folder, "tile", "two", 0.75, seed=1)
    monkeypatch.setenv("COSTBENCH_TRACKING", "off")
    run(params)
    assert (champions(tmp_path), _copies(tmp_path)) == ({}, {})
    other = Cell("tile", "random", "tpu_v2", "other", 0)
    better = finish_cell(folder.with_name(other.name), "tile", "three", 1.0, seed=2)
    monkeypatch.delenv("COSTBENCH_TRACKING")
    track_cell(tracking_store, other, better, "three", 1.0, profile="toy")
    run(params)
    assert set(_copies(tmp_path)) == {f"{other.name}/model.json", f"{other.name}/weights.pt"}


def test_a_fresh_clone_takes_the_champion_and_nothing_else(
    tracking_store: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By DVC from a local remote, without knowing the name of a cell, and without a tracking store."""
    here, clone, register = tmp_path / "here", tmp_path / "clone", "out/headline/register"
    for name in ("profiles/headline/dvc.yaml", ".dvc/config", ".gitignore", ".dvcignore"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(repository / name, here / name)
    run_section = {
        "name": "headline", "root": "../..", "params": "profiles/headline/params.yaml",
        "out": "out/headline", "reports": "reports/headline",
    }  # fmt: skip
    params = here / "profiles" / "headline" / "params.yaml"
    params.write_text(yaml.safe_dump({"run": run_section, "register": {"split": "random", "chip": "tpu_v2"}}))
    cell = Cell("tile", "random", "tpu_v2", "main", 0)
    trained = finish_cell(here / "out" / "headline" / "train" / "main" / cell.name, "tile", "one", 0.5)
    track_cell(tracking_store, cell, trained, "one", 0.5, profile="headline")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_store)
    run(params)
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    for folder, command in (
        (here, ["git", "init", "-q"]),
        (here, ["dvc", "remote", "add", "--default", "shared", str(tmp_path / "remote")]),
        (here, ["dvc", "commit", "--force", "profiles/headline/dvc.yaml"]),
        (here, ["git", "add", "."]),
        (here, ["git", *identity, "commit", "-qm", "computed"]),
        (here, ["dvc", "push", register]),
        (tmp_path, ["git", "clone", "-q", str(here), str(clone)]),
        (clone, ["dvc", "pull", register]),
    ):
        done = call(folder, command)
        assert done.returncode == 0, done.stdout + done.stderr
    assert digest_folder(clone / register) == digest_folder(here / register)
    assert [path.name for path in (clone / "out" / "headline").iterdir()] == ["register"]
    assert f"$ dvc pull {register}\n" in (clone / "reports" / "headline" / "champions.md").read_text()
    (pulled,) = (clone / register).glob("tile-*")
    folder, task, chip = trained_model(str(pulled))
    assert (task, chip) == ("tile", "tpu_v2")
    requests = example(task).to_dict("records")
    answers = [load_service(model, task, chip, FAR).answer(requests) for model in (folder, trained)]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("text", ["[]", "{", '{"tile": {"model": "toy/main/mine"}}'])
def test_a_damaged_list_of_champions_is_written_again(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSTBENCH_TRACKING", "off")
    path = tmp_path / "out" / "register" / "champions.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    run(profile(tmp_path))
    assert champions(tmp_path) == {}


def test_without_tracking_there_is_no_champion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("COSTBENCH_TRACKING", "off")
    with caplog.at_level(logging.INFO):
        run(profile(tmp_path))
    assert "tracking is off: no champions" in caplog.text
    assert champions(tmp_path) == {}


def test_an_unknown_split_is_one_error(tmp_path: Path) -> None:
    with pytest.raises(
        ParamsError,
        match=r"register: split is .alphabetical., must be .* a fold by name: fold1, random_fold1",
    ):
        run(profile(tmp_path, split="alphabetical"))
