"""Intervals over few programs and runs: by hand, by the tables of the distributions, and by simulation."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.interval_coverage import METHODS, Design, clustered, coverage, simulate
from costbench.arrays import F64
from costbench.errors import DataError
from costbench.metrics.intervals import (
    LEAST_P,
    CrossedDraws,
    IntervalOfLog,
    LargestInterval,
    PercentileInterval,
    ResampledEffect,
    ShareInterval,
    StudentInterval,
    Variances,
    WiderInterval,
    false_discovery_rates,
    paired_bootstrap,
    small_sample_interval,
    smallest_tail,
    student,
)
from costbench.rng import stream

TAIL = 0.025


def redrawn(values: F64, resamples: int = 20_000) -> ResampledEffect:
    """Returns the mean of values, [num_programs, num_runs], drawn again."""
    n, m = values.shape
    generator = stream(0, "redrawn")
    programs = generator.multinomial(n, np.full(n, 1.0 / n), size=resamples) / n
    runs = generator.multinomial(m, np.full(m, 1.0 / m), size=resamples) / m
    both = np.einsum("rn,nm,rm->r", programs, values, runs)
    parts = (programs @ values.mean(axis=1), runs @ values.mean(axis=0), both)
    return ResampledEffect(float(values.mean()), *parts, n, m)


def test_students_t_is_that_of_the_tables() -> None:
    quantiles = [student(tail, freedom) for tail, freedom in ((0.025, 5.0), (0.025, 7.0), (0.005, 39.0))]
    assert quantiles == pytest.approx([2.571, 2.365, 2.708], abs=0.001)


def test_one_run_of_symmetric_programs_has_the_interval_of_t() -> None:
    # Mean 0, s^2 = 2 (1 + 4 + 9) / 5, standard error sqrt(5.6 / 6); t is 2.571.
    interval = small_sample_interval(redrawn(np.array([[-3.0], [-2.0], [-1.0], [1.0], [2.0], [3.0]])))
    half = 2.571 * np.sqrt(5.6 / 6.0)
    assert (interval.low(TAIL), interval.high(TAIL)) == pytest.approx((-half, half), rel=0.04)
    assert (interval.freedom, interval.of_runs) == (5.0, 0.0)


def test_variances_are_those_of_an_analysis_of_variance() -> None:
    generator = np.random.default_rng(3)
    values = generator.standard_normal((7, 1)) + generator.standard_normal((1, 3))
    values += 0.5 * generator.standard_normal((7, 3))
    variances = redrawn(values, 200_000).variances()
    assert variances.programs == pytest.approx(values.mean(axis=1).var(ddof=1) / 7, rel=0.02)
    rest = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0) + values.mean()
    interaction = (rest**2).sum() / (6 * 2) / 21
    assert variances.interaction == pytest.approx(interaction, rel=0.1)
    assert variances.added == pytest.approx(values.mean(axis=0).var(ddof=1) / 3 - interaction, rel=0.03)


def test_degrees_of_freedom_are_satterthwaites() -> None:
    # V = 3 + 2 - 1; 4^2 / (9 / 5 + 4 / 2 + 1 / 10).
    assert Variances(3.0, 2.0, 1.0).freedom(6, 3) == pytest.approx(16.0 / 3.9)
    # Runs that add nothing leave those of programs.
    assert Variances(3.0, 1.0, 2.0).freedom(6, 3) == pytest.approx(5.0)
    assert Variances(0.0, 2.0, 0.0).freedom(6, 2) == 1.0


def test_noise_that_is_neither_of_programs_nor_of_runs_is_counted_once() -> None:
    # Means of columns that differ by no more than the interaction says nothing of runs.
    values = np.array([[1.0, -1.0], [-1.0, 1.0]] * 4) + np.arange(8.0)[:, None]
    variances = redrawn(values).variances()
    assert variances.programs == pytest.approx(np.arange(8.0).var(ddof=1) / 8, rel=0.03)
    assert variances.added == 0.0


def test_runs_that_differ_widen_the_interval_by_their_few_degrees_of_freedom() -> None:
    # Programs alike; two runs 2 apart: standard error 1, one degree of freedom, t = 12.71.
    interval = small_sample_interval(redrawn(np.tile([1.0, 3.0], (6, 1))))
    assert (interval.low(TAIL), interval.high(TAIL)) == pytest.approx((2.0 - 12.71, 2.0 + 12.71), rel=0.02)
    assert interval.of_runs == pytest.approx(1.0)


def test_no_difference_between_programs_and_runs_has_no_width() -> None:
    interval = small_sample_interval(redrawn(np.full((6, 2), 4.0)))
    assert (interval.low(TAIL), interval.estimate, interval.high(TAIL)) == pytest.approx((4.0, 4.0, 4.0))


def test_skewed_resamples_skew_the_interval_and_leave_its_width() -> None:
    values = np.array([[0.0], [0.1], [0.2], [0.3], [0.4], [5.0]])
    interval = small_sample_interval(redrawn(values))
    below, above = interval.estimate - interval.low(TAIL), interval.high(TAIL) - interval.estimate
    assert above > 1.5 * below
    assert below + above == pytest.approx(
        2.0 * student(TAIL, 5.0) * values.std(ddof=1) / np.sqrt(6.0), rel=0.03
    )


def test_resamples_that_do_not_fit_are_refused() -> None:
    with pytest.raises(DataError, match="resamples"):
        ResampledEffect(0.0, np.zeros(3), np.zeros(3), np.zeros(2), 1, 1)
    with pytest.raises(DataError, match="drawn"):
        ResampledEffect(0.0, np.zeros(3), np.zeros(3), np.zeros(3), 6, 0)


@pytest.mark.parametrize(
    ("won", "n", "low", "high"), [(6, 6, 0.5407, 1.0), (7, 8, 0.4735, 0.9968), (0, 8, 0.0, 0.3694)]
)
def test_shares_have_the_interval_of_clopper_and_pearson(won: int, n: int, low: float, high: float) -> None:
    interval = ShareInterval(StudentInterval(won / n, 0.0, 0.0, n - 1.0), n)
    assert (interval.low(TAIL), interval.high(TAIL)) == pytest.approx((low, high), abs=0.0001)


def test_a_share_is_as_uncertain_as_its_runs_at_least() -> None:
    interval = ShareInterval(StudentInterval(0.5, 0.4, 0.1, 2.0, 0.9), 8)
    assert (interval.low(TAIL), interval.of_runs) == (0.0, 0.9)
    assert interval.high(TAIL) == pytest.approx(0.5 + 0.4303, abs=0.001)


def test_the_largest_of_several_is_known_up_to_the_luck_of_each() -> None:
    logs = LargestInterval(np.log([1.0, 1.1, 1.5]), 0.01, 12.0)
    interval = IntervalOfLog(logs, lambda log: float(np.exp(log)))
    # t(12) is 2.179 at 2.5%, and 2.780 at a third of that.
    expected = (1.5 * np.exp(-0.02780), 1.5, 1.5 * np.exp(0.02179))
    assert (interval.low(TAIL), interval.estimate, interval.high(TAIL)) == pytest.approx(expected, abs=0.0005)


def test_p_is_where_the_interval_ends_at_the_bound() -> None:
    # 2.571 standard errors of 5 degrees of freedom from zero: 5%.
    lead = StudentInterval(2.571, 1.0, 1.0, 5.0)
    assert smallest_tail(lambda tail: lead.low(tail) > 0.0) == pytest.approx(0.05, abs=0.0001)
    assert smallest_tail(lambda _: True) == LEAST_P
    assert smallest_tail(lambda _: False) == pytest.approx(1.0)


def test_percentiles_of_a_known_distribution() -> None:
    # 101 draws 0, 1, ..., 100: the quantile q is 100 q.
    interval = PercentileInterval(40.0, np.arange(101.0))
    assert (interval.estimate, interval.of_runs) == (40.0, 1.0)
    assert (interval.low(0.025), interval.high(0.025)) == pytest.approx((2.5, 97.5))
    # 101 draws tell nothing of what happens once in a thousand times.
    assert (interval.low(0.001), interval.high(0.001)) == (-np.inf, np.inf)


def test_false_discovery_rates_by_hand() -> None:
    # 4 tests: p(i) 4 / i, then the least of those of higher rank.
    q_values = false_discovery_rates([0.03, 0.005, 0.6, 0.02])
    assert q_values == pytest.approx([0.04, 0.02, 0.6, 0.04])
    assert false_discovery_rates([]) == ()


@pytest.mark.parametrize("effects", ["normal", "skewed", "heavy tails"])
@pytest.mark.parametrize("programs", [6, 8])
def test_intervals_contain_the_truth_as_often_as_they_say(effects: str, programs: int) -> None:
    """Standard error of a coverage of 95% by 1,200 studies: 0.6%."""
    for runs in (1, 3):
        trials = simulate(Design(effects, programs, runs), 1_200, 500)
        assert 0.925 <= coverage(trials, METHODS["ours"](trials)) <= 0.975
        if runs == 1:
            assert coverage(trials, METHODS["percentile"](trials)) < 0.915


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
    resampled = CrossedDraws(stream(0, "test"), 4_000).resampled(values, ("a", "b"), (0, 1))
    assert resampled.shape == (4_000, 2)
    # Seeds 0 0, 0 1 (twice as likely), 1 1 lead to 0, 2, 4 in program a and 10, 12, 14 in program b.
    levels, counts = np.unique(resampled, return_counts=True)
    assert levels.tolist() == [0.0, 2.0, 4.0, 10.0, 12.0, 14.0]
    assert counts / counts.sum() == pytest.approx([0.125, 0.25, 0.125, 0.125, 0.25, 0.125], abs=0.02)
    # The seeds of a resample are the same for all its programs.
    assert set(np.diff(resampled, axis=1).ravel().tolist()) <= {-10.0, 0.0, 10.0}


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
    programs, runs = (draws.resampled(values, names, seeds, nearest) for nearest in ("programs", "seeds"))
    assert set(programs.ravel().round(12)) <= set(values.mean(axis=1).round(12))
    both = draws.resampled(values, names, seeds)
    means = values.mean(axis=1)
    nearest = np.argmin(np.abs(programs[:, :, None] - means), axis=2)
    assert both == pytest.approx(np.take_along_axis(runs, nearest, axis=1))


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


def test_with_clusters_whole_applications_are_drawn() -> None:
    clusters = {"a1": "a", "a2": "a", "a3": "a", "b1": "b"}
    draws = CrossedDraws(stream(0, "test"), 4_000, clusters)
    assert draws.num_drawn(("a1", "a2", "b1")) == 2
    drawn = draws.resampled(np.array([[1.0], [2.0], [3.0], [10.0]]), tuple(clusters), (0,), "programs")
    # Of two draws of two: a a has six programs, a b four, b b two; NaN stands behind the last.
    resamples = {tuple(sorted(row[~np.isnan(row)])) for row in drawn}
    assert resamples == {(1.0, 1.0, 2.0, 2.0, 3.0, 3.0), (1.0, 2.0, 3.0, 10.0), (10.0, 10.0)}
    assert drawn.shape == (4_000, 6)
    sizes = (~np.isnan(drawn)).sum(axis=1)
    assert [np.mean(sizes == size) for size in (6, 4, 2)] == pytest.approx([0.25, 0.5, 0.25], abs=0.03)
    # Both factors together: NaN in the same places.
    both = draws.resampled(np.ones((4, 2)), tuple(clusters), (0, 1))
    assert np.isnan(both).tolist() == np.isnan(drawn).tolist()


def test_intervals_over_applications_cover_where_those_over_programs_do_not() -> None:
    """Twelve applications of one to eight programs that have half of their variance in common."""
    shares = clustered(0.5, 200, 200, (8, 8, 6, 4, 4, 2, 2, 2, 1, 1, 1, 1))
    assert shares["programs"] < 0.85
    assert shares["applications"] > 0.87
    assert shares["the wider"] >= shares["applications"]


def test_the_wider_interval_decides() -> None:
    narrow, wide = StudentInterval(1.0, 0.1, 0.1, 9.0), StudentInterval(1.0, 0.5, 0.4, 5.0, 0.25)
    both = WiderInterval(narrow, wide)
    assert (both.estimate, both.of_runs) == (1.0, 0.25)
    assert [(both.low(tail), both.high(tail)) for tail in (0.025, 0.05)] == [
        (wide.low(tail), wide.high(tail)) for tail in (0.025, 0.05)
    ]
    assert WiderInterval(wide, narrow).high(0.025) == wide.high(0.025)


def test_crossed_draws_refuse_what_does_not_fit() -> None:
    with pytest.raises(DataError, match="resamples"):
        CrossedDraws(stream(0, "test"), 0)
    draws = CrossedDraws(stream(0, "test"), 10)
    for shape, programs in (((2, 1), ("a",)), ((0, 1), ())):
        with pytest.raises(DataError, match="values"):
            draws.resampled(np.zeros(shape), programs, (0,))
