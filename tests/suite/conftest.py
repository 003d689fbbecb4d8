"""The data of the suite, of a few small programs, made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from costbench_suite.data import make_data
from costbench_suite.task_data import TaskData

# At least one program is tested in each fold.
PROGRAMS = (
    "char2feats_b8_infer_bf16",
    "mlp_mnist_b128_train_f32",
    "ranking_b16_infer_f32",
    "rnn_char_b64_infer_f32",
    "small_bert_L2_H512_b128_infer_f32",
)
TASKS = ("tile", "fusion", "layout")


@pytest.fixture(scope="session")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("suite") / "work"


@pytest.fixture(scope="session")
def suite(work: Path) -> Path:
    """The folder of the data of all tasks."""
    folder = work.parent / "data"
    make_data(folder, TASKS, work, lambda _: None, jobs=1, programs=PROGRAMS)
    return folder


@pytest.fixture(scope="session")
def tile(suite: Path) -> TaskData:
    return TaskData(suite, "tile")


Costs = Callable[[pd.DataFrame], pd.Series]


def predictions_of(data: TaskData, costs: Costs) -> pd.DataFrame:
    """Returns predictions of all decisions that are a function of the decisions' columns."""
    rows = data.decisions(list(data.programs.index))
    return rows[["id", "decision"]].assign(cost=costs(rows).to_numpy(dtype="float64"))
