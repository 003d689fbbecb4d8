from __future__ import annotations

import math

import pytest

from costbench.autotuning.budget import COMPILE_S, LPM2021_CONFIG_S, Charging, ProgramCharge, minutes


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
