"""Learning curves: points by network and steps, and the least budget at which networks keep their order."""

from __future__ import annotations

import math

import pytest

from costbench.reports.tables.learning_curves import (
    Curves,
    curves_table,
    is_curve,
    is_rate,
    learning_curves,
    order_at,
    rates_tables,
    settled_after,
)
from costbench.reports.training_runs import Budget, Selected
from tests.reports.conftest import curve_points, results_of_rows, rows_of, variant_rows
from tests.sentences import numbers

COLUMNS = {"tile": "validation/tau", "fusion": "validation/mape"}


def run(variant: str, steps: int, seed: int = 0) -> Budget:
    return Budget("curves-tile", "tile", "random", "tpu_v2", variant, seed, steps, 8, 32, 4)


def curves(**errors: dict[int, float]) -> Curves:
    """Curves with the same number as validation value and as test error, by network and steps."""
    points = curve_points(
        {
            name: [(steps, value, value) for steps, value in sorted(points.items())]
            for name, points in errors.items()
        }
    )
    return Curves("fusion", "random", "tpu_v2", "validation/mape", points, None, 256)


def settled(found: Curves) -> tuple[int | None, tuple[str, ...]]:
    return settled_after(found, "error", rising=False)


def test_names_of_points() -> None:
    assert is_curve("curve-lpm2021-400")
    assert is_curve("curve-none-lstm-25600")
    assert not any(map(is_curve, ("curve-lstm", "graphsage-3e-4", "main", "my-curve-lstm-400")))


def test_the_least_budget_from_which_on_the_order_stays() -> None:
    # a, b change places between 400 and 1,600; from then on b leads.
    found = curves(
        a={400: 30.0, 1600: 25.0, 6400: 20.0, 25600: 18.0}, b={400: 40.0, 1600: 24.0, 6400: 15.0, 25600: 9.0}
    )
    assert settled(found) == (1600, ("b", "a"))
    assert order_at(found, 400, "error", rising=False) == ("a", "b")
    # Of a correlation more is better: the same numbers are the other way round.
    assert order_at(found, 400, "validation", rising=True) == ("b", "a")


def test_an_order_that_was_once_the_same_and_changed_since_does_not_count() -> None:
    found = curves(
        a={400: 1.0, 1600: 3.0, 6400: 1.0, 25600: 1.0}, b=dict.fromkeys((400, 1600, 6400, 25600), 2.0)
    )
    assert settled(found) == (6400, ("a", "b"))


def test_an_order_of_one_budget_is_not_settled() -> None:
    assert settled(curves(a={400: 1.0, 1600: 3.0}, b={400: 2.0, 1600: 2.0})) == (None, ("b", "a"))
    assert settled(curves(a={400: 1.0}, b={400: 2.0})) == (None, ("a", "b"))


def test_budgets_that_one_network_lacks_do_not_count() -> None:
    found = curves(a={400: 1.0, 1600: 1.0, 6400: 9.0}, b={400: 2.0, 1600: 2.0})
    assert found.budgets == (400, 1600)
    assert settled(found) == (400, ("a", "b"))


def test_points_have_test_results_and_means_over_seeds() -> None:
    names = ("curve-lstm-400", "curve-lstm-1600")
    rows = [
        row
        for name, errors in zip(names, ([8.0, 4.0, 2.0], [4.0, 2.0, 1.0]), strict=True)
        for row in variant_rows(name, "tile", errors, tau=0.7)
    ]
    selected = [
        Selected(run(names[0], 400), 0.6),
        Selected(run(names[0], 400, 1), 0.8),
        Selected(run(names[1], 1600), 0.9),
        # Trained, not evaluated.
        Selected(run("curve-learned-400", 400), 0.75),
    ]
    # The ablations see the samples of 400 steps of 4 x 32.
    ablation = Budget("ablations-tile", "tile", "random", "tpu_v2", "graphsage-column-wise", 0, 400, 4, 32, 2)
    budgets = [*(one.budget for one in selected), ablation]
    (found,) = learning_curves(results_of_rows(rows_of(), rows), selected, budgets, COLUMNS)
    assert found.ablations == 200.0
    (untested,) = found.networks["learned"].itertuples()
    assert (untested.steps, untested.validation) == (400, 0.75)
    assert math.isnan(untested.error)
    first, second = found.networks["lstm"].itertuples()
    # Geometric means of 8, 4, 2 and of 4, 2, 1.
    assert (first.steps, first.validation, first.error, first.tau) == (
        400,
        pytest.approx(0.7),
        pytest.approx(4.0),
        pytest.approx(0.7),
    )
    assert (second.steps, second.error) == (1600, pytest.approx(2.0))
    table = curves_table(found)
    assert table.name == "curves_tile_random_tpu_v2"
    assert [row[:3] for row in table.rows] == [
        ("lstm", 400, 102_400),
        ("lstm", 1600, 409_600),
        ("learned", 400, 102_400),
    ]


RATES_COLUMNS = {"tile": "validation/tau", "fusion": "validation/mape"}


def run_of_rates(task: str, variant: str, value: float, seed: int = 0) -> Selected:
    return Selected(Budget(f"rates-{task}", task, "random", "tpu_v2", variant, seed, 500, 8, 32, 2), value)


def test_names_of_trainings() -> None:
    assert is_rate("rate-gat-lstm-3e-4")
    assert not any(map(is_rate, ("gat-3e-4", "rate-gat", "graphsage-column-wise", "curve-lstm-400")))


def test_the_best_is_the_highest_tau_and_the_least_error() -> None:
    values = {"3e-4": 0.7, "1e-3": 0.9, "3e-3": 0.8}
    selected = [
        run_of_rates(task, f"rate-none-per-node-{rate}", value)
        for task in ("tile", "fusion")
        for rate, value in values.items()
    ]
    table, fusion = rates_tables(selected, RATES_COLUMNS)
    assert fusion.rows[0][-1] == "0.0003"
    assert table.name == "rates_tile_random_tpu_v2"
    assert table.rows == (("none-per-node", 0.7, 0.9, 0.8, "0.001"),)
    assert [table.is_best(0, column) for column in (1, 2, 3)] == [False, True, False]
    assert 500 in numbers(table.notes[0])


def test_seeds_are_averaged_and_of_equals_the_least_rate_is_taken() -> None:
    selected = [
        run_of_rates("tile", "rate-gat-lstm-1e-3", 0.5),
        run_of_rates("tile", "rate-gat-lstm-1e-3", 0.7, 1),
        run_of_rates("tile", "rate-gat-lstm-3e-4", 0.6),
    ]
    (table,) = rates_tables(selected, RATES_COLUMNS)
    assert table.rows == (("gat-lstm", 0.6, pytest.approx(0.6), "0.0003"),)
