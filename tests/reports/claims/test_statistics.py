"""Statistics and sides that claims of tpugraphs2023 need, on toy rows worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from costbench.metrics.rows import MetricRow
from costbench.reports.claims.data import Side
from costbench.reports.claims.rule import CANNOT_TELL, DOES_NOT_HOLD, HOLDS, NOT_EVALUATED
from tests.reports.claims.toy_claims import ANALYTICAL, HARD, LEARNED, MEAN, decide, rows_of_side


def _kernels(counts: Sequence[float], split: str = "random") -> list[MetricRow]:
    return rows_of_side(Side("best", split=split), {0: counts}, "kernels")


def test_a_mean_over_kernels_weighs_programs_by_them() -> None:
    claim = replace(MEAN, statistic="kernel_mean")
    rows = [rows_of_side(LEARNED, {0: [1.0] * 5 + [10.0]}), rows_of_side(ANALYTICAL, {0: [2.0] * 5 + [4.0]})]
    found = decide(claim, *rows, _kernels([1.0] * 5 + [5.0]))
    # (5 x 2 + 5 x 4 - 5 x 1 - 5 x 10) / 10; programs alike: (10 + 4 - 5 - 10) / 6.
    assert found.effect == pytest.approx(-2.5)
    assert decide(MEAN, *rows).effect == pytest.approx(-1 / 6)
    missing = decide(claim, *rows)
    assert (missing.verdict, missing.missing) == (NOT_EVALUATED, ("tile/random/tpu_v2/best/main/kernels",))


def test_equal_leads_have_no_width_however_kernels_are_drawn() -> None:
    claim = replace(MEAN, statistic="kernel_mean")
    rows = [rows_of_side(LEARNED, {0: HARD}), rows_of_side(ANALYTICAL, {0: [value + 2.0 for value in HARD]})]
    found = decide(claim, *rows, _kernels([9.0, 1.0, 4.0, 2.0, 8.0, 3.0]))
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
    assert decide(claim, rows_of_side(LEARNED, {0: [5.0, 15.0] * 3})).verdict == CANNOT_TELL
    spread = replace(claim, statistic="standard_deviation", metric="kendall_tau", paper_effect=0.27)
    tau = rows_of_side(LEARNED, {0: [0.5, -0.5] * 3}, "kendall_tau")
    assert decide(spread, tau).effect == pytest.approx(np.std([0.5, -0.5] * 3, ddof=1))


def test_factors_are_decided_against_one() -> None:
    claim = replace(MEAN, scale="factor", statistic="geometric_mean", metric="hardware_seconds")
    rows = [
        *rows_of_side(LEARNED, {0: [1.0] * 6}, "hardware_seconds"),
        *rows_of_side(ANALYTICAL, {0: [2.0, 8.0] * 3}, "hardware_seconds"),
    ]
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
    assert (found.verdict, found.seeds) == (CANNOT_TELL, 3)
    assert found.low is not None
    assert found.low < 0.0
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
