"""Tuning spaces of GPUs: predictions for a GPU from the others, and searches repeat by repeat."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from costbench.errors import DataError
from costbench.rng import stream
from costbench_schedules.experiments import table_scores
from costbench_schedules.search.replay import Replay
from costbench_suite import searches
from costbench_suite.data import make_data
from costbench_suite.predictions import read_predictions
from costbench_suite.scoring import score
from costbench_suite.searches import Searches, read_searches, run_strategy, write_searches
from costbench_suite.task_data import TaskData
from costbench_suite.tuning_samples import read_tuning_tables, table_of_rows
from tests.suite.conftest import predictions_of


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpus")
    make_data(folder, ["gpu"], folder / "work", lambda _: None)
    return folder


def test_a_table_of_the_data_is_the_one_that_was_measured(gpus: Path) -> None:
    data = TaskData(gpus, "gpu")
    tables = read_tuning_tables()
    assert list(data.programs.index) == [table.name for table in tables]
    for table in tables[:1] + tables[-1:]:
        again = table_of_rows(data.decisions(table.name))
        assert (again.kernel, again.device) == (table.kernel, table.device)
        assert np.array_equal(again.first_ns, table.first_ns)
        assert np.array_equal(again.second_ns, table.second_ns)
        assert again.space.size == table.space.size


def test_every_table_is_held_out_once(gpus: Path) -> None:
    data = TaskData(gpus, "gpu")
    assert [fold.test for fold in data.folds] == [(name,) for name in data.programs.index]
    assert all(set(fold.train) == set(data.programs.index) - set(fold.test) for fold in data.folds)


def test_the_second_measurement_is_the_truth(gpus: Path, tmp_path: Path) -> None:
    data = TaskData(gpus, "gpu")
    path = tmp_path / "p.parquet"
    predictions_of(data, lambda rows: rows["again_ns"].fillna(0.0)).to_parquet(path, index=False)
    numbers = score(data, read_predictions(path, data)).numbers
    assert numbers["tau_mean"] == pytest.approx(1.0)
    assert numbers["top1_arithmetic_mean"] == 0.0
    predictions_of(data, lambda rows: rows["runtime_ns"].fillna(0.0)).to_parquet(path, index=False)
    numbers = score(data, read_predictions(path, data)).numbers
    assert 0.9 < numbers["tau_mean"] < 1.0


def test_columns_that_pandas_has_as_an_index_are_read(gpus: Path, tmp_path: Path) -> None:
    data, path = TaskData(gpus, "gpu"), tmp_path / "p.parquet"
    frame = predictions_of(data, lambda rows: rows["again_ns"].fillna(0.0))
    frame.to_parquet(path, index=False)
    plain = read_predictions(path, data)
    for index in ("id", ["id", "decision"]):
        frame.set_index(index).to_parquet(path)
        assert read_predictions(path, data).digest == plain.digest
    orders = {name: {seed: np.arange(3) for seed in range(searches.REPEATS)} for name in data.programs.index}
    write_searches(path, Searches(orders, ""))
    pd.read_parquet(path).set_index("id").to_parquet(path)
    assert read_searches(path, data).count == 3 * searches.REPEATS * len(orders)


def test_a_folder_that_is_named_like_the_task_is_read(gpus: Path, tmp_path: Path) -> None:
    folder = tmp_path / "gpu"
    shutil.copytree(gpus / "gpu", folder / "gpu")
    assert TaskData(folder, "gpu").folder == TaskData(folder / "gpu").folder == folder / "gpu"


def test_random_search_has_no_area_above_itself(gpus: Path) -> None:
    data = TaskData(gpus, "gpu_search")
    orders = {
        name: {
            seed: stream(seed, name).permutation(len(data.decisions(name)))[: searches.TRIALS]
            for seed in range(8)
        }
        for name in data.programs.index
    }
    result = score(data, Searches(orders, ""))
    assert abs(result.numbers["auc_mean"]) < 0.1
    name = data.programs.index[0]
    table = table_of_rows(data.decisions(name))
    expected = np.mean([table_scores.score(table, order, 500)["auc"] for order in orders[name].values()])
    assert result.by_application[name] == pytest.approx(expected)


def in_order(replay: Replay, rng: np.random.Generator) -> None:
    """Measures configurations from a random one on."""
    start = int(rng.integers(replay.space.size))
    replay.measure((start + np.arange(replay.trials)) % replay.space.size)


def test_a_strategy_and_its_file_have_the_same_score(
    gpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searches, "REPEATS", 2)
    data = TaskData(gpus, "gpu_search")
    ran = run_strategy("tests.suite.test_gpus:in_order", data)
    path = tmp_path / "searches.parquet"
    write_searches(path, ran)
    read = read_searches(path, data)
    assert read.digest == ran.digest
    assert score(data, read).numbers == score(data, ran).numbers


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda f: f[f["seed"] == 0], "1 repeats"),
        (lambda f: f[f["id"] != f["id"].iloc[0]], "1 tables missing"),
        (lambda f: f.assign(decision=f["decision"].where(f.index != 0, 10**6)), "1 unknown configurations"),
        (lambda f: f.assign(decision=f["decision"].where(f["trial"] != 1, f["decision"].iloc[0])), "twice"),
        (lambda f: f[f["trial"] != 0], "trials from 1"),
        (lambda f: f.drop(columns="trial"), "columns"),
        (lambda f: f.iloc[:0].astype({"id": "string"}), "16 tables missing"),
        (lambda f: f.assign(id=[[name] for name in f["id"]]), "id: is of type list"),
        (lambda f: f.assign(trial=f["trial"].where(f.index != 0)), "trial: is of type double"),
    ],
)
def test_files_that_are_no_searches_are_one_line(
    gpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: object, problem: str
) -> None:
    monkeypatch.setattr(searches, "REPEATS", 2)
    data = TaskData(gpus, "gpu_search")
    rows = [
        {"id": name, "seed": seed, "trial": trial, "decision": trial}
        for name in data.programs.index
        for seed in range(2)
        for trial in range(3)
    ]
    path = tmp_path / "searches.parquet"
    change(pd.DataFrame(rows)).to_parquet(path, index=False)  # type: ignore[operator]
    with pytest.raises(DataError, match=problem):
        read_searches(path, data)
