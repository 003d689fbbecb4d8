"""Claims about several pairs, relative margins, what would decide a claim, and control over all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costbench.reports.claims.claim import Side
from costbench.reports.claims.evaluation import (
    BY_CONSTRUCTION,
    DOES_NOT_HOLD,
    HOLDS,
    UNDECIDED,
    evaluate_claims,
    verdict_after_control,
)
from costbench.reports.claims.leads import Needed
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


def test_a_margin_relative_to_the_papers_errors_grows_with_ours() -> None:
    relative = replace(EQUAL, paper_level=5.0)
    for ours, verdict in ((10.0, HOLDS), (4.0, DOES_NOT_HOLD)):
        # 0.5 of 5 printed is a tenth: 0.8 is less than that of 10 and more than that of 4.
        rows = rows_of_both([ours] * 6, [ours + 0.8] * 6)
        assert decide(relative, rows).verdict == verdict


def test_the_least_of_equal_leads_is_not_biased() -> None:
    # Four pairs with the same lead of 1 and noise of their own: the least of resampled leads lies far below.
    generator = np.random.default_rng(1)
    left, right = [Side(variant=f"l{i}") for i in range(4)], [Side(variant=f"r{i}") for i in range(4)]
    rows = []
    for one, other in zip(left, right, strict=True):
        noise = generator.standard_normal(8)
        rows += rows_of_side(one, {0: (5.0 + noise - noise.mean()).tolist()})
        rows += rows_of_side(other, {0: [6.0] * 8})
    claim = replace(MEAN, left=tuple(left), right=tuple(right), pairing="each")
    found, alone = (
        decide(claim, rows),
        [decide(replace(claim, left=(a,), right=(b,)), rows) for a, b in zip(left, right, strict=True)],
    )
    assert found.effect == pytest.approx(1.0)
    assert found.low == pytest.approx(min(one.low or 0.0 for one in alone), rel=0.05)
    assert found.high is not None
    assert found.high > 1.0


def test_what_would_decide_a_claim_is_estimated_from_the_width() -> None:
    # Mean 0.5, deviation 1 (n - 1): half width t(7) / sqrt(8) = 0.836. 8 (0.836 / 0.5)^2 = 22.4.
    leads = 0.5 + np.sqrt(7.0 / 8.0) * np.array([1.0, -1.0] * 4)
    rows = rows_of_both([1.0] * 8, (1.0 + leads).tolist())
    found = decide(MEAN, rows)
    assert found.verdict == UNDECIDED
    assert found.needed is not None
    assert found.needed.programs == pytest.approx(23, abs=1)
    # Of factors on logarithms, where the same leads have the same mean, spread and bound.
    factors = decide(
        replace(MEAN, scale="factor", statistic="geometric_mean"),
        rows_of_both([1.0] * 8, np.exp(leads).tolist()),
    )
    assert factors.needed is not None
    assert factors.needed.programs == pytest.approx(23, abs=1)
    few = decide(MEAN, rows_of_both(HARD[:4], [99.0] * 4))
    assert few.needed.in_words() == "about 6 programs"


def test_false_discoveries_are_controlled_over_all_claims() -> None:
    leads = np.array([1.0, 0.2, 1.8, 0.4, 1.6, -0.25, 2.0])
    rows = rows_of_both([1.0] * 7, (1.0 + leads).tolist())
    others = [Side(variant=f"v{i}") for i in range(3)]
    for place, other in enumerate(others):
        noise = np.random.default_rng(place).standard_normal(7)
        rows += rows_of_side(other, {0: (1.0 + noise - noise.mean()).tolist()})
    nothing = [
        replace(MEAN, id=f"lpm2021.n{i}", left=(one,), right=(LEARNED,)) for i, one in enumerate(others)
    ]
    first, *rest = evaluate_claims((MEAN, *nothing), frame_of(rows), seed=0)
    assert first.p is not None
    assert 0.0125 < first.p < 0.05
    assert first.q == pytest.approx(4.0 * first.p)
    assert (first.verdict, verdict_after_control(first)) == (HOLDS, UNDECIDED)
    assert [one.verdict for one in rest] == [UNDECIDED] * 3
    # Each set is a family of its own, and makes no room for the papers'.
    again = [replace(one, set="all_programs", id=f"{one.id}@folds") for one in (MEAN, *nothing[:1])]
    both = evaluate_claims((MEAN, *nothing, *again), frame_of(rows), seed=0)
    assert both[0].q == first.q
    assert both[4].p is not None
    assert both[4].q == pytest.approx(2.0 * both[4].p)
    (alone,) = evaluate_claims((MEAN,), frame_of(rows), seed=0)
    assert (alone.q, verdict_after_control(alone)) == (alone.p, HOLDS)
    # Where fewer rows had been looked at before, either look may have decided.
    (second,) = evaluate_claims((replace(MEAN, looks=2),), frame_of(rows), seed=0)
    assert second.verdict == HOLDS
    assert second.p == pytest.approx(2.0 * first.p)
    with pytest.raises(ValueError, match="looks are 0"):
        replace(MEAN, looks=0)


def test_what_is_true_by_construction_is_not_tested() -> None:
    claim = replace(MEAN, left=(), right=(), construction="kernels run one after another")
    found = decide(claim, rows_of_side(LEARNED, {0: HARD}))
    assert (found.verdict, found.reason, found.p) == (BY_CONSTRUCTION, "kernels run one after another", None)


def test_a_claim_of_several_fails_if_one_pair_does_at_its_share_of_the_error() -> None:
    # Mean -1, standard error 1 / sqrt(5.43): 2.33 of 5 degrees of freedom, a p of 6.7% alone.
    lead = np.array([-0.1, -2.3, 0.2, -2.0, -0.2, -1.6])
    worse, equal = Side(variant="worse"), Side(variant="equal")
    rows = [
        *rows_of_side(worse, {0: (5.0 - 1.4 * lead).tolist()}),
        *rows_of_side(equal, {0: [5.0 + 0.01 * one for one in (1, -1, 2, -2, 1, -1)]}),
        *rows_of_side(ANALYTICAL, {0: [5.0] * 6}),
    ]
    alone = decide(replace(MEAN, left=(worse,)), rows)
    both = decide(replace(MEAN, left=(worse, equal)), rows)
    assert alone.p is not None
    assert both.p == pytest.approx(min(1.0, 2.0 * alone.p), rel=0.1)


def test_estimates_of_what_is_needed_have_two_digits() -> None:
    assert [Needed(programs=n).in_words() for n in (31, 1137, 290_726)] == [
        "about 31 programs",
        "about 1,100 programs",
        "more than 10,000 programs",
    ]
    assert Needed(runs=8).in_words() == "about 8 runs"
