"""Learning rates are chosen by validation values, the best of each network."""

from __future__ import annotations

import pytest

from costbench.reports.tables.learning_curves import is_rate, rates_of, rates_table
from costbench.reports.training_runs import Budget, Selected

COLUMNS = {"tile": "validation/tau", "fusion": "validation/mape"}


def run(task: str, variant: str, value: float, seed: int = 0) -> Selected:
    return Selected(Budget(f"rates-{task}", task, "random", "tpu_v2", variant, seed, 500, 8, 32, 2), value)


def test_names_of_trainings() -> None:
    assert is_rate("rate-gat-lstm-3e-4")
    assert not any(map(is_rate, ("gat-3e-4", "rate-gat", "graphsage-column-wise", "curve-lstm-400")))


def test_the_best_is_the_highest_tau_and_the_least_error() -> None:
    values = {"3e-4": 0.7, "1e-3": 0.9, "3e-3": 0.8}
    selected = [
        run(task, f"rate-none-per-node-{rate}", value)
        for task in ("tile", "fusion")
        for rate, value in values.items()
    ]
    tile, fusion = rates_of(selected, COLUMNS)
    assert tile.tried == (3e-4, 1e-3, 3e-3)
    assert (tile.chosen("none-per-node"), fusion.chosen("none-per-node")) == (1e-3, 3e-4)
    table = rates_table(tile)
    assert table.name == "rates_tile_random_tpu_v2"
    assert table.rows == (("none-per-node", 0.7, 0.9, 0.8, "0.001"),)
    assert [table.is_best(0, column) for column in (1, 2, 3)] == [False, True, False]
    assert "trainings of 500 steps" in table.notes[0]


def test_seeds_are_averaged_and_of_equals_the_least_rate_is_taken() -> None:
    selected = [
        run("tile", "rate-gat-lstm-1e-3", 0.5),
        run("tile", "rate-gat-lstm-1e-3", 0.7, 1),
        run("tile", "rate-gat-lstm-3e-4", 0.6),
    ]
    (found,) = rates_of(selected, COLUMNS)
    assert found.networks == {"gat-lstm": {1e-3: pytest.approx(0.6), 3e-4: 0.6}}
    assert found.chosen("gat-lstm") == 3e-4
    assert rates_table(found).rows[0][-1] == "0.0003"
