from __future__ import annotations

import itertools
from math import inf

import numpy as np
import pandas as pd
import pytest

from costbench.arrays import F64, I64
from costbench.execution.workers import Backend
from costbench.rng import stream
from costbench_schedules.experiments.replayed_tables import SearchPlan, related, search_tables
from costbench_schedules.experiments.table_scores import (
    COLUMNS,
    TableSearches,
    area_end,
    choices,
    curve,
    random_curve,
    score,
    score_rows,
)
from costbench_schedules.experiments.table_summary import (
    compare_with_best,
    expected_trials,
    over_tables,
    summarise,
)
from costbench_schedules.records.tuning_table import TuningTable, random_trials
from costbench_schedules.spaces.parameter_space import ParameterSpace


def table_of(
    first: list[float], second: list[float], device: str = "gpu", kernel: str = "sum"
) -> TuningTable:
    """A table of one parameter; infinite times are failures."""
    space = ParameterSpace({"size": range(len(first))}, np.arange(len(first))[:, None])
    reasons = tuple("RuntimeFailedConfig" if time == inf else "" for time in first)
    arrays = (np.array(first), np.array(second), np.zeros(len(first)))
    return TuningTable(kernel, device, space, *arrays, reasons, np.full(len(first), 2))


TABLE = table_of([10.0, 4.0, inf, 5.0, 3.9], [10.0, 4.0, inf, 5.0, 8.0])
"""Configuration 4 is fastest at first and slow when it is measured again; 1 is the best."""


def test_a_choice_is_the_least_first_measurement_so_far() -> None:
    order = np.array([2, 0, 3, 1, 4])
    assert choices(TABLE, order).tolist() == [-1, 0, 3, 1, 4]
    # The median of those that ran, 6.5, before anything did; the second measurement of the choice later.
    assert curve(TABLE, order, 7).tolist() == [6.5, 10.0, 5.0, 4.0, 8.0, 8.0, 8.0]


def test_metrics_are_those_of_second_measurements() -> None:
    metrics = score(TABLE, np.array([2, 0, 3, 1, 4]), 20)
    assert (metrics["trials_to_95"], metrics["reached_95"]) == (4.0, 1.0)
    assert (metrics["best_at_10"], metrics["best_at_20"]) == (0.5, 0.5)
    assert "best_at_50" not in metrics
    missed = score(TABLE, np.array([0, 3]), 2)
    assert (missed["trials_to_95"], missed["reached_95"]) == (2.0, 0.0)


def test_random_search_is_the_mean_over_all_orders() -> None:
    curves = [curve(TABLE, np.array(order), 5) for order in itertools.permutations(range(5))]
    np.testing.assert_allclose(random_curve(TABLE, 5), np.mean(curves, axis=0))
    assert random_curve(TABLE, 7)[6] == random_curve(TABLE, 7)[4] == 8.0


def test_random_search_has_no_area_and_the_best_at_once_has_all() -> None:
    draws = stream(0, "table")
    times: F64 = np.exp(draws.normal(size=40))
    table = table_of(times.tolist(), (times * draws.uniform(1.0, 1.05, size=40)).tolist())
    orders: list[I64] = [draws.permutation(40) for _ in range(2000)]
    areas = [score(table, order, 40)["auc"] for order in orders]
    assert abs(float(np.mean(areas))) < 4.0 * float(np.std(areas)) / np.sqrt(len(areas))
    best = int(np.argmin(table.second_ns))
    always_best = score(table, np.array([best]), 40)
    assert choices(table, np.array([best])).tolist() == [best]
    assert always_best["auc"] == pytest.approx(1.0)
    assert always_best["trials_to_99"] == 1.0


def test_the_area_ends_where_random_search_is_nearly_there() -> None:
    table = table_of([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    # Means of the least of t draws: 2, 4/3, 1; the target is 1 + 0.05 (2 - 1).
    np.testing.assert_allclose(random_curve(table, 3), [2.0, 4.0 / 3.0, 1.0])
    assert area_end(table, 3) == 3
    assert area_end(table, 2) == 2
    # The third point counts 0: nothing is left to divide by.
    assert score(table, np.array([1, 0]), 3)["auc"] == pytest.approx((0.0 + 1.0 + 0.0) / 3.0)


def test_equally_fast_configurations_have_no_area() -> None:
    flat = table_of([2.0, 2.0], [2.0, 2.0])
    assert score(flat, np.array([1, 0]), 2)["auc"] == 0.0


def test_draws_until_a_fast_configuration() -> None:
    assert random_trials(TABLE, 0.95) == 6 / 2
    assert random_trials(TABLE, 0.5) == 6 / 4


def test_expected_trials_count_the_failed_searches() -> None:
    rows = score_rows([TableSearches(TABLE, "a", 2, [np.array([0, 3]), np.array([1, 0]), np.array([0, 1])])])
    table = summarise(rows).set_index("metric")
    # 2 + 1 + 2 trials for two successes.
    assert table.loc["trials_to_95", "value"] == pytest.approx(2.5)
    assert table.loc["trials_to_95", "low"] == 1.0
    assert table.loc["reached_95", "value"] == pytest.approx(2 / 3)
    never = score_rows([TableSearches(TABLE, "a", 2, [np.array([0, 3]), np.array([0, 2])])])
    assert summarise(never).set_index("metric").loc["trials_to_95", "value"] == inf
    assert expected_trials(never, "95").loc[("sum", "gpu"), "a"] == 4.0


def test_tables_are_the_unit_of_intervals_over_tables() -> None:
    tables = [table_of([9.0, 8.0, 4.0], [9.0, 8.0, 4.0], f"gpu{n}") for n in range(4)]
    searches = []
    for number, table in enumerate(tables):
        searches += [
            TableSearches(table, "slow", 3, [np.array([0, 1, 2])]),
            TableSearches(table, "fast", 3, [np.array([2]) if number else np.array([0, 2])]),
        ]
    across = over_tables(score_rows(searches), "slow").set_index(["strategy", "metric"])
    ratio = across.loc[("fast", "trials_to_95_ratio")]
    assert ratio["value"] == pytest.approx(np.exp((3 * np.log(1 / 3) + np.log(2 / 3)) / 4))
    assert ratio["low"] < ratio["value"] < ratio["high"]
    assert across.loc[("slow", "trials_to_99_ratio"), "value"] == 1.0
    assert across["tables"].unique().tolist() == [4]
    two = over_tables(score_rows(searches[:4]), "slow")
    assert two[["low", "high"]].isna().all(axis=None)


def test_all_strategies_begin_with_the_same_draws() -> None:
    draws = stream(1, "times")
    table = table_of(*[(1.0 + draws.random(200)).tolist()] * 2)
    plan = SearchPlan(("random", "genetic"), 80, 3)
    searches = {search.strategy: search for search in search_tables([table], plan)}
    for left, right in zip(searches["random"].orders, searches["genetic"].orders, strict=True):
        assert left[:20].tolist() == right[:20].tolist()
    assert searches["random"].orders[0].tolist() != searches["random"].orders[1].tolist()
    # In other processes the same.
    again, _ = search_tables([table], plan, backend=Backend(jobs=2))
    pd.testing.assert_frame_equal(score_rows([again]), score_rows([searches["random"]]))


def test_strategies_learn_from_the_same_kernel_on_other_devices() -> None:
    tables = [table_of([1.0], [1.0], device, kernel) for device in "ab" for kernel in ("k", "l")]
    assert [table.name for table in related(tables[0], tables)] == ["k-b"]


def test_the_best_peer_is_the_reference() -> None:
    trials = {"ours": (10, 20, 30), "peer-a": (40, 40, 400), "peer-b": (50, 50, 50)}
    rows = pd.DataFrame(
        [
            ("k", str(device), strategy, 0, metric, value)
            for strategy, counts in trials.items()
            for device, count in enumerate(counts)
            for end in ("95", "99")
            for metric, value in ((f"trials_to_{end}", float(count)), (f"reached_{end}", 1.0), ("auc", 0.5))
        ],
        columns=[*COLUMNS],
    ).drop_duplicates(["device", "strategy", "metric"])
    compared = compare_with_best(rows, ["peer-a", "peer-b", "peer-absent"])
    assert set(compared["reference"]) == {"peer-b"}
    ratio = compared.set_index(["strategy", "metric"]).loc[("ours", "trials_to_95_ratio"), "value"]
    assert ratio == pytest.approx((10 * 20 * 30 / 50**3) ** (1 / 3))
    with pytest.raises(ValueError, match="peer-absent has rows"):
        compare_with_best(rows, ["peer-absent"])
