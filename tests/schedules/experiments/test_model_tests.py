"""Divisions of workloads, metrics by hand, and models that rank schedules of workloads they have not seen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costbench.errors import ChoiceError
from costbench.execution.workers import Backend
from costbench.experiments.workspace import Workspace
from costbench_schedules.experiments.model_tests import (
    BASELINES,
    FITTED,
    ModelTest,
    divide_workloads,
    evaluate_model,
    fixed_division,
    fold_divisions,
)
from costbench_schedules.experiments.recorded_tables import TableFile, complete_tables, runtimes
from costbench_schedules.experiments.repeats import Provenance
from costbench_schedules.experiments.table_rows import rows_of_tests
from costbench_schedules.experiments.table_tuning import ModelTests, list_tests, run_tests
from costbench_schedules.features.estimates import traffic_cost
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.spaces.sub_spaces import recorded_space
from tests.schedules.experiments.made_up_tables import OPERATORS, SECTION, write_tables

MODELS = replace(SECTION, models=ModelTests(("gbt-rank",), ("matmul-256", "C1"), tuple(OPERATORS), 3))


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], TableFile]:
    folder = tmp_path_factory.mktemp("schedules")
    write_tables(folder)
    return dict(complete_tables(folder))


def test_every_workload_is_in_one_fold() -> None:
    names = ["e", "a", "d", "c", "b"]
    parts = divide_workloads(names, 2, seed=0)
    assert sorted(len(part) for part in parts) == [2, 3]
    assert sorted(name for part in parts for name in part) == sorted(names)
    assert divide_workloads(sorted(names), 2, seed=0) == parts
    assert len(divide_workloads(names, 9, seed=0)) == 5


def test_no_workload_is_on_both_sides(tables: dict[tuple[str, str], TableFile]) -> None:
    files = [tables[key] for key in sorted(tables)]
    sources, tested_on = fixed_division(files, ["C1", "C2"], ["C1", "matmul-256", "C9"])
    assert [one.workload for one in sources] == ["C1", "C2"]
    assert [one.workload for one in tested_on] == ["matmul-256"]
    for fitted, aims in fold_divisions(files, 3, seed=0).values():
        assert {one.workload for one in fitted} | {one.workload for one in aims} == set(OPERATORS)
        assert not set(fitted) & set(aims)
    assert fold_divisions(files, 0, seed=0) == fold_divisions(files[:1], 2, seed=0) == {}


@pytest.mark.parametrize("model", ["gbt-rank", "gbt-config", "treegru-context-rank", "gnn-rank", "lstm-rank"])
def test_a_model_ranks_what_it_has_not_seen(tables: dict[tuple[str, str], TableFile], model: str) -> None:
    """Not by raw configurations: those of another operator mean something else."""
    task = ModelTest(
        model, "transfer", "native", 0, (tables["native", "C1"],), (tables["native", "C2"],), 128
    )
    metrics = evaluate_model(task)
    assert evaluate_model(task) == metrics
    assert set(metrics) == {"C2"}
    if model != "gbt-config":
        assert metrics["C2"]["kendall_tau"] > 0.3
    assert metrics["C2"]["top_1"] >= metrics["C2"]["top_5"] >= metrics["C2"]["top_10"] >= 0.0


def test_baselines_by_hand(tables: dict[tuple[str, str], TableFile]) -> None:
    file = tables["native", "matmul-256"]
    times = runtimes(file)
    space = recorded_space(parse_operator(OPERATORS["matmul-256"]), 1200)
    costs = traffic_cost(space, space.rows(range(space.size)))
    chosen = np.argsort(costs, kind="stable")[:10]
    tests = {name: ModelTest(name, "transfer", "native", 0, (), (file,), 0) for name in BASELINES}
    by_name = {name: evaluate_model(test)["matmul-256"] for name, test in tests.items()}
    assert by_name["traffic"]["failed_in_10"] == np.isinf(times[chosen]).sum()
    fastest = times[chosen][np.isfinite(times[chosen])].min()
    assert by_name["traffic"]["top_10"] == pytest.approx(100.0 * (fastest / times.min() - 1.0))
    assert abs(by_name["random"]["kendall_tau"]) < 0.2


def test_traffic_of_a_cache_that_holds_everything_is_every_byte_once() -> None:
    space = recorded_space(parse_operator("matmul:m=32,n=32,k=32"), 1200)
    every = space.rows(range(space.size))
    # Sums that are kept in the output, in no buffer of their own.
    rows = every[[space.choices(row)["cache"] == "none" for row in every]]
    # Three arrays of 32 x 32 float32; a cache of 0 bytes holds nothing: three accesses for each of 32^3 sums.
    assert set(traffic_cost(space, rows)) == {3 * 32 * 32 * 4}
    assert set(traffic_cost(space, rows, 0)) == {3 * 32**3 * 4}


def test_tests_are_kept_and_have_rows(tmp_path: Path, tables: dict[tuple[str, str], TableFile]) -> None:
    names = [test.name for test in list_tests(MODELS, tables)]
    # The fixed split and three folds, one model and two baselines.
    assert len(names) == len(set(names)) == 4 * 3
    assert list_tests(SECTION, tables) == []
    few = replace(MODELS, models=replace(MODELS.models, folds=0))
    folders = (tmp_path / name for name in ("params.yaml", "out", "reports", "programs"))
    workspace = Workspace("test", tmp_path, *folders, Backend(jobs=1))
    results = run_tests(few, tables, workspace, tmp_path / "models")
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "models").iterdir()}
    assert len(files) == 3
    assert run_tests(few, tables, workspace, tmp_path / "models") == results
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "models").iterdir()} == files
    rows = list(rows_of_tests(results, Provenance("p", "d", "r")))
    assert {(row.split, row.program, row.model) for row in rows} == {
        ("transfer", "matmul-256", model) for model in ("gbt-rank", *BASELINES)
    }


@pytest.mark.parametrize("wrong", [{"models": ("best",)}, {"folds": 1}, {"seeds": ()}], ids=str)
def test_impossible_tests(wrong: dict[str, object]) -> None:
    with pytest.raises((ValueError, ChoiceError), match=next(iter(wrong))[:4]):
        ModelTests(**wrong)  # type: ignore[arg-type]
    assert "gbt-rank" in FITTED
