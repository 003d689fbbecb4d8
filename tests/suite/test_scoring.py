"""Scores of predictions: right and wrong ones, files and models, the same numbers as evaluation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from costbench.errors import DataError
from costbench.experiments.evaluation.fusion import evaluate_fusions
from costbench.experiments.evaluation.program import ALL_KERNELS, EvaluateParams, ProgramTask
from costbench.experiments.evaluation.tile import evaluate_tiles
from costbench_suite.ceilings import measured_again
from costbench_suite.predictions import Predictions, read_predictions, run_model, write_predictions
from costbench_suite.scoring import score, score_frame
from costbench_suite.task_data import TaskData
from tests.suite.conftest import PROGRAMS, TASKS, predictions_of, truth

ANALYTICAL = ("analytical", "main", 0)


def _file(frame: pd.DataFrame, tmp_path: Path) -> Path:
    path = tmp_path / "predictions.parquet"
    frame.to_parquet(path, index=False)
    return path


def _truth(rows: pd.DataFrame) -> pd.Series:
    return rows["runtime_ns"]


@pytest.mark.parametrize(
    ("task", "perfect"),
    [
        # Geometric means of errors count 0.05 at least.
        ("tile", {"ape_mean": 0.05, "tau_mean": 1.0}),
        ("fusion", {"mape_ge5us_mean": 0.05, "tau_lt5us_mean": 1.0}),
        ("layout", {"tau_mean": 1.0, "top1_arithmetic_mean": 0.0}),
        ("fusion_xla_cpu", {"mape_ge5us_mean": 0.05, "mape_lt5us_mean": 0.05, "tau_ge5us_mean": 1.0}),
        ("gpu", {"tau_mean": 1.0, "top1_arithmetic_mean": 0.0}),
        ("schedules", {"tau_mean": 1.0, "top1_arithmetic_mean": 0.0}),
    ],
)
def test_the_truth_has_no_error(suite: Path, tmp_path: Path, task: str, perfect: dict[str, float]) -> None:
    data = TaskData(suite, task)
    frame = predictions_of(data, lambda rows: truth(rows, task)).sample(frac=1.0, random_state=0)
    numbers = score(data, read_predictions(_file(frame, tmp_path), data)).numbers
    assert {name: numbers[name] for name in perfect} == pytest.approx(perfect)


def test_backwards_has_the_opposite_order_and_an_interval_around_its_mean(
    tile: TaskData, tmp_path: Path
) -> None:
    frame = predictions_of(tile, lambda rows: -rows["runtime_ns"])
    result = score(tile, read_predictions(_file(frame, tmp_path), tile))
    assert result.numbers["tau_mean"] == pytest.approx(-1.0)
    ape = result.intervals["ape_mean"]
    assert ape.low < ape.value < ape.high
    assert result.num_programs == len(PROGRAMS)
    assert set(result.by_application) == set(tile.programs["application"])


def _evaluated(work: Path, program: str) -> ProgramTask:
    params = EvaluateParams(models=("analytical",), top_k=(1,), random_seeds=(0,))
    return ProgramTask(
        work / "generate", work / "features", "tpu_v3", program, (), ("analytical",), params, frozenset()
    )


def test_numbers_are_those_of_costbench_s_evaluation(
    suite: Path, tile: TaskData, work: Path, tmp_path: Path
) -> None:
    frame = predictions_of(tile, lambda rows: rows["estimate_ns"])
    scores = score_frame(tile, read_predictions(_file(frame, tmp_path), tile))
    by_program = scores.set_index(["program", "metric"])["value"]
    for program in PROGRAMS:
        expected = evaluate_tiles(_evaluated(work, program)).metrics[ALL_KERNELS][ANALYTICAL]
        assert by_program[program, "tile_size_ape"] == expected["tile_size_ape"]
        assert by_program[program, "kendall_tau"] == expected["kendall_tau"]


def test_fusions_are_scored_over_the_kernels_that_evaluation_counts(
    suite: Path, work: Path, tmp_path: Path
) -> None:
    data = TaskData(suite, "fusion")
    frame = predictions_of(data, lambda rows: 2.0 * rows["runtime_ns"])
    scores = score_frame(data, read_predictions(_file(frame, tmp_path), data))
    by_program = scores.set_index(["program", "metric"])["value"]
    for program in data.programs.index:
        counts = evaluate_fusions(_evaluated(work, program)).metrics[ALL_KERNELS]["best", "main", 0]
        assert data.table("kernels", program)["scored"].sum() == counts["kernels"]
        assert by_program[program, "mape"] == pytest.approx(100.0)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda f: f.iloc[3:], "3 missing"),
        (lambda f: pd.concat([f, f.iloc[:2]]), "2 double"),
        (lambda f: f.assign(cost=f["cost"].where(f.index != 5, np.nan)), "1 not finite|1 empty values"),
        (lambda f: f.assign(cost=f["cost"].where(f.index != 5, np.inf)), "1 not finite"),
        (lambda f: pd.concat([f, f.iloc[:1].assign(id="nobody/0")]), "1 unknown"),
        (lambda f: f.assign(decision=f["decision"].where(f.index != 0, 10_000)), "1 missing, 1 unknown"),
        (lambda f: f.drop(columns="cost"), "columns id, decision"),
        (lambda f: f.iloc[:0].assign(id=pd.Series(dtype="string")), "[0-9] missing"),
        (lambda f: f.assign(id=[[name] for name in f["id"]]), "id: is of type list"),
        (lambda f: f.assign(decision=f["decision"].astype(str)), "decision: is of type"),
    ],
)
def test_predictions_that_do_not_fit_are_one_line_with_counts(
    tile: TaskData, tmp_path: Path, change: object, problem: str
) -> None:
    frame = predictions_of(tile, _truth).reset_index(drop=True)
    path = _file(change(frame), tmp_path)  # type: ignore[operator]
    with pytest.raises(DataError, match=problem) as error:
        read_predictions(path, tile)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def test_a_file_that_is_no_parquet_is_one_line(tile: TaskData, tmp_path: Path) -> None:
    path = tmp_path / "predictions.parquet"
    path.write_text("id,decision,cost\n")
    with pytest.raises(DataError, match=r"predictions\.parquet"):
        read_predictions(path, tile)


def test_a_column_that_occurs_twice_and_a_folder_are_one_line(tile: TaskData, tmp_path: Path) -> None:
    frame = predictions_of(tile, _truth)
    columns = [pa.array(frame[name]) for name in ("id", "id", "decision", "cost")]
    path = tmp_path / "predictions.parquet"
    pq.write_table(pa.table(columns, names=["id", "id", "decision", "cost"]), path)
    with pytest.raises(DataError, match="columns id, id, decision, cost"):
        read_predictions(path, tile)
    with pytest.raises(DataError, match=f"{tmp_path.name}: cannot"):
        read_predictions(tmp_path, tile)


def test_intervals_of_errors_end_at_zero(simulated: Path) -> None:
    """All programs are right but one, whose slowest config is chosen."""
    data = TaskData(simulated, "layout")
    costs = {name: data.decisions(name)["runtime_ns"].to_numpy("float64") for name in data.programs.index}
    costs[data.programs.index[0]] *= -1
    top1 = score(data, Predictions({0: costs}, "")).intervals["top1_arithmetic_mean"]
    assert top1.value > 0.0
    assert top1.low == 0.0


def test_seeds_are_averaged(tile: TaskData, tmp_path: Path) -> None:
    right, wrong = predictions_of(tile, _truth), predictions_of(tile, lambda rows: -rows["runtime_ns"])
    frame = pd.concat([right.assign(seed=3), wrong.assign(seed=8)])
    predictions = read_predictions(_file(frame, tmp_path), tile)
    assert sorted(predictions.costs) == [3, 8]
    assert score(tile, predictions).numbers["tau_mean"] == pytest.approx(0.0)


class Remembers:
    """Predicts the mean runtime of the training programs' decisions of the same number."""

    def fit(self, data: TaskData, train: list[str], validation: list[str]) -> None:
        self.trained = set(train) | set(validation)
        rows = data.decisions(train)
        self.means = rows.groupby("decision")["runtime_ns"].mean()

    def predict(self, data: TaskData, program: str) -> np.ndarray:
        assert program not in self.trained
        numbers = data.decisions(program)["decision"]
        return self.means.reindex(numbers).fillna(0.0).to_numpy()


class Stateless:
    def predict(self, data: TaskData, program: str) -> pd.Series:
        return data.decisions(program)["estimate_ns"]


class Short:
    def predict(self, data: TaskData, program: str) -> list[float]:
        return [1.0]


class Broken:
    def predict(self, data: TaskData, program: str) -> list[float]:
        raise ZeroDivisionError("nothing")


def test_a_model_is_fitted_to_each_fold_and_its_file_scores_the_same(tile: TaskData, tmp_path: Path) -> None:
    ran = run_model("tests.suite.test_scoring:Remembers", tile)
    path = tmp_path / "written.parquet"
    write_predictions(path, ran, tile)
    read = read_predictions(path, tile)
    assert read.digest == ran.digest
    assert score(tile, read).numbers == score(tile, ran).numbers
    assert ran.predict_s is not None
    assert ran.count == len(pd.read_parquet(tile.folder / "decisions.parquet"))


def test_a_model_without_fit(tile: TaskData) -> None:
    ran = run_model("tests.suite.test_scoring:Stateless", tile)
    assert score(tile, ran).numbers["tau_mean"] > 0.3


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Short", "costs of shape"),
        ("Broken", "ZeroDivisionError: nothing"),
        ("PROGRAMS", "no method predict"),
    ],
)
def test_models_that_do_not_fit_are_one_line(tile: TaskData, name: str, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        run_model(f"tests.suite.test_scoring:{name}", tile)


@pytest.mark.parametrize("task", TASKS)
def test_the_digest_tells_predictions_apart(suite: Path, task: str, tmp_path: Path) -> None:
    data = TaskData(suite, task)
    frame = predictions_of(data, lambda rows: truth(rows, task))
    shuffled = frame.sample(frac=1.0, random_state=1)
    first: Predictions = read_predictions(_file(frame, tmp_path), data)
    assert read_predictions(_file(shuffled, tmp_path), data).digest == first.digest
    changed = frame.assign(cost=frame["cost"] + 1.0)
    assert read_predictions(_file(changed, tmp_path), data).digest != first.digest


@pytest.mark.parametrize("task", TASKS)
def test_a_second_measurement_is_near_the_first_and_not_equal(suite: Path, work: Path, task: str) -> None:
    data = TaskData(suite, task)
    again = score(data, measured_again(data, work)).numbers
    tau = again["tau_mean" if "tau_mean" in data.task.metrics else "tau_ge5us_mean"]
    assert 0.75 < tau < 1.0
