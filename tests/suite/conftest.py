"""The data of the suite, of a few small programs, made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from costbench_suite import tasks as suite_tasks
from costbench_suite.data import make_data
from costbench_suite.task_data import TaskData
from tests.workers import common_folder, first_to_make

# At least one program is tested in each fold.
PROGRAMS = (
    "char2feats_b8_infer_bf16",
    "mlp_mnist_b128_train_f32",
    "ranking_b16_infer_f32",
    "rnn_char_b64_infer_f32",
    "small_bert_L2_H512_b128_infer_f32",
)
RECORDED_PROGRAMS = (
    "char2feats_b1_infer_bf16",
    "mlp_mnist_b128_train_f32",
    "ranking_b4_infer_f32",
    "rnn_char_b2_infer_f32",
    "small_bert_L2_H128_b4_train_bf16",
)
SIMULATED = ("tile", "fusion", "layout")
TASKS = tuple(name for name, task in suite_tasks.TASKS.items() if not task.searches)
"""Tasks of predictions."""


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of intermediate results, one for all workers. To be read, not changed."""
    return common_folder(tmp_path_factory, worker_id) / "suite" / "work"


@pytest.fixture(scope="session")
def simulated(work: Path) -> Path:
    """The folder of the data of all tasks, with those of simulated machines. To be read, not changed."""
    folder = work.parent / "data"
    with first_to_make("simulated", folder.parents[1]) as is_first:
        if is_first:
            make_data(folder, SIMULATED, work, lambda _: None, jobs=1, programs=PROGRAMS)
    return folder


@pytest.fixture(scope="session")
def recorded(work: Path) -> Path:
    """The same folder with the data of machines that exist; tables of GPUs and schedules are whole."""
    folder = work.parent / "data"
    with first_to_make("recorded", folder.parents[1]) as is_first:
        if is_first:
            make_data(folder, ["fusion_xla_cpu"], work, lambda _: None, jobs=1, programs=RECORDED_PROGRAMS)
            make_data(folder, ["gpu", "schedules"], work, lambda _: None)
    return folder


@pytest.fixture(scope="session")
def suite(simulated: Path, recorded: Path) -> Path:
    """The folder of the data of all tasks."""
    assert simulated == recorded
    return simulated


@pytest.fixture(scope="session")
def tile(simulated: Path) -> TaskData:
    return TaskData(simulated, "tile")


Costs = Callable[[pd.DataFrame], pd.Series]


def truth(rows: pd.DataFrame, task: str) -> pd.Series:
    """Returns what metrics of a task are over; 0 for decisions that failed."""
    column = "again_ns" if suite_tasks.TASKS[task].second == "runtime_ns" else "runtime_ns"
    return rows[column].fillna(0.0)


def predictions_of(data: TaskData, costs: Costs) -> pd.DataFrame:
    """Returns predictions of all decisions that are a function of the decisions' columns."""
    rows = data.decisions(list(data.programs.index))
    return rows[["id", "decision"]].assign(cost=costs(rows).to_numpy(dtype="float64"))
