"""Tests on networks: what models may see, evaluate_model by hand, rows; made-up programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.arrays import F64
from costbench.artifacts import digest_file
from costbench.errors import ChoiceError, DataError
from costbench.execution.workers import Backend
from costbench.experiments.workspace import Workspace
from costbench.metrics.rows import read_rows
from costbench_schedules.experiments.network_models import (
    FITTED,
    UNFITTED,
    NetworkPrograms,
    NetworkSplit,
    load_programs,
    split_programs,
)
from costbench_schedules.experiments.network_tests import (
    NETWORKS,
    OPERATORS,
    WHOLE,
    NetworkTest,
    NetworkTesting,
    evaluate_model,
    evaluate_networks,
)
from costbench_schedules.operators.networks import networks, workload_name
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.records.card import check_folder
from costbench_schedules.records.programs import PROGRAMS, read_estimated
from tests.schedules.experiments.made_up_networks import PROGRAMS_EACH, write_folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("root") / "data" / "networks")


@pytest.fixture
def recorded(folder: Path) -> NetworkPrograms:
    return load_programs(folder, digest_file(folder / PROGRAMS))


def test_only_analysed_programs_are_candidates(recorded: NetworkPrograms) -> None:
    assert np.bincount(recorded.groups).tolist() == [PROGRAMS_EACH - 2] * 12
    assert len(recorded.relation) == len(recorded)
    assert len({column.tobytes() for column in recorded.relation.T}) == recorded.relation.shape[1]


def test_nothing_of_the_network_is_fitted_to(recorded: NetworkPrograms) -> None:
    task = split_programs(recorded, "BERT-tiny", 30, 0, 20)
    own = {parse_operator(text).text for text in networks()["BERT-tiny"].executions}
    tested = {recorded.operators[group] for group in recorded.groups[task.tested]}
    fitted = {recorded.operators[group] for group in recorded.groups[task.source]}
    assert tested == own
    assert not fitted & own
    assert set(task.target) <= set(task.source)
    assert len(task.target) == 30
    # As many of each operator as there are, so that there is something to compare.
    assert len(np.unique(recorded.groups[task.target])) == 3
    assert len(split_programs(recorded, "BERT-tiny", 10**6, 0, 20).target) == 6 * (PROGRAMS_EACH - 2)


def test_scores_by_hand(folder: Path, recorded: NetworkPrograms) -> None:
    test = NetworkTest("crop", "BERT-base", 0, 0, folder, digest_file(folder / PROGRAMS), 20)
    best, chosen, errors = 0.0, 0.0, []
    for text, count in networks()["BERT-base"].executions.items():
        own = recorded.groups == recorded.operators.index(parse_operator(text).text)
        runtime, costs = recorded.native_ns[own], recorded.estimates["total"][own]
        best += count * runtime.min()
        chosen += count * runtime[np.argmin(costs)]
        errors += np.abs(costs / runtime - 1).tolist()
    result = evaluate_model(test)
    assert result[WHOLE]["top_1_score"] == pytest.approx(best / chosen)
    assert result[WHOLE]["mape"] == pytest.approx(100 * np.mean(errors))
    assert result[WHOLE]["kendall_tau"] > 0.8
    assert result[WHOLE]["operators"] == 6
    text = next(iter(networks()["BERT-base"].executions))
    assert result[workload_name(parse_operator(text))]["programs"] == PROGRAMS_EACH - 2


@pytest.mark.parametrize("model", [*FITTED, *UNFITTED])
def test_every_model_predicts_the_same_twice(recorded: NetworkPrograms, model: str) -> None:
    task = split_programs(recorded, "BERT-tiny", 40, 0, 20)

    def predict(task: NetworkSplit) -> F64:
        return FITTED[model](task).costs if model in FITTED else UNFITTED[model](task)

    costs = predict(task)
    assert costs.shape == task.tested.shape
    assert np.all(np.isfinite(costs))
    np.testing.assert_array_equal(predict(task), costs)


def test_hybrid_without_records_ranks_as_the_analytical_model(recorded: NetworkPrograms) -> None:
    task = split_programs(recorded, "BERT-tiny", 0, 0, 20)
    order = np.argsort(FITTED["hybrid"](task).costs, kind="stable")
    np.testing.assert_array_equal(order, np.argsort(UNFITTED["crop"](task), kind="stable"))


def test_a_longer_training_orders_its_own_records_better(recorded: NetworkPrograms) -> None:
    short, long = (
        FITTED["mlp"](split_programs(recorded, "BERT-tiny", 40, 0, steps)).fitted_tau for steps in (1, 200)
    )
    assert short is not None
    assert long is not None
    assert long > short
    assert long > 0.8


def test_stage_writes_rows_of_networks_operators_and_tiles(folder: Path, tmp_path: Path) -> None:
    root = folder.parents[1]
    names = ("params.yaml", "out", "reports", "programs")
    workspace = Workspace("test", root, *(tmp_path / name for name in names), Backend(jobs=1))
    section = NetworkTesting(("BERT-tiny",), ("gbt",), (0,))
    results = workspace.stage("schedules") / "networks"
    assert evaluate_networks(None, workspace, results) == ""
    assert evaluate_networks(section, workspace, results) == digest_file(folder / PROGRAMS)
    path = results / "rows.jsonl"
    before, rows = path.read_bytes(), read_rows(path)
    needed = {
        (row.model, row.value) for row in rows if row.metric == "records_needed" and row.split == NETWORKS
    }
    assert ("crop", 0.0) in needed
    assert {row.variant for row in rows if row.model == "gbt"} == {"0", "all", "main"}
    assert len({row.program for row in rows if row.split == OPERATORS}) == 6
    tiles = {(row.model, row.metric): row.value for row in rows if row.split == "tiles"}
    assert tiles["crop", "chosen_us"] == tiles["measured", "chosen_us"]
    evaluate_networks(section, workspace, results)
    assert path.read_bytes() == before


def test_a_damaged_folder_names_the_file(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    (folder / PROGRAMS).write_bytes(b"other")
    with pytest.raises(DataError, match="damaged"):
        check_folder(folder)
    with pytest.raises(DataError, match="estimate-networks"):
        read_estimated(folder / PROGRAMS)


@pytest.mark.parametrize(
    "changes",
    [{"networks": ("VGG",)}, {"models": ("crop",)}, {"records": (-1,)}, {"seeds": (0, 0)}, {"steps": 0}],
)
def test_parameters_are_checked(changes: dict[str, object]) -> None:
    with pytest.raises((ValueError, ChoiceError), match=r"VGG|crop|records|seeds|steps"):
        NetworkTesting(**changes)  # type: ignore[arg-type]
