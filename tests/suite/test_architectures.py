"""Architectures of the profile become entries: tuned alike, trained on folds, scored; a rerun goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

from costbench.errors import ChoiceError, DataError
from costbench.experiments.parameter_file import load_params, load_sections
from costbench.experiments.stages.sweep import load_sweep
from costbench.experiments.sweeps.space import resolve
from costbench.params import load_yaml, merge
from costbench_suite import architectures
from costbench_suite.architectures import Architectures
from costbench_suite.card import read_card
from costbench_suite.cli import app
from costbench_suite.predictions import read_predictions
from costbench_suite.scoring import score
from costbench_suite.task_data import TaskData

BUDGET = {"epochs": 1, "batch": {"per_epoch": 2, "kernels": 2, "configs": 4}, "validation": {"kernels": 4}}
CHANGES: dict[str, Any] = {
    "sweep": {
        "trials": 2,
        "startup_trials": 1,
        "model": {"tile": BUDGET},
        "space": {"tile": {"net.hidden": {"choices": [8, 16]}}},
    },
    "train": {"tile": {"net": {"hidden": 8, "opcode_embedding": 8}}},
    "baselines": {"tile": {"training": {"kernels": 8, "configs": 8}, "trees": {"max_trees": 2}}},
}


@pytest.fixture(scope="module")
def project(repository: Path, work: Path, simulated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the suite's profile at a tiny size, and what its data were made of."""
    folder = tmp_path_factory.mktemp("entries")
    shutil.copytree(repository / "examples", folder / "examples")
    shutil.copytree(work, folder / "work")
    # Two folds: five programs are too few for three with validation sets.
    made = load_sections(folder / "work" / "params.yaml")
    made["split"]["folds"] = {"k": 2, "seed": 0, "num_validation": 1}
    (folder / "work" / "params.yaml").write_text(json.dumps(made))
    sections: Any = merge(load_sections(repository / "profiles" / "suite" / "params.yaml"), CHANGES)
    sections["run"] |= {"root": ".", "jobs": 1}
    experiment = sections["experiments"]["architectures-tile"] | {"settings": BUDGET}
    variants = {name: experiment["variants"][name] for name in ("main", "tabular-resnet")}
    sections["experiments"] = {"architectures-tile": experiment | {"variants": variants}}
    (folder / "params.yaml").write_text(json.dumps(sections))
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("COSTBENCH_TRACKING", "off")
        environment.chdir(folder)
        arguments = ["--task", "tile", "--data", str(simulated), "--work", "work", "--params", "params.yaml"]
        assert CliRunner().invoke(app, ["architectures", *arguments], catch_exceptions=False).exit_code == 0
    return folder


def entrants(project: Path, simulated: Path, **changes: Any) -> Architectures:
    data = TaskData(simulated, "tile")
    places = {"params": project / "params.yaml", "work": project / "work", "entries": project / "leaderboard"}
    return Architectures(data=data, progress=lambda _: None, **places | changes)


@pytest.mark.slow
def test_each_entry_has_a_card_of_its_predictions(project: Path, simulated: Path) -> None:
    data = TaskData(simulated, "tile")
    cards = {path.stem: read_card(path) for path in (project / "leaderboard" / "tile").glob("*.json")}
    fitted = {"analytical", "linear", "random", "trees", "trees-analytical"}
    assert set(cards) == {"learned", "tabular-resnet", *fitted}
    predictions = read_predictions(project / "work/predictions/tile-tabular-resnet/learned.parquet", data)
    card = cards["tabular-resnet"]
    assert card.digest == predictions.digest
    assert card.numbers == score(data, predictions).numbers
    assert card.about.link == "examples/tabular_resnet.py"
    assert card.about.training_s > 0
    assert card.us_per_prediction > 0
    assert [name for name, card in cards.items() if card.about.knows_estimate] == [
        name for name in cards if "analytical" in name
    ]


@pytest.mark.slow
def test_all_are_tuned_by_as_many_trials_of_as_many_steps(project: Path) -> None:
    folder = project / "leaderboard" / "tile"
    trials = {path.stem: pd.read_csv(path) for path in folder.glob("*.csv")}
    assert set(trials) == {"learned", "tabular-resnet"}
    for table in trials.values():
        assert table[["trial", "state", "epochs"]].to_numpy().tolist() == [
            [0, "complete", 1], [1, "complete", 1]
        ]  # fmt: skip
        assert "net.encoder" not in table
    tuning = {read_card(folder / f"{name}.json").about.tuning for name in trials}
    assert tuning == {"2 trials of 2 steps, by validation programs of fold1"}


@pytest.mark.slow
def test_a_network_is_trained_with_what_its_sweep_chose(project: Path) -> None:
    chosen = load_yaml(project / "leaderboard" / "tile" / "tabular-resnet.yaml")["model"]
    trained = json.loads((project / "work" / "architectures" / "tile-tabular-resnet.json").read_text())
    assert merge(trained["train"]["tile"], chosen) == trained["train"]["tile"]  # type: ignore[arg-type]
    assert trained["train"]["tile"]["net"]["reduction"] == "examples.tabular_resnet:TabularResNet"


@pytest.mark.slow
def test_a_rerun_goes_on_after_what_is_finished(
    project: Path, simulated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The predictions of one architecture are gone: nothing is trained, and only it predicts."""
    monkeypatch.setenv("COSTBENCH_TRACKING", "off")
    cards = {path: path.read_bytes() for path in (project / "leaderboard" / "tile").glob("*.json")}
    weights = {path: path.stat().st_mtime_ns for path in (project / "work" / "train").rglob("weights.pt")}
    shutil.rmtree(project / "work" / "predictions" / "tile-learned")
    assert len(weights) == 4
    predicted: list[str] = []
    write = architectures.write_predictions

    def noting(path: Path, *rest: Any) -> None:
        predicted.append(path.parent.name)
        write(path, *rest)

    monkeypatch.setattr(architectures, "write_predictions", noting)
    monkeypatch.setattr(architectures, "score", lambda *_: pytest.fail("scored again"))
    entrants(project, simulated).enter()
    assert predicted == ["tile-learned"]
    assert {path: path.stat().st_mtime_ns for path in weights} == weights
    assert {path: path.read_bytes() for path in cards} == cards


@pytest.mark.slow
def test_only_the_suites_own_data_tune(project: Path, simulated: Path, tmp_path: Path) -> None:
    fresh = entrants(project, simulated, entries=tmp_path)
    object.__setattr__(fresh.data.facts, "fresh", 7)
    with pytest.raises(DataError, match=r"learned\.yaml: missing"):
        fresh.enter(["learned"])


@pytest.mark.slow
def test_what_is_wrong_is_one_line(project: Path, simulated: Path) -> None:
    with pytest.raises(ChoiceError, match="unknown architecture 'gsp'"):
        entrants(project, simulated).enter(["gsp"])
    with pytest.raises(DataError, match="no features of tile on tpu_v3"):
        entrants(project, simulated, work=project)


def test_the_profile_tunes_all_architectures_alike(repository: Path) -> None:
    """One budget, the same ranges; those of other papers are found by their dotted paths."""
    params = load_params(repository / "profiles" / "suite" / "params.yaml")
    section = load_sweep(params)
    for task in ("tile", "fusion"):
        resolve(section.space[task], section.model.by_task[task], params.path, "sweep")  # type: ignore[index]
        variants = params.sections["experiments"][f"architectures-{task}"]["variants"]
        modules = {
            str(value).partition(":")[0]
            for change in variants.values()
            for value in change.get("net", {}).values()
        }
        papers = {name for name in modules if name.startswith("examples.")}
        assert papers == {
            "examples.gps",
            "examples.pna",
            "examples.set_transformer",
            "examples.tabular_resnet",
        }
    assert section.pruner.keep_percent == 100.0
