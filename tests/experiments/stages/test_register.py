"""Stage `register`: the best tracked model of a task becomes its champion, or the log says why not."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import yaml

from costbench.artifacts import read_json
from costbench.errors import ParamsError
from costbench.experiments.grid.cells import Cell
from costbench.experiments.stages.register import run
from costbench.experiments.tracking.runs import client_of
from tests.experiments.finished_cells import finish_cell, track_cell

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
    found = champions(tmp_path)
    assert isinstance(found, dict)
    assert set(found) == {"tile"}
    assert {"metric": 0.5, "monitor": "tau", "key": "good"}.items() <= found["tile"].items()


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
        ParamsError, match=r"register: split is .alphabetical., must be random, manual, or fold1"
    ):
        run(profile(tmp_path, split="alphabetical"))
