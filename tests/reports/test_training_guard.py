"""A network decides claims only near the plateau of its learning curve, and if it is better than no model."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from costbench.metrics.rows import MetricRow
from costbench.reports.claims.claim import Side, load_claims
from costbench.reports.results import Results
from costbench.reports.tables.learning_curves import Curves
from costbench.reports.tables.variants import ablation_tables
from costbench.reports.training_guard import TrainingGuard, enough_samples, guard_training
from costbench.reports.training_runs import Budget
from tests.reports.conftest import curve_points, make_row, results_of_rows

# Validation errors 1 - tau of .4, .3, .21 and .2; a step has 256 samples.
POINTS = [(100, 0.6), (400, 0.7), (1600, 0.79), (6400, 0.8)]
CURVES = Curves("tile", "random", "tpu_v2", "validation/tau", curve_points({"learned": POINTS}), None, 256)
# On the way to its plateau for longer.
SLOW = [(400, 0.1), (1600, 0.2), (6400, 0.8)]
TILE = Side()


def _budget(variant: str, steps: int, split: str = "random", kernels: int = 8) -> Budget:
    return Budget("networks-tile", "tile", split, "tpu_v2", variant, 0, steps, kernels, 32, 4)


def _rows(variant: str, error: float, **changes: object) -> list[MetricRow]:
    return [
        make_row(variant=variant, application=f"a{i}", program=f"p{i}", value=error, **changes)
        for i in range(6)
    ]


def _guard(results: Results, *budgets: Budget, curves: tuple[Curves, ...] = (CURVES,)) -> TrainingGuard:
    # What the papers call no difference between tile errors: 0.9 points of 3.7 and 4.6, 22%.
    return guard_training(results, budgets, curves, load_claims())


@pytest.mark.parametrize(("share", "steps"), [(0.0, 6400), (0.06, 1600), (0.6, 400), (9.0, 100)])
def test_the_first_point_that_is_near_the_plateau(share: float, steps: int) -> None:
    assert enough_samples(CURVES, "learned", share) == 256 * steps


def test_a_curve_that_still_falls_has_not_shown_its_plateau() -> None:
    # From .21 to .20, 4.8%.
    assert math.isinf(enough_samples(CURVES, "learned", 0.04) or 0.0)
    slow = replace(CURVES, points=curve_points({"learned": SLOW}))
    assert math.isinf(enough_samples(slow, "learned", 0.5) or 0.0)


def test_nobody_is_trained_enough_for_a_plateau_that_was_not_seen() -> None:
    curves = replace(CURVES, points=curve_points({"learned": POINTS, "lstm": SLOW}))
    guard = _guard(results_of_rows(_rows("main", 4.0)), _budget("none-lstm", 6400), curves=(curves,))
    assert set(guard.reasons) == {("tile", Side(variant="none-lstm"))}
    assert guard.steps == {}


@pytest.mark.parametrize(("last", "is_enough"), [(0.605, True), (0.61, False)])
def test_where_papers_name_no_margin_two_percent_are_near(last: float, is_enough: bool) -> None:
    """No paper calls errors of layouts equal. From .40, .395 is 1.3% of it and .39 is 2.6%."""
    points = curve_points({"learned": [(600, 1.0 - 0.4), (1200, last)]})
    curves = Curves("layout", "folds", "tpu_v3", "validation/tau", points, None, 256)
    budget = replace(_budget("main", 600, "fold1"), task="layout", chip="tpu_v3")
    reasons = _guard(results_of_rows(_rows("main", 4.0)), budget, curves=(curves,)).reasons
    assert bool(reasons) != is_enough


def test_a_curve_of_one_point_has_no_plateau() -> None:
    one = replace(CURVES, points=curve_points({"learned": POINTS[:1]}))
    assert enough_samples(one, "learned", 0.2) is None


def test_samples_count_wherever_a_network_is_tested() -> None:
    results = results_of_rows(_rows("main", 4.0))
    guard = _guard(
        results,
        _budget("enough", 1600),
        _budget("short", 1599),
        _budget("half", 1600, kernels=4),
        _budget("main", 1600, "fold1"),
        _budget("main", 160, "fold2"),
    )
    short, half = ("tile", Side(variant="short")), ("tile", Side(variant="half"))
    folds = ("tile", Side(split="folds"))
    assert set(guard.reasons) == {short, half, folds}
    # Steps of a half of the samples need twice as many.
    assert guard.steps == {short: 1600, half: 3200, folds: 1600}
    assert guard.trained[folds] == 160
    assert guard.trained["tile", Side(variant="enough")] == 1600


def test_a_network_has_its_own_curve_where_there_is_one() -> None:
    curves = replace(CURVES, points=curve_points({"learned": POINTS, "lstm": SLOW}))
    results = results_of_rows(_rows("main", 4.0))
    guard = _guard(results, _budget("none-lstm", 1600), _budget("other", 1600), curves=(curves,))
    assert set(guard.reasons) == {("tile", Side(variant="none-lstm"))}


def test_without_a_curve_nobody_knows() -> None:
    guard = _guard(results_of_rows(_rows("main", 4.0)), _budget("main", 10**6), curves=())
    assert set(guard.reasons) == {("tile", TILE)}
    assert guard.steps == {}


def test_a_network_that_is_no_better_than_none_decides_nothing() -> None:
    fusion = {"task": "fusion", "metric": "mape_ge5us"}
    results = results_of_rows(
        _rows("main", 230.0),
        _rows("good", 4.0),
        _rows("main", 238.0, model="random"),
        _rows("diverged", 584.0),
        _rows("main", 100.0, **fusion),
        _rows("good", 99.0, **fusion),
    )
    names = [(task, name) for task in ("tile", "fusion") for name in ("main", "good", "diverged")]
    budgets = [Budget("x", task, "random", "tpu_v2", name, 0, 6400, 8, 32, 4) for task, name in names]
    curves = (CURVES, replace(CURVES, task="fusion", column="validation/mape"))
    guard = _guard(results, *budgets, curves=curves)
    assert set(guard.reasons) == {("tile", Side(variant="diverged")), ("fusion", Side())}


def test_tables_of_variants_say_so() -> None:
    results = results_of_rows(_rows("main", 4.0), _rows("vanilla", 4.1), _rows("mse", 40.0))
    budgets = (_budget("mse", 100), _budget("vanilla", 1600))
    (table,) = ablation_tables(results, budgets, untrained=_guard(results, *budgets).reasons)
    assert table.data.set_index("variant")["tile_training"].to_dict() == {
        "vanilla": "",
        "mse": "not trained enough",
    }
    # Where all were trained enough, there is no such column.
    assert "tile_training" not in ablation_tables(results, budgets)[0].data


def test_networks_on_folds_are_held_against_curves_on_folds() -> None:
    # On folds the network takes 6,400 steps to come near its plateau, on the random split 1,600.
    on_folds = replace(CURVES, split="folds", points=curve_points({"learned": SLOW}))
    results = results_of_rows(_rows("main", 4.0))
    budgets = (_budget("main", 1600, "fold1"), _budget("main", 1600))
    guard = _guard(results, *budgets, curves=(CURVES, on_folds))
    assert set(guard.reasons) == {("tile", Side(split="folds"))}
    # Other splits without a curve are held against the first one.
    assert set(_guard(results, *budgets, curves=(on_folds,)).reasons) == {
        ("tile", Side(split="folds")),
        ("tile", Side()),
    }
