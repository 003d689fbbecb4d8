"""The bootstrap: what it must say in cases where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from costbench.errors import DataError
from costbench.metrics.intervals import paired_bootstrap
from costbench.rng import stream


def test_a_constant_difference_is_certain() -> None:
    interval = paired_bootstrap([1.0, 5.0, 9.0], [2.0, 6.0, 10.0], stream(0, "test"))
    assert (interval.difference, interval.low, interval.high, interval.share_negative) == (
        -1.0,
        -1.0,
        -1.0,
        1.0,
    )


def test_equal_models_are_undecided() -> None:
    interval = paired_bootstrap([1.0, 2.0], [1.0, 2.0], stream(0, "test"))
    assert interval.share_negative == 0.5


def test_pairing_removes_what_programs_have_in_common() -> None:
    programs = np.array([0.0, 10.0, 20.0, 30.0])
    interval = paired_bootstrap([1.0, 11.2, 20.8, 31.0], programs, stream(0, "test"))
    assert 0.8 <= interval.low <= interval.difference <= interval.high <= 1.2


def test_two_programs_by_hand() -> None:
    # Differences 0 and 4: means 0, 2, 4 with probabilities 1/4, 1/2, 1/4.
    interval = paired_bootstrap([0.0, 4.0], [0.0, 0.0], stream(0, "test"), resamples=40_000, confidence=0.4)
    assert (interval.difference, interval.low, interval.high) == (2.0, 2.0, 2.0)
    assert interval.share_negative == pytest.approx(0.125, abs=0.01)


def test_the_same_stream_gives_the_same_interval() -> None:
    values = np.random.default_rng(1).standard_normal((2, 8))
    assert paired_bootstrap(*values, stream(3, "a")) == paired_bootstrap(*values, stream(3, "a"))
    assert paired_bootstrap(*values, stream(3, "a")) != paired_bootstrap(*values, stream(3, "b"))


@pytest.mark.parametrize("options", [{"resamples": 0}, {"confidence": 1.0}, {"confidence": 0.0}])
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(DataError):
        paired_bootstrap([1.0], [2.0], stream(0, "test"), **options)  # type: ignore[arg-type]


def test_no_programs_are_refused() -> None:
    with pytest.raises(DataError):
        paired_bootstrap([], [], stream(0, "test"))
