"""Experiments over an imported data set: what they train and test on, what is noted and what refused."""

from __future__ import annotations

import csv
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from costbench.artifacts import read_json
from costbench.datasets.layout_graphs import open_layout_graph
from costbench.errors import CostbenchError, DataError, ParamsError
from costbench.experiments.evaluation.layout import layout_metrics
from costbench.experiments.evaluation.tile import ranking_metrics
from costbench.experiments.grid.experiment import load_experiment
from costbench.experiments.parameter_file import load_params, load_sections
from costbench.experiments.stages import evaluate, inputs, train
from costbench.experiments.tpugraphs.samples import ImportedSamples, listing_digest, open_imported_samples
from costbench.experiments.workspace import load_workspace
from costbench.features.feature_shards import sample_paths
from costbench.metrics.rows import MetricRow, read_rows
from costbench.models.layout.model import load_layout_model
from costbench.params import load_yaml
from costbench.reports import stage as report
from tests.datasets.tpugraphs.public_arrays import layout_arrays, save
from tests.datasets.tpugraphs.public_folder import write_public_folder
from tests.sentences import numbers

ENTRY: dict[str, Any] = {
    "task": "layout",
    "data": "tpugraphs:data",
    "splits": ["own"],
    "chips": ["tpu_v3"],
    "seeds": [0],
    "follows": "features",
}
QUICK = {
    "layout": {"steps_per_epoch": 4, "epochs": 1, "net": {"hidden": 8}, "segments": {"nodes": 0}},
    "tile": {"batch": {"kernels": 2, "configs": 8, "per_epoch": 3}, "epochs": 1, "net": {"hidden": 8}},
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a repository with imported data: two graphs per split and collection, `test` without runtimes."""
    monkeypatch.setenv("COSTBENCH_TRACKING", "off")
    write_public_folder(tmp_path / "data")
    return tmp_path


@pytest.fixture
def smoke(repository: Path) -> dict[str, Any]:
    return dict(load_sections(repository / "profiles" / "smoke" / "params.yaml"))


def params(root: Path, smoke: dict[str, Any], **changes: object) -> Path:
    """A parameter file whose one experiment is called `given`."""
    entry = ENTRY | changes
    entry = {"settings": QUICK.get(str(entry["task"]), {})} | entry
    run = smoke["run"] | {"root": ".", "params": "params.yaml", "jobs": 1}
    path = root / "params.yaml"
    path.write_text(json.dumps(smoke | {"run": run, "experiments": {"given": entry}}), "utf-8")
    return path


def samples(path: Path) -> ImportedSamples:
    found = open_imported_samples(
        load_experiment(load_params(path), "given"), load_workspace(load_params(path))
    )
    assert found is not None
    return found


def rows_of(root: Path) -> list[MetricRow]:
    return read_rows(root / "out" / "smoke" / "evaluate" / "given" / "rows.jsonl")


def test_programs_are_those_of_the_splits_in_all_collections(root: Path, smoke: dict[str, Any]) -> None:
    given = samples(params(root, smoke))
    found = given.training_programs()
    assert found.train == ("trainnet0_0000", "trainnet1_0001")
    assert found.validation == ("validnet0_0000", "validnet1_0001")
    paths = sample_paths(given.features, "layout", "tpu_v3", "trainnet0_0000")
    names = ["layout-nlp-default", "layout-nlp-random", "layout-xla-default", "layout-xla-random"]
    assert [path.parent.name for path in paths] == names
    # Links alone: the data set is not kept twice.
    assert all(path.is_symlink() and path.exists() for path in paths)
    assert sample_paths(given.features, "layout", "tpu_v3", "testnet0_0000") == ()
    one = samples(params(root, smoke, collections=["layout:xla:random"]))
    one.training_programs()
    (path,) = sample_paths(one.features, "layout", "tpu_v3", "trainnet0_0000")
    assert open_layout_graph(path).collection == "layout:xla:random"


def test_the_entry_of_the_page_is_one(root: Path, smoke: dict[str, Any], repository: Path) -> None:
    page = (repository / "docs" / "tpugraphs.md").read_text("utf-8")
    block = page.partition("```yaml\n")[2].partition("```")[0].replace("/data/tpugraphs", "data")
    shown = root / "shown.yaml"
    shown.write_text(block, "utf-8")
    sections: Any = load_yaml(shown)
    path = params(root, smoke, **sections["experiments"]["public-layout"])
    experiment = load_experiment(load_params(path), "given")
    assert len(experiment.cells) == 6
    assert experiment.variants["gcn"].spec.epochs == 20
    assert samples(path).training_programs().train == ("trainnet0_0000", "trainnet1_0001")


def test_tested_is_valid_where_test_has_no_runtimes(
    root: Path, smoke: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    given = samples(params(root, smoke, collections=["layout:xla:random"]))
    with caplog.at_level(logging.INFO):
        assert given.tested_programs().test == ("validnet0_0000", "validnet1_0001")
    assert "evaluated on valid" in caplog.text
    caplog.clear()
    save(root / "data/npz/layout/xla/random/test/known.npz", layout_arrays())
    with caplog.at_level(logging.INFO):
        assert given.tested_programs().test == ("known",)
    (message,) = caplog.messages
    assert numbers(message)[-1] == 2


def test_a_program_that_is_gone_has_no_link(root: Path, smoke: dict[str, Any]) -> None:
    given = samples(params(root, smoke))
    given.training_programs()
    for path in (root / "data").rglob("layout/*/*/train/trainnet0_0000.npz"):
        path.unlink()
    assert given.training_programs().train == ("trainnet1_0001",)
    assert sample_paths(given.features, "layout", "tpu_v3", "trainnet0_0000") == ()


# MLflow's own use of SQLAlchemy, where this test is the first to import it.
@pytest.mark.filterwarnings("ignore:The ``noload``:DeprecationWarning")
def test_layouts_are_trained_and_evaluated(
    root: Path, smoke: dict[str, Any], tracking_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COSTBENCH_TRACKING")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", tracking_store)
    path = params(root, smoke, baselines=True)
    train.run(path)
    evaluate.run(path)
    rows = rows_of(root)
    assert {row.split for row in rows} == {"own"}
    assert {row.program for row in rows} == {"validnet0_0000", "validnet1_0001"}
    assert {row.model for row in rows} >= {"learned", "random", "default_first", "trees"}
    groups = {"all", "xla:default", "xla:random", "nlp:default", "nlp:random"}
    assert {row.kernels for row in rows} == groups
    model = load_layout_model(root / "out/smoke/train/given/layout-own-tpu_v3-main-s0")
    graph = open_layout_graph(
        root / "out/smoke/given/given/features/layout/tpu_v3/layout-nlp-random/validnet0_0000.arrow"
    )
    expected = layout_metrics(graph, model.predict(graph))
    found = {
        row.metric: row.value
        for row in rows
        if (row.model, row.program, row.kernels) == ("learned", "validnet0_0000", "nlp:random")
    }
    assert found == pytest.approx(expected)
    # Trained once: the second call finds the cell complete.
    done = root / "out/smoke/train/given/layout-own-tpu_v3-main-s0/done.json"
    before = done.stat().st_mtime_ns
    train.run(path)
    assert done.stat().st_mtime_ns == before
    # A folder that changed since is not evaluated with the old model.
    (root / "data/npz/layout/xla/random/valid/validnet1_0001.npz").unlink()
    with pytest.raises(DataError, match="differs from what was trained on"):
        evaluate.run(path)


def test_tiles_are_trained_and_evaluated(root: Path, smoke: dict[str, Any]) -> None:
    path = params(root, smoke, task="tile", baselines=True)
    train.run(path)
    evaluate.run(path)
    rows = rows_of(root)
    assert {row.program for row in rows} == {"validnet0", "validnet1"}
    assert {row.model for row in rows} == {"learned", "random", "linear", "trees", "best"}
    learned = {row.metric for row in rows if row.model == "learned"}
    assert learned == {"kendall_tau", "opa", "kernel_top_1", "kernel_top_5", "kernel_top_10"}


@pytest.mark.parametrize("task", ["tile", "layout"])
def test_a_report_needs_no_simulated_samples(root: Path, smoke: dict[str, Any], task: str) -> None:
    path = params(root, smoke, task=task, baselines=True, seeds=[0, 1], variants={"main": {}, "other": {}})
    for stage in (train, evaluate, report):
        stage.run(path)
    made = root / "out" / "smoke" / "reports"
    summary = read_json(made / "summary.json")
    where = f"{task}/own/tpu_v3"
    assert isinstance(summary, dict)
    learned, other = (summary[f"{where}/learned{name}/tau_mean"] for name in ("", "@other"))
    assert learned == other
    with (made / "tables" / f"baselines_{task}_own_tpu_v3.csv").open(encoding="utf-8") as file:
        rows = {row["model"]: row for row in csv.DictReader(file)}
    assert rows["learned"]["seeds"] == "2"
    assert {row["programs"] for row in rows.values()} == {"2"}
    assert all(row["error"] for row in rows.values())
    assert f"{task}_own_tpu_v3" in {figure.stem for figure in (made / "figures").iterdir()}
    assert (made / "tables" / "variants_own_tpu_v3.csv").is_file()
    data = [path for path in made.rglob("*.csv") if "nan" in path.read_text("utf-8").casefold()]
    assert data == []


def test_metrics_of_tiles_by_hand() -> None:
    runtimes = [np.array([100.0, 200.0, 400.0]), np.array([10.0, 10.0]), np.array([7.0])]
    costs = [np.array([2.0, 1.0, 3.0]), np.array([1.0, 2.0]), np.array([0.0])]
    # Two of three pairs are in order; the second kernel ranks nothing, the third has no choice.
    expected = {"kendall_tau": 1 / 3, "opa": 2 / 3, "kernel_top_1": 50.0}
    expected |= {"kernel_top_5": 0.0, "kernel_top_10": 0.0}
    assert ranking_metrics(runtimes, costs) == pytest.approx(expected)
    with pytest.raises(DataError, match="3 finite numbers"):
        ranking_metrics(runtimes, [np.zeros(2), *costs[1:]])


def test_notes_change_with_the_files_of_the_folder(root: Path, smoke: dict[str, Any]) -> None:
    path = params(root, smoke)

    def note(stage: str) -> Any:
        inputs.run(path)
        return read_json(root / "out" / "smoke" / "inputs" / stage / "given.json")

    first = note("train")
    assert first == note("train")
    assert len(first["data"]) == 16
    save(root / "data/npz/layout/xla/random/test/more.npz", layout_arrays())
    assert note("train")["data"] not in ("", first["data"])
    assert note("evaluate")["data"] == note("train")["data"]
    # Other stages go on where the folder is missing; that of the experiment says so.
    assert listing_digest(ENTRY | {"data": "tpugraphs:elsewhere"}, root) == ""


def refused() -> Iterator[tuple[dict[str, object], type[CostbenchError], str]]:
    yield {"data": "tpugraphs:missing"}, DataError, r"missing.*no such folder"
    yield {"data": "folder"}, ParamsError, "must be tpugraphs:DIR"
    yield {"splits": ["random"]}, ParamsError, r"must be \[own\]"
    yield {"chips": ["tpu_v2", "tpu_v3"]}, ParamsError, "must be one for imported data"
    yield {"task": "fusion"}, DataError, "no collection of task fusion"
    yield {"collections": ["tile:xla"]}, DataError, "holds no tile:xla"


@pytest.mark.parametrize(("changes", "kind", "message"), list(refused()))
def test_entries_that_cannot_be(
    root: Path, smoke: dict[str, Any], changes: dict[str, object], kind: type[CostbenchError], message: str
) -> None:
    with pytest.raises(kind, match=message) as error:
        train.run(params(root, smoke, **changes))
    assert "\n" not in str(error.value)


def test_own_is_for_imported_data(root: Path, smoke: dict[str, Any]) -> None:
    path = params(root, smoke)
    path.write_text(path.read_text("utf-8").replace('"data": "tpugraphs:data", ', ""), "utf-8")
    with pytest.raises(ParamsError, match="own needs imported data"):
        load_experiment(load_params(path), "given")


def test_folders_that_cannot_be_trained_on(root: Path, smoke: dict[str, Any]) -> None:
    path = params(root, smoke, collections=["layout:xla:random"])
    place = root / "data/npz/layout/xla/random"
    save(place / "valid" / "trainnet0_0000.npz", layout_arrays())
    with pytest.raises(DataError, match="program trainnet0_0000 in splits train and valid"):
        train.run(path)
    for file in (place / "valid").iterdir():
        file.unlink()
    with pytest.raises(DataError, match="no file of split valid"):
        train.run(path)
    save(place / "valid" / "unknown.npz", layout_arrays(config_runtime=None))
    with pytest.raises(DataError, match="no runtimes of unknown of split valid"):
        train.run(path)
