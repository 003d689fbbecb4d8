"""The bootstrap: what it must say in cases where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from costbench.errors import DataError
from costbench.metrics.intervals import CrossedDraws, paired_bootstrap
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
    # Differences 1, 1.2, 0.8, 1: standard error sqrt(0.08 / 3 / 4); t(3) is 3.182.
    assert (interval.low, interval.high) == pytest.approx((0.740, 1.260), abs=0.02)


def test_two_programs_by_hand() -> None:
    # Differences 0 and 4: means 0, 2, 4 with probabilities 1/4, 1/2, 1/4. Standard error sqrt(8 / 2), t(1)
    # is 0.7265 at 30%.
    interval = paired_bootstrap([0.0, 4.0], [0.0, 0.0], stream(0, "test"), resamples=40_000, confidence=0.4)
    ends = (interval.low, interval.difference, interval.high)
    assert ends == pytest.approx((2.0 - 1.453, 2.0, 2.0 + 1.453), abs=0.02)
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


def test_crossed_draws_take_programs_and_seeds_by_hand() -> None:
    # One program of two, one seed of two: a resample's mean over both drawn programs and both drawn seeds.
    values = np.array([[0.0, 4.0], [10.0, 14.0]])
    drawn = CrossedDraws(stream(0, "test"), 4_000).resampled(values, ("a", "b"), (0, 1))
    assert drawn.shape == (4_000, 2)
    # Seeds 0 0, 0 1 (twice as likely), 1 1 lead to 0, 2, 4 in program a and 10, 12, 14 in program b.
    levels, counts = np.unique(drawn, return_counts=True)
    assert levels.tolist() == [0.0, 2.0, 4.0, 10.0, 12.0, 14.0]
    assert counts / counts.sum() == pytest.approx([0.125, 0.25, 0.125, 0.125, 0.25, 0.125], abs=0.02)
    # The seeds of a resample are the same for all its programs.
    assert set(np.diff(drawn, axis=1).ravel().tolist()) <= {-10.0, 0.0, 10.0}


def test_crossed_draws_are_shared_by_equal_programs_and_seeds() -> None:
    draws = CrossedDraws(stream(0, "test"), 200)
    first = np.random.default_rng(0).random((5, 3))
    names, seeds = tuple("abcde"), (0, 1, 2)
    one = draws.resampled(first, names, seeds)
    assert draws.resampled(first + 1.0, names, seeds) == pytest.approx(one + 1.0)
    assert not np.allclose(draws.resampled(first, tuple("vwxyz"), seeds), one)


def test_only_programs_or_only_seeds_are_drawn_with_the_draws_of_both() -> None:
    values, names, seeds = np.random.default_rng(0).random((5, 3)), tuple("abcde"), (0, 1, 2)
    draws = CrossedDraws(stream(0, "test"), 50)
    programs, runs = (draws.resampled(values, names, seeds, drawn) for drawn in ("programs", "seeds"))
    assert set(programs.ravel().round(12)) <= set(values.mean(axis=1).round(12))
    both = draws.resampled(values, names, seeds)
    means = values.mean(axis=1)
    drawn = np.argmin(np.abs(programs[:, :, None] - means), axis=2)
    assert both == pytest.approx(np.take_along_axis(runs, drawn, axis=1))


def test_what_a_deviation_of_few_runs_may_be() -> None:
    # chi-square(2) is exponential of mean 2: its median is 2 log 2.
    scales = CrossedDraws(stream(0, "test"), 40_000).deviation_scales(3)
    assert np.median(scales) == pytest.approx(np.sqrt(2.0 / (2.0 * np.log(2.0))), rel=0.02)
    with pytest.raises(DataError, match="seeds"):
        CrossedDraws(stream(0, "test"), 10).deviation_scales(1)


def test_crossed_intervals_cover_the_truth_about_as_often_as_they_say() -> None:
    """The difference of two normal means, 25 programs: 95% intervals, a little short as percentiles are."""
    generator, hits, trials = np.random.default_rng(7), 0, 400
    names = tuple(map(str, range(25)))
    for _ in range(trials):
        common = 10.0 * generator.standard_normal((25, 1))
        sides = [common + generator.normal(mean, 1.0, (25, 1)) for mean in (1.0, 0.0)]
        draws = CrossedDraws(generator, 500)
        left, right = (draws.resampled(side, names, (0,)).mean(axis=1) for side in sides)
        low, high = np.quantile(left - right, [0.025, 0.975])
        hits += int(low <= 1.0 <= high)
    assert 0.90 <= hits / trials <= 0.97


def test_crossed_draws_refuse_what_does_not_fit() -> None:
    with pytest.raises(DataError, match="resamples"):
        CrossedDraws(stream(0, "test"), 0)
    draws = CrossedDraws(stream(0, "test"), 10)
    for shape, programs in (((2, 1), ("a",)), ((0, 1), ())):
        with pytest.raises(DataError, match="values"):
            draws.resampled(np.zeros(shape), programs, (0,))
