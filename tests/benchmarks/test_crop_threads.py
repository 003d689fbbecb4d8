"""Drawn schedules run in parallel, and the summary separates what is serial from what is uneven."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.crop_threads import Measured, Predicted, drawn, main, summary
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.spaces.space import ScheduleSpace


def test_schedules_are_different_parallel_and_the_same_again() -> None:
    operator = parse_operator("C6")
    rows = drawn(operator, 12, seed=3)
    space = ScheduleSpace(operator)
    assert len({tuple(row) for row in rows.tolist()}) == 12
    assert all(space.choices(row)["parallel"] != "none" for row in rows)
    assert np.array_equal(rows, drawn(operator, 12, seed=3))
    assert not np.array_equal(rows, drawn(operator, 12, seed=4))


def measured(one: tuple[int, ...], two: tuple[int, ...]) -> Measured:
    return Measured("C6", (0,), one, two)


def test_speed_ups_and_their_errors_by_hand() -> None:
    pairs = [
        (measured((1200, 1000), (500, 600)), Predicted(1000.0, 500.0, 500.0)),
        (measured((900,), (600,)), Predicted(960.0, 600.0, 480.0)),
    ]
    found = summary(pairs)
    assert found.schedules == 2
    # 1000 and 960 for 1000 and 900; 500 and 600 for the same.
    assert found.error == pytest.approx((100 / 30, 0.0))
    # Twice and 1.5 times as fast; 2, 2 if divided evenly; 2, 1.6 as predicted.
    assert found.speed_up == pytest.approx((1.75, 1.8))
    assert found.speed_up_error == pytest.approx({"ideal": 100 / 6, "even": 100 / 6, "crop": 100 / 30})
    assert found.speed_up_tau == 1.0
    assert found.tau == (1.0, 1.0)


def test_rounds_that_differ_are_told() -> None:
    assert measured((100, 110), (50, 60)).spread == pytest.approx(0.2)


def test_measurements_of_other_options_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {"workloads": ["C6"], "schedules": 1, "rounds": 1, "seed": 0}
    kept = {"options": options, "measured": [], "load before": 0.0}
    (tmp_path / "measured.json").write_text(json.dumps(kept))
    arguments = ["C6", "--schedules", "1", "--rounds", "1", "--out", str(tmp_path)]
    assert main(arguments) == 1
    assert "no schedule ran" in capsys.readouterr().err
    assert main([*arguments, "--seed", "1"]) == 1
    assert "measured.json" in capsys.readouterr().err
