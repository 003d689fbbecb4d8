"""Searches on tables of a made-up machine: budgets, repeats, earlier models, features without duplicates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costbench.errors import ChoiceError, DataError
from costbench_schedules.experiments.model_tests import TIMED
from costbench_schedules.experiments.recorded_tables import (
    TableFile,
    complete_tables,
    distinct_columns,
    features_of,
    runtimes,
)
from costbench_schedules.experiments.table_rows import facts_of
from costbench_schedules.experiments.table_search import ARMS, SCRATCH, ScheduleSearch, replay_search
from costbench_schedules.experiments.table_tuning import SearchGroup, list_searches
from costbench_schedules.models.learner import samples_of
from costbench_schedules.models.spec import learner_of
from costbench_schedules.records.table import empty_table, write_table
from tests.schedules.experiments.made_up_tables import SECTION, made_up_table, write_tables


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], TableFile]:
    folder = tmp_path_factory.mktemp("schedules")
    write_tables(folder)
    return dict(complete_tables(folder))


def search(file: TableFile, arm: str, repeat: int = 0, *sources: TableFile) -> list[int]:
    task = ScheduleSearch(file, arm, repeat, 32, SECTION.guided, sources, 64 if sources else 0)
    values = replay_search(task).tolist()
    assert replay_search(task).tolist() == values
    return values


def test_every_measurement_is_of_another_configuration(tables: dict[tuple[str, str], TableFile]) -> None:
    file = tables["native", "C1"]
    for arm, count in (("random", 32), ("random-x2", 64), ("genetic-x2", 64), ("gbt-rank", 32)):
        trace = search(file, arm)
        assert len(trace) == len(set(trace)) == count


def test_arms_begin_alike_and_repeats_differ(tables: dict[tuple[str, str], TableFile]) -> None:
    file = tables["native", "C1"]
    trees, chosen = search(file, "gbt-rank"), search(file, "gbt-regression")
    assert trees[:16] == chosen[:16]
    assert trees[:16] != search(file, "gbt-rank", 1)[:16]


def test_an_earlier_model_chooses_the_first_batch(tables: dict[tuple[str, str], TableFile]) -> None:
    """Of a machine that both operators share; the median of random draws is far behind."""
    file, source = tables["native", "C1"], tables["native", "C2"]
    times = runtimes(file)
    transferred, drawn = search(file, "transfer-relation", 0, source), search(file, "gbt-rank")
    assert np.median(times[transferred[:16]]) < 0.7 * np.median(times[drawn[:16]])


def test_guided_search_finds_what_is_fast(tables: dict[tuple[str, str], TableFile]) -> None:
    times = runtimes(tables["native", "C1"])
    guided = [times[search(tables["native", "C1"], "gbt-rank", r)].min() for r in range(3)]
    drawn = [times[search(tables["native", "C1"], "random", r)].min() for r in range(3)]
    assert np.mean(guided) < np.mean(drawn)


def test_distinct_columns_by_hand() -> None:
    rows = np.array([[0, 1, 5, 1, 2], [0, 2, 5, 2, 2], [0, 1, 5, 1, 3]], dtype=np.float32)
    assert distinct_columns(rows).tolist() == [1, 4]
    assert distinct_columns(np.zeros((2, 3), dtype=np.float32)).tolist() == [0]


def test_distinct_columns_tell_the_same_rows_apart(tables: dict[tuple[str, str], TableFile]) -> None:
    rows = features_of(tables["native", "C1"], "relation")
    assert isinstance(rows, np.ndarray)
    kept = rows[:, distinct_columns(rows)]
    assert len(np.unique(kept, axis=0)) == len(np.unique(rows, axis=0))
    assert kept.shape[1] < rows.shape[1]


def test_trees_split_alike_without_the_other_columns(tables: dict[tuple[str, str], TableFile]) -> None:
    file = tables["native", "C1"]
    rows, times = features_of(file, "relation"), runtimes(file)
    assert isinstance(rows, np.ndarray)
    drawn = np.random.default_rng(0).permutation(len(rows))[:100]
    kept, measured = rows[:, distinct_columns(rows)], samples_of(times[drawn])
    learner = learner_of(ARMS["gbt-rank"].model)
    every, few = (learner.fit(x[drawn], measured, 0).predict(x) for x in (rows, kept))
    assert few == pytest.approx(every)


def test_sources_are_never_what_is_searched(tables: dict[tuple[str, str], TableFile]) -> None:
    searches = list_searches(SECTION, tables)
    sources = {one.table.workload: [s.workload for s in one.sources] for one in searches if one.sources}
    assert sources == {"C1": ["C2"], "C2": ["C1"]}
    # Two workloads that are recorded, four arms, two repeats.
    assert len(searches) == len({one.name for one in searches}) == 16


def test_sources_on_another_target_may_be_the_same_workload(tmp_path: Path) -> None:
    write_tables(tmp_path)
    write_tables(tmp_path, "generic")
    group = SearchGroup(("C1",), ("transfer-target",), ("generic",))
    result = list_searches(replace(SECTION, searches={"one": group}), complete_tables(tmp_path))
    assert {(s.target, s.workload) for one in result for s in one.sources} == {
        ("native", "C1"),
        ("native", "C2"),
    }


def test_another_processors_tables_are_targets_of_their_own(tmp_path: Path) -> None:
    """Records of its own come from its folder, those of another target from the first processor."""
    write_tables(tmp_path)
    write_tables(tmp_path / "xeon")
    write_tables(tmp_path / "xeon", "generic")
    tables = complete_tables(tmp_path)
    assert {target for target, _ in tables} == {"native", "xeon-native", "xeon-generic"}
    assert facts_of(tables["xeon-native", "C1"])["target"] == "xeon-native"
    group = SearchGroup(("C1",), ("transfer-target", "transfer-relation"), ("xeon-native",))
    result = list_searches(replace(SECTION, searches={"one": group}), tables)
    assert {(one.arm, s.target, s.workload) for one in result for s in one.sources} == {
        ("transfer-target", "native", "C1"),
        ("transfer-target", "native", "C2"),
        ("transfer-relation", "xeon-native", "C2"),
    }


def test_incomplete_tables_are_left_out_and_doubles_are_refused(tmp_path: Path) -> None:
    table = made_up_table("C2")
    nothing = empty_table("C2", table.space, "native", table.host, table.timing)
    write_table(tmp_path / "C2.arrow", nothing)
    assert complete_tables(tmp_path) == {}
    assert complete_tables(tmp_path / "none") == {}
    for name in ("a", "b"):
        write_table(tmp_path / name / "C1.arrow", made_up_table("C1"))
    with pytest.raises(DataError, match="C1 for native again"):
        complete_tables(tmp_path)


def test_arms_without_an_earlier_model_are_arms() -> None:
    assert set(SCRATCH) == {name for name, arm in ARMS.items() if arm.earlier}
    assert {*SCRATCH.values(), *TIMED} <= set(ARMS)
    for name, scratch in SCRATCH.items():
        assert ARMS[name].model == ARMS[scratch].model


@pytest.mark.parametrize("wrong", [{"arms": ("best",)}, {"workloads": ()}, {"targets": ("a", "a")}], ids=str)
def test_impossible_groups(wrong: dict[str, tuple[str, ...]]) -> None:
    values = {"workloads": ("C1",), "arms": ("random",), **wrong}
    with pytest.raises((ValueError, ChoiceError), match=r"arm|workloads|targets"):
        SearchGroup(**values)
