from __future__ import annotations

import math

import pytest

from costbench.errors import ParamsError
from costbench.params import parse
from costbench.training.lightning_module import OptimizerSpec


def test_exponential_rate_falls_once_an_epoch() -> None:
    spec = OptimizerSpec(learning_rate=1.0, schedule="exponential", decay=0.5)
    rates = [spec.rate(step, steps_per_epoch=10, epochs=3) for step in (0, 9, 10, 19, 20)]
    assert rates == [1.0, 1.0, 0.5, 0.5, 0.25]


def test_cosine_rate_falls_over_the_whole_training() -> None:
    spec = OptimizerSpec(learning_rate=2.0, schedule="cosine", decay=0.1)
    # Half way, the cosine is 0: 0.1 + 0.9 / 2. A quarter: (1 + cos(pi / 4)) / 2.
    assert spec.rate(0, 10, 4) == pytest.approx(2.0)
    assert spec.rate(20, 10, 4) == pytest.approx(2.0 * 0.55)
    assert spec.rate(10, 10, 4) == pytest.approx(2.0 * (0.1 + 0.9 * (1 + math.sqrt(0.5)) / 2))
    assert spec.rate(40, 10, 4) == pytest.approx(0.2)
    assert spec.rate(99, 10, 4) == pytest.approx(0.2)


def test_no_decay_is_a_constant_rate() -> None:
    spec = OptimizerSpec(learning_rate=0.3, schedule="exponential", decay=1.0)
    assert {spec.rate(step, 10, 100) for step in range(0, 1000, 37)} == {0.3}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("learning_rate", 0.0),
        ("decay", 0.0),
        ("decay", 1.5),
        ("gradient_clip_norm", 0.0),
        ("schedule", "warm"),
    ],
)
def test_impossible_values_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ParamsError, match=field):
        parse(OptimizerSpec, {field: value}, where="params.yaml")
