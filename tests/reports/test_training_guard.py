"""A network with less training than the main one is judged only if it comes near it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from costbench.metrics.rows import MetricRow, write_rows
from costbench.reports.claims.claim import Claim, Side
from costbench.reports.claims.evaluation import CANNOT_TELL, HOLDS, evaluate_claims
from costbench.reports.claims.leads import Needed
from costbench.reports.frame import frame_of
from costbench.reports.results import Results, load_results
from costbench.reports.tables.variants import ablation_tables
from costbench.reports.training_guard import equal_steps, undertrained
from costbench.reports.training_runs import Budget
from tests.reports.conftest import make_row
from tests.sentences import numbers

MAIN = Budget("main-tile", "tile", "random", "tpu_v2", "main", 0, 1000, 8, 32, 4)


def _budget(variant: str, steps: int, split: str = "random") -> Budget:
    return Budget("networks-tile", "tile", split, "tpu_v2", variant, 0, steps, 8, 32, 4)


def _rows(variant: str, error: float, **changes: object) -> list[MetricRow]:
    return [
        make_row(variant=variant, application=f"a{i}", program=f"p{i}", value=error, **changes)
        for i in range(6)
    ]


def _results(folder: Path, *rows: list[MetricRow]) -> Results:
    write_rows(folder / "r.jsonl", [row for several in rows for row in several])
    return load_results(folder / "r.jsonl")


def test_steps_in_which_a_network_would_see_the_samples_of_the_main_one() -> None:
    # 1,000 steps of 8 x 32 samples; steps of a half of that need twice as many.
    half = Budget("networks-tile", "tile", "random", "tpu_v2", "half", 0, 700, 4, 32, 4)
    found = equal_steps(
        (MAIN, _budget("short", 400), half, _budget("long", 1000), _budget("alone", 1, "manual"))
    )
    assert found == {("tile", Side(variant="short")): 1000, ("tile", Side(variant="half")): 2000}


def test_an_undertrained_claim_says_how_many_steps_it_needs() -> None:
    claim = Claim("lpm2021.x", "Table 9", "A is better.", "tile", "tile_size_ape", "left_better", 1.0)
    short = Side(variant="short")
    claim = replace(claim, right=(short,))
    key = ("tile", short)
    rows = [*_rows("main", 4.0), *_rows("short", 8.0)]
    (found,) = evaluate_claims((claim,), frame_of(rows), 0, undertrained={key: 2.0}, steps={key: 2000})
    assert (found.verdict, found.p) == (CANNOT_TELL, None)
    assert found.needed == Needed(steps=2000)


def test_less_training_and_an_error_above_the_limit(tmp_path: Path) -> None:
    results = _results(
        tmp_path,
        _rows("main", 4.0),
        _rows("short-bad", 5.2),
        _rows("short-good", 5.0),
        _rows("long-bad", 80.0),
        _rows("unknown", 80.0),
    )
    budgets = (MAIN, _budget("short-bad", 999), _budget("short-good", 10), _budget("long-bad", 1000))
    found = undertrained(results, budgets)
    assert found == {("tile", Side(variant="short-bad")): pytest.approx(1.3)}
    assert undertrained(results, ()) == {}


def test_models_and_folds_are_named_as_in_rows(tmp_path: Path) -> None:
    where = {"split": "folds"}
    results = _results(tmp_path, _rows("main", 4.0, **where), _rows("main", 8.0, model="hybrid", **where))
    folds = [
        _budget(variant, steps, split)
        for split in ("fold1", "fold2")
        for variant, steps in (("main", 1000), ("hybrid", 500))
    ]
    assert undertrained(results, folds) == {("tile", Side("hybrid", split="folds")): pytest.approx(2.0)}


def test_such_rows_decide_no_claim_and_say_so(tmp_path: Path) -> None:
    rows = [*_rows("main", 4.0), *_rows("vanilla", 4.1), *_rows("mse", 40.0)]
    results = _results(tmp_path, rows)
    budgets = (MAIN, _budget("mse", 100), _budget("vanilla", 100))
    sides = {"left": (Side(variant="vanilla"),), "right": (Side(variant="mse"),)}
    claim = Claim("lpm2021.x", "Table 3", "A", "tile", "tile_size_ape", "left_better", 1.0, **sides)
    (plain,) = evaluate_claims((claim,), frame_of(rows), 0)
    assert (plain.verdict, plain.reason) == (HOLDS, "")
    (found,) = evaluate_claims((claim,), frame_of(rows), 0, undertrained=undertrained(results, budgets))
    assert (found.verdict, found.effect) == (CANNOT_TELL, plain.effect)
    assert "mse" in found.reason
    assert numbers(found.reason) == [10.0]
    (table,) = ablation_tables(results, budgets)
    keys = [column.key for column in table.columns]
    marked = {row[0]: bool(row[keys.index("tile_training")]) for row in table.rows}
    assert marked == {"vanilla": False, "mse": True}
    # Without budgets nothing is known, and there is no such column.
    assert "tile_training" not in [column.key for column in ablation_tables(results)[0].columns]
