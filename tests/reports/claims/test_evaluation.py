"""Verdicts and statistics on toy rows whose effects and intervals are worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from costbench.metrics.rows import MetricRow
from costbench.reports.claims.claim import Claim, Side
from costbench.reports.claims.evaluation import (
    DOES_NOT_HOLD,
    HOLDS,
    NOT_EVALUATED,
    SHORT_SHARE,
    UNDECIDED,
    Finding,
    derived_rows,
    evaluate_claims,
)
from costbench.reports.frame import frame_of
from tests.reports.claims.toy_claims import (
    ANALYTICAL,
    EQUAL,
    HARD,
    LEARNED,
    MEAN,
    decide,
    rows_of_both,
    rows_of_side,
)
from tests.reports.conftest import make_row


def test_a_constant_lead_has_no_width() -> None:
    ahead = decide(MEAN, rows_of_both(HARD, [v + 2.0 for v in HARD]))
    # Programs differ widely, but both sides are drawn together: 2 points in every resample.
    assert (ahead.effect, ahead.low, ahead.high) == pytest.approx((2.0, 2.0, 2.0))
    assert (ahead.verdict, ahead.n, ahead.seeds) == (HOLDS, 6, {LEARNED: 1, ANALYTICAL: 1})
    behind = decide(MEAN, rows_of_both(HARD, [v - 0.5 for v in HARD]))
    assert behind.effect == pytest.approx(-0.5)
    assert behind.verdict == DOES_NOT_HOLD


def test_signs_follow_the_metric_and_the_direction() -> None:
    rows = rows_of_both(HARD, [v + 2.0 for v in HARD])
    right = decide(replace(MEAN, direction="right_better"), rows)
    assert (right.effect, right.verdict) == (pytest.approx(-2.0), DOES_NOT_HOLD)
    tau = replace(MEAN, metric="kendall_tau")
    better = rows_of_both([0.9] * 6, [0.6] * 6, "kendall_tau")
    assert decide(tau, better).effect == pytest.approx(0.3)
    assert decide(tau, better).verdict == HOLDS


def test_mixed_programs_cannot_tell_and_the_interval_is_that_of_t() -> None:
    # Leads +1 and -1 on four programs each: standard error sqrt(8 / 7 / 8), and t(7) is 2.365.
    found = decide(MEAN, rows_of_both([1.0] * 8, [2.0, 0.0] * 4))
    half = 2.365 / np.sqrt(7.0)
    assert (found.effect, found.low, found.high) == pytest.approx((0.0, -half, half), rel=0.03)
    assert found.verdict == UNDECIDED
    assert found.p == pytest.approx(1.0)


def test_seeds_are_drawn_too() -> None:
    # Every program alike; seeds are 1 apart from the analytical model on either side: standard error
    # sqrt(2 / 2), one degree of freedom, t is 12.71.
    learned = rows_of_side(LEARNED, {0: [1.0] * 6, 1: [3.0] * 6})
    found = decide(MEAN, learned, rows_of_side(ANALYTICAL, {0: [2.0] * 6}))
    assert (found.effect, found.low, found.high) == pytest.approx((0.0, -12.71, 12.71), rel=0.03)
    assert (found.verdict, found.seeds[LEARNED]) == (UNDECIDED, 2)


def test_equal_seeds_are_drawn_together() -> None:
    # The right side is 1 worse for each seed, however far apart the seeds are.
    other = Side(variant="mse")
    claim = replace(MEAN, right=(other,))
    left = {0: [1.0] * 6, 1: [9.0] * 6}
    found = decide(claim, rows_of_side(LEARNED, left), rows_of_side(other, {0: [2.0] * 6, 1: [10.0] * 6}))
    assert (found.low, found.high) == pytest.approx((1.0, 1.0))


def test_few_programs_cannot_tell() -> None:
    found = decide(MEAN, rows_of_both(HARD[:5], [99.0] * 5))
    assert found.low is not None
    assert found.low > 0.0
    assert (found.verdict, found.n) == (UNDECIDED, 5)


@pytest.mark.parametrize(
    ("right", "verdict"), [(1.4, HOLDS), (0.6, HOLDS), (1.6, DOES_NOT_HOLD), (0.4, DOES_NOT_HOLD)]
)
def test_no_difference_means_within_the_margin(right: float, verdict: str) -> None:
    # The margin is 0.5, the only difference that the claims call none.
    found = decide(EQUAL, rows_of_both([1.0] * 6, [right] * 6))
    assert found.verdict == verdict


def test_a_margin_is_taken_from_the_claim_that_allows_most() -> None:
    wider = replace(EQUAL, id="lpm2021.wider", paper_effect=-0.7)
    rows = rows_of_both([1.0] * 6, [1.6] * 6)
    assert decide(EQUAL, rows, others=(wider,)).verdict == HOLDS
    fusion = replace(wider, task="fusion")
    assert decide(EQUAL, rows, others=(fusion,)).verdict == DOES_NOT_HOLD


def test_of_several_pairs_the_least_lead_counts() -> None:
    a, b, c = (Side(variant=name) for name in "abc")
    claim = replace(MEAN, left=(a, b), right=(c,))
    rows = [
        *rows_of_side(a, {0: [1.0] * 6}),
        *rows_of_side(b, {0: [3.0] * 6}),
        *rows_of_side(c, {0: [4.0] * 6}),
    ]
    assert decide(claim, rows).effect == pytest.approx(1.0)
    assert decide(claim, rows).verdict == HOLDS
    lost = decide(replace(claim, left=(a, c), right=(b, b), pairing="each"), rows)
    assert (lost.effect, lost.verdict) == (pytest.approx(-1.0), DOES_NOT_HOLD)


def test_statistics_by_hand() -> None:
    left, right = [1.0, 1.0, 1.0, 1.0, 1.0, 64.0], [2.0] * 6
    rows = rows_of_both(left, right)
    # 64^(1/6) = 2. Median 1. Mean 69/6. Sample deviation 63 sqrt((25/36 + 5/36) / 5) = 63 / sqrt(6).
    expected = {
        "geometric_mean": 0.0,
        "median": 1.0,
        "mean": 2.0 - 11.5,
        "standard_deviation": -63.0 / np.sqrt(6.0),
        "share_of_programs": 5 / 6,
    }
    found = {name: decide(replace(MEAN, statistic=name), rows).effect for name in expected}  # type: ignore[arg-type]
    assert found == pytest.approx(expected)


def test_errors_of_nothing_are_raised_to_the_floor() -> None:
    rows = rows_of_both([0.0] * 6, [1.0] * 6)
    assert decide(replace(MEAN, statistic="geometric_mean"), rows).effect == pytest.approx(0.95)


def test_a_share_counts_ties_half_and_from_one_half() -> None:
    claim = replace(MEAN, statistic="share_of_programs")
    tie = decide(claim, rows_of_both(HARD, HARD))
    assert (tie.effect, tie.verdict) == (0.5, UNDECIDED)
    won = decide(claim, rows_of_both(HARD, [99.0] * 6))
    assert (won.effect, won.verdict) == (1.0, HOLDS)


def test_a_magnitude_is_that_of_the_better_models_worst_program() -> None:
    claim = replace(MEAN, direction="magnitude", statistic="worst", paper_effect=(40.0, 300.0))
    analytical = rows_of_side(ANALYTICAL, {0: [90.0] * 6})
    found = decide(claim, rows_of_side(LEARNED, dict.fromkeys((0, 1), [50.0] * 6)), analytical)
    assert (found.effect, found.verdict) == (pytest.approx(50.0), HOLDS)
    better = rows_of_side(LEARNED, dict.fromkeys((0, 1), [30.0] * 6))
    assert decide(claim, better, analytical).verdict == DOES_NOT_HOLD


def test_of_one_program_a_single_run_tells_nothing() -> None:
    claim = replace(MEAN, direction="magnitude", statistic="worst", paper_effect=(40.0, 300.0))
    rows = rows_of_both([50.0] * 6, [90.0] * 6)
    found = decide(claim, rows)
    assert (found.verdict, found.effect, found.low, found.p) == (UNDECIDED, pytest.approx(50.0), None, None)
    assert "one run" in found.reason
    assert found.needed.in_words() == "about 2 runs"


def test_wall_times_have_a_verdict_and_no_chance_that_differs_from_machine_to_machine() -> None:
    rows = rows_of_both(HARD, [v + 2.0 for v in HARD])
    found = decide(replace(MEAN, wall_time=True), rows)
    assert (found.verdict, found.p, found.q, found.needed) == (HOLDS, None, None, None)


SPEEDUP = Claim("lpm2021.s", "Figure 9", "A is faster.", "tile", "speedup", "left_better", 1.0)
SPEEDUP = replace(SPEEDUP, right=(Side(model="analytical"),), scale="ratio", unit="percent")


def test_speedups_are_compared_by_their_ratio_in_each_program() -> None:
    rows = rows_of_both([1.1 * v for v in HARD], HARD, "speedup")
    found = decide(SPEEDUP, rows)
    assert (found.effect, found.low, found.high) == pytest.approx((10.0, 10.0, 10.0))
    assert found.verdict == HOLDS
    behind = decide(replace(SPEEDUP, direction="right_better"), rows)
    assert behind.effect == pytest.approx(100.0 * (1.0 / 1.1 - 1.0))
    assert behind.verdict == DOES_NOT_HOLD


def test_the_best_program_is_that_of_the_largest_ratio() -> None:
    rows = rows_of_both([2.0, 1.0, 1.0, 1.0, 1.0, 3.0], [1.0, 1.0, 1.0, 1.0, 1.0, 2.0], "speedup")
    found = decide(replace(SPEEDUP, statistic="best"), rows)
    # 2 / 1 is more than 3 / 2.
    assert (found.effect, found.verdict) == (pytest.approx(100.0), UNDECIDED)
    alone = decide(replace(SPEEDUP, statistic="best", right=(), against=1.0), rows)
    assert alone.effect == pytest.approx(200.0)


def test_a_largest_gain_is_held_against_what_is_printed() -> None:
    # Any search that starts from the default gains something somewhere: zero would always be passed.
    claim = replace(SPEEDUP, statistic="best", right=(), against=1.0, paper_effect=19.0)
    gains = [1.0, 1.02, 1.0, 1.01, 1.0, 1.15]

    def found(most: float) -> Finding:
        runs = {seed: [*gains[:-1], most * shift] for seed, shift in enumerate((0.999, 1.0, 1.001))}
        return decide(claim, rows_of_side(LEARNED, runs, "speedup"))

    assert found(1.15).verdict == DOES_NOT_HOLD
    assert found(1.25).verdict == HOLDS
    close = found(1.1901)
    assert close.verdict == UNDECIDED
    # Runs of the best program are 0.1% apart, those of the others not at all: pooled, 0.1% / sqrt(18).
    assert close.high is not None
    assert close.high - 19.01 == pytest.approx(100.0 * 1.19 * 0.001 / np.sqrt(18.0) * 2.179, rel=0.05)
    assert close.needed is not None
    assert close.needed.programs is None


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, HOLDS), (1.01, HOLDS), (0.99, DOES_NOT_HOLD)])
def test_not_worse_is_as_good_or_better(factor: float, verdict: str) -> None:
    rows = rows_of_both([factor] * 6, [1.0] * 6, "speedup")
    assert decide(replace(SPEEDUP, direction="not_worse", paper_effect=None), rows).verdict == verdict


def test_not_worse_cannot_be_told_around_zero() -> None:
    rows = rows_of_both([1.1, 0.9] * 4, [1.0] * 8, "speedup")
    assert decide(replace(SPEEDUP, direction="not_worse"), rows).verdict == UNDECIDED


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [([1.01] * 6, HOLDS), ([1.02] * 6, DOES_NOT_HOLD), ([0.9] * 6, HOLDS), ([1.0, 1.04] * 3, UNDECIDED)],
)
def test_a_lead_of_at_most_what_is_printed(gaps: list[float], verdict: str) -> None:
    # How much the right side is ahead of the left one; 1.5% is printed.
    rows = rows_of_both([2.0] * 6, [2.0 * g for g in gaps], "speedup")
    found = decide(replace(SPEEDUP, direction="at_most", paper_effect=1.5), rows)
    assert found.verdict == verdict
    assert found.effect == pytest.approx(100.0 * (np.exp(np.mean(np.log(gaps))) - 1.0))


def test_a_claim_that_doing_nothing_passes_too_cannot_hold() -> None:
    close = replace(SPEEDUP, direction="at_most", paper_effect=1.5, null_value=1.0)
    # The left side is 1% behind the right one; the default is 1.2% behind it in one case, 21% in the other.
    for best, verdict in ((1.012, UNDECIDED), (1.21, HOLDS)):
        rows = rows_of_both([best / 1.01] * 6, [best] * 6, "speedup")
        found = decide(close, rows)
        assert (found.effect, found.verdict) == (pytest.approx(1.0), verdict)
        assert bool(found.reason) == (verdict == UNDECIDED)


def test_ratios_have_no_floor() -> None:
    # A hundredth of the speed is -99%; errors in percent count .05 at the least.
    rows = rows_of_both([0.01] * 6, [1.0] * 6, "speedup")
    assert decide(SPEEDUP, rows).effect == pytest.approx(-99.0)


def test_a_spread_is_the_range_over_settings() -> None:
    sides = {name: Side(variant=name) for name in ("a1", "a2", "a3", "b1", "b2", "b3")}
    claim = replace(
        MEAN,
        pairing="spread",
        left=tuple(sides[n] for n in ("a1", "a2", "a3")),
        right=tuple(sides[n] for n in ("b1", "b2", "b3")),
    )
    means = {"a1": 4.0, "a2": 5.0, "a3": 4.5, "b1": 4.0, "b2": 14.0, "b3": 5.0}
    rows = [row for name, mean in means.items() for row in rows_of_side(sides[name], {0: [mean] * 6})]
    found = decide(claim, rows)
    # 10 points over the settings of b, 1 over those of a.
    assert (found.effect, found.verdict) == (pytest.approx(9.0), HOLDS)
    other = decide(replace(claim, direction="right_better"), rows)
    assert (other.effect, other.verdict) == (pytest.approx(-9.0), DOES_NOT_HOLD)
    lacking = decide(claim, [row for row in rows if row.variant != "b2"])
    assert lacking.missing == ("tile/random/tpu_v2/learned/b2/tile_size_ape",)


def test_any_chip_is_the_first_that_has_all_sides() -> None:
    left, right = Side(chip="any"), Side(model="analytical", chip="any")
    claim = replace(SPEEDUP, left=(left,), right=(right,))
    rows = [
        *rows_of_side(Side(), {0: [9.0] * 6}, "speedup"),
        *rows_of_side(Side(chip="tpu_v3"), {0: [1.1] * 6}, "speedup"),
        *rows_of_side(Side(model="analytical", chip="tpu_v3"), {0: [1.0] * 6}, "speedup"),
    ]
    found = decide(claim, rows)
    assert (found.effect, found.verdict) == (pytest.approx(10.0), HOLDS)
    assert found.claim.tested_on == "random split, tpu_v3"
    assert decide(claim, rows[:6]).missing == ("tile/random/tpu_v2/analytical/main/speedup",)
    nowhere = ("tile/random/any/learned/main/speedup", "tile/random/any/analytical/main/speedup")
    assert decide(claim, rows_of_side(Side(), {0: HARD})).missing == nowhere


def test_any_split_takes_the_programs_of_all() -> None:
    claim = replace(SPEEDUP, left=(Side(split="any"),), right=(Side(model="analytical", split="any"),))
    rows = [
        row
        for split, factor in (("random", 1.21), ("gains", 1.0))
        for model, value in (("learned", factor), ("analytical", 1.0))
        for row in rows_of_side(Side(model=model, split=split), {0: [value] * 3}, "speedup")
    ]
    found = decide(claim, rows)
    assert (found.effect, found.n) == (pytest.approx(10.0), 6)
    # The same program in two splits counts for each.
    same = [replace(row, program=row.program[-1]) for row in rows]
    assert decide(claim, same).n == 6


def test_splits_have_programs_of_their_own() -> None:
    manual = Side(split="manual")
    claim = replace(MEAN, right=(manual,))
    rows = [*rows_of_side(LEARNED, {0: [1.0] * 8}), *rows_of_side(manual, {0: [2.0, 4.0] * 3})]
    found = decide(claim, rows)
    assert (found.effect, found.n) == (pytest.approx(2.0), 6)
    assert found.verdict == HOLDS


def test_programs_without_a_value_count_for_neither_side() -> None:
    left = rows_of_side(LEARNED, {0: [1.0] * 7, 1: [1.0] * 7})
    right = rows_of_side(ANALYTICAL, {0: [2.0] * 6 + [500.0]})
    found = decide(MEAN, [row for row in left if (row.seed, row.program) != (1, "random6")], right)
    assert (found.effect, found.n) == (pytest.approx(1.0), 6)


def test_what_was_not_run_is_named_and_has_no_verdict() -> None:
    other = Side(variant="mse", chip="tpu_v3")
    found = decide(replace(MEAN, right=(other,)), rows_of_side(LEARNED, {0: HARD}))
    assert found.verdict == NOT_EVALUATED
    assert found.missing == ("tile/random/tpu_v3/learned/mse/tile_size_ape",)
    assert (found.effect, found.low, found.high, found.n) == (None, None, None, 0)
    apart = decide(MEAN, rows_of_side(LEARNED, {0: HARD}), [make_row(model="analytical", program="another")])
    assert apart.missing == ("programs that all sides were tested on",)
    rows = rows_of_both(HARD, HARD)
    unknown = decide(replace(EQUAL, paper_effect=None), rows)
    assert unknown.missing == ("a difference that the papers call none",)
    needy = replace(MEAN, left=(), right=(), needs="a sweep")
    assert decide(needy, rows).missing == ("a sweep",)


def test_other_groups_of_kernels_are_not_looked_at() -> None:
    rows = rows_of_both(HARD, HARD)
    unseen = [replace(row, kernels="unseen", value=0.1) for row in rows if row.model == "learned"]
    assert decide(MEAN, rows, unseen) == decide(MEAN, rows)


def test_the_seed_decides_the_draws_and_other_claims_do_not() -> None:
    generator = np.random.default_rng(5)
    rows = rows_of_both(list(generator.random(8)), list(generator.random(8)))
    alone, again = (evaluate_claims((MEAN,), frame_of(rows), 0) for _ in range(2))
    assert alone == again
    other = replace(EQUAL, task="fusion")  # EQUAL itself would say which differences are none.
    assert evaluate_claims((other, MEAN), frame_of(reversed(rows)), 0)[1] == alone[0]
    assert evaluate_claims((MEAN,), frame_of(rows), 1) != alone


def _kernels(counts: Sequence[float], split: str = "random") -> list[MetricRow]:
    return rows_of_side(Side("best", split=split), {0: counts}, "kernels")


def test_a_mean_over_kernels_weighs_programs_by_them() -> None:
    claim = replace(MEAN, statistic="kernel_mean")
    rows = rows_of_both([1.0] * 5 + [10.0], [2.0] * 5 + [4.0])
    found = decide(claim, rows, _kernels([1.0] * 5 + [5.0]))
    # (5 x 2 + 5 x 4 - 5 x 1 - 5 x 10) / 10; programs alike: (10 + 4 - 5 - 10) / 6.
    assert found.effect == pytest.approx(-2.5)
    assert decide(MEAN, rows).effect == pytest.approx(-1 / 6)
    missing = decide(claim, rows)
    assert (missing.verdict, missing.missing) == (NOT_EVALUATED, ("tile/random/tpu_v2/best/main/kernels",))


def test_equal_leads_have_no_width_however_kernels_are_drawn() -> None:
    claim = replace(MEAN, statistic="kernel_mean")
    rows = rows_of_both(HARD, [value + 2.0 for value in HARD])
    found = decide(claim, rows, _kernels([9.0, 1.0, 4.0, 2.0, 8.0, 3.0]))
    assert (found.effect, found.low, found.high) == pytest.approx((2.0, 2.0, 2.0))


def test_the_two_sides_may_differ_in_their_metric_alone() -> None:
    five = Side(metric="kernel_top_5")
    claim = replace(MEAN, metric="kernel_top_1", left=(five,), right=(LEARNED,))
    rows = [
        *rows_of_side(LEARNED, {0: HARD}, "kernel_top_1"),
        *rows_of_side(LEARNED, {0: [0.5] * 6}, "kernel_top_5"),
    ]
    assert decide(claim, rows).effect == pytest.approx(sum(HARD) / 6 - 0.5)


def test_a_magnitude_of_the_mean_of_one_side() -> None:
    claim = replace(MEAN, direction="magnitude", right=(), paper_effect=(10.0, 20.0))
    assert decide(claim, rows_of_side(LEARNED, {0: [15.0] * 6})).verdict == HOLDS
    assert decide(claim, rows_of_side(LEARNED, {0: [9.0] * 6})).verdict == DOES_NOT_HOLD
    assert decide(claim, rows_of_side(LEARNED, {0: [5.0, 15.0] * 3})).verdict == UNDECIDED
    spread = replace(claim, statistic="standard_deviation", metric="kendall_tau", paper_effect=0.27)
    tau = rows_of_side(LEARNED, {0: [0.5, -0.5] * 3}, "kendall_tau")
    assert decide(spread, tau).effect == pytest.approx(np.std([0.5, -0.5] * 3, ddof=1))


def test_factors_are_decided_against_one() -> None:
    claim = replace(MEAN, scale="factor", statistic="geometric_mean", metric="hardware_seconds")
    rows = rows_of_both([1.0] * 6, [2.0, 8.0] * 3, "hardware_seconds")
    found = decide(claim, rows)
    assert (found.effect, found.verdict) == (pytest.approx(4.0), HOLDS)
    other = decide(replace(claim, left=(ANALYTICAL,), right=(LEARNED,)), rows)
    assert (other.effect, other.verdict) == (pytest.approx(0.25), DOES_NOT_HOLD)


def test_deviations_over_training_runs_need_two_runs_of_each() -> None:
    left, right = Side(kernels="xla:random", metric="top_1", task="layout"), Side(variant="early")
    claim = replace(MEAN, statistic="seed_deviation", left=(left,), right=(right,))
    layout = [
        replace(row, task="layout", metric="top_1", kernels="xla:random")
        for row in rows_of_side(LEARNED, {0: [4.0] * 6, 1: [5.0] * 6})
    ]
    tiles = rows_of_side(right, {0: [1.0] * 7, 1: [5.0] * 7, 2: [9.0] * 7})
    found = decide(claim, layout, tiles)
    # Means of runs 4, 5 and 1, 5, 9: deviations sqrt(1/2) and 4.
    assert found.effect == pytest.approx(4.0 - np.sqrt(0.5))
    # That deviations of two and three runs differ may be chance: chi-square of 1 and of 2.
    assert (found.verdict, found.seeds) == (UNDECIDED, {left: 2, right: 3})
    assert found.low is not None
    assert found.low < 0.0
    # It is runs that would tell, and a margin is relative to deviations: (sqrt(1/2) + 4) / 2 here.
    assert found.needed is not None
    assert found.needed.runs is not None
    once = decide(claim, layout, rows_of_side(right, {0: [1.0] * 7}))
    assert once.verdict == NOT_EVALUATED
    assert once.missing == ("tile/random/tpu_v2/learned/early/tile_size_ape, two or more seeds",)


def test_collections_are_compared_on_the_programs_they_share() -> None:
    def of(kernels: str, values: Sequence[float], start: int = 0) -> list[MetricRow]:
        rows = rows_of_side(LEARNED, {0: values}, "kendall_tau")
        return [
            replace(row, task="layout", kernels=kernels, program=f"{kernels[:3]}{start + place}")
            for place, row in enumerate(rows)
        ]

    sides = [Side(kernels=name) for name in ("xla:random", "xla:default", "nlp:random")]
    claim = replace(MEAN, task="layout", metric="kendall_tau")
    rows = [*of("xla:random", [0.4] * 7), *of("xla:default", [0.1] * 6), *of("nlp:random", [0.5, 0.7] * 4)]
    paired = decide(replace(claim, left=tuple(sides[:1]), right=tuple(sides[1:2])), rows)
    assert (paired.effect, paired.n) == (pytest.approx(0.3), 6)
    apart = decide(replace(claim, left=(sides[2],), right=(sides[0],)), rows)
    assert (apart.effect, apart.n) == (pytest.approx(0.2), 7)
    assert apart.low is not None
    assert apart.low < 0.2
    absent = decide(replace(claim, left=(Side(kernels="nlp:default"),), right=(sides[0],)), rows)
    assert absent.missing == ("layout/random/tpu_v2/learned/main/nlp:default/kendall_tau",)


def test_the_share_of_short_kernels_by_hand() -> None:
    counts = {"kernels": 40.0, "kernels_lt5us": 10.0, "kernels_ge5us": 30.0}
    rows = [make_row(model="best", task="fusion", metric=name, value=value) for name, value in counts.items()]
    (found,) = derived_rows(frame_of(rows)).itertuples()
    assert (found.metric, found.model, found.value) == (SHORT_SHARE, "best", pytest.approx(0.25))


def test_programs_without_both_counts_have_none() -> None:
    rows = [make_row(model="best", metric="kernels_lt5us", value=1.0)]
    assert derived_rows(frame_of(rows)).empty
    assert derived_rows(frame_of([*rows, make_row(model="best", metric="kernels", value=0.0)])).empty
