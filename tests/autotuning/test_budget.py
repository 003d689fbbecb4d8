""""""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest

from costbench.autotuning.budget import (
    COMPILE_S,
    LPM2021_CONFIG_S,
    Charging,
    MeasurementBudget,
    ProgramCharge,
    minutes,
)
from costbench.params import parse

NONE = np.zeros(0)


def test_what_fits_is_counted_from_the_front() -> None:
    budget = MeasurementBudget(seconds=5.0)
    # 2 + 2 fit, the third would make 6; the fourth would fit but comes later.
    assert budget.affordable(np.array([2.0, 2.0, 2.0, 0.5])) == 2
    assert budget.affordable(np.array([2.0, 3.0])) == 2
    assert budget.affordable(np.array([5.1])) == 0
    assert budget.affordable(NONE) == 0


def test_how_many_decisions_a_budget_pays_for() -> None:
    budget = MeasurementBudget(seconds=5.0)
    assert budget.pays_for(10, 0.5)
    assert not budget.pays_for(11, 0.5)
    # A program of 1,100 edges has more fusion configs than the largest float.
    assert not budget.pays_for(2**1100, 0.5)
    assert MeasurementBudget().pays_for(2**1100, 0.5)


def test_both_limits_hold() -> None:
    budget = MeasurementBudget(seconds=5.0, evaluations=3)
    assert budget.affordable(np.full(10, 1.0)) == 3
    assert budget.affordable(np.full(10, 2.0)) == 2
    assert budget.evaluations_left(10) == 3
    assert budget.evaluations_left(2) == 2


def test_without_limits_everything_fits() -> None:
    budget = MeasurementBudget()
    assert budget.affordable(np.full(1000, 1e9)) == 1000
    assert budget.evaluations_left(10**12) == 10**12


def test_charging_gives_a_new_budget() -> None:
    budget = MeasurementBudget(seconds=5.0, evaluations=4)
    after = budget.charge(np.array([1.0, 2.5]))
    assert after == MeasurementBudget(5.0, 4, spent_seconds=3.5, spent_evaluations=2)
    assert budget.spent_seconds == 0.0
    assert after.charge(NONE) == after
    assert after.affordable(np.array([1.5, 0.0, 0.0])) == 2
    with pytest.raises(FrozenInstanceError):
        after.seconds = 9.0  # type: ignore[misc]


@pytest.mark.parametrize("seconds", [[5.1], [2.0, 2.0, 2.0], [0.0] * 5])
def test_more_than_there_is_cannot_be_charged(seconds: list[float]) -> None:
    with pytest.raises(ValueError, match="expected at most 5"):
        MeasurementBudget(seconds=5.0, evaluations=4).charge(np.array(seconds))


def test_spending_in_parts_gives_the_same_digits_as_at_once() -> None:
    # 0.1 ten times is 0.9999999999999999 one by one, and 1.0 if added in pairs.
    seconds = np.full(10, 0.1)
    at_once = MeasurementBudget().charge(seconds)
    in_parts = MeasurementBudget().charge(seconds[:3]).charge(seconds[3:])
    assert at_once.spent_seconds == in_parts.spent_seconds == sum([0.1] * 10)


def test_with_all_seconds_spent_nothing_is_begun() -> None:
    budget = MeasurementBudget(seconds=1.0).charge(np.array([1.0]))
    assert budget.evaluations_left(5) == 0


@pytest.mark.parametrize(
    "limits", [{"seconds": -1.0}, {"seconds": math.nan}, {"seconds": math.inf}, {"evaluations": -1}]
)
def test_impossible_limits(limits: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        MeasurementBudget(**limits)  # type: ignore[arg-type]


def test_a_budget_comes_from_parameters() -> None:
    assert parse(MeasurementBudget, {"seconds": 60}, where="test") == MeasurementBudget(seconds=60.0)


def test_what_the_papers_say() -> None:
    # 44 45 99 104 126 135: the middle of 99 and 104. 720,000 machine seconds for 50,000 configs.
    assert COMPILE_S == 101.5
    assert LPM2021_CONFIG_S == 14.4


def test_by_hand() -> None:
    charging = Charging(
        compile_s=10.0,
        compile_s_per_instruction=0.5,
        repeat_s=2.0,
        evaluation_s=1.0,
        evaluation_s_per_instruction=0.25,
    )
    assert charging.measuring(100) == ProgramCharge(60.0, 2.0)
    assert charging.predicting_s(100) == 26.0
    assert minutes(1.5).seconds == 90.0


def test_the_default_does_not_depend_on_size() -> None:
    assert Charging().measuring(1) == Charging().measuring(10_000) == ProgramCharge(101.5)


@pytest.mark.parametrize(
    ("compile_s", "repeat_s", "name"),
    [
        (-1.0, 1.0, "compile_s"),
        (math.inf, 1.0, "compile_s"),
        (1.0, 0.0, "repeat_s"),
        (1.0, math.nan, "repeat_s"),
    ],
)
def test_impossible_charges(compile_s: float, repeat_s: float, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        ProgramCharge(compile_s, repeat_s)


@pytest.mark.parametrize(
    "wrong",
    [{"compile_s": -1.0}, {"repeat_s": 0.0}, {"evaluation_s": 0.0}, {"evaluation_s": math.nan}],
    ids=str,
)
def test_impossible_settings(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Charging(**wrong)
