"""Verdicts of size by hand, on leads that are the same in every program, or as wide as t says."""

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
    NO_DIFFERENCE,
    NOT_TRAINED_ENOUGH,
    SMALLER,
    UNDECIDED,
    Finding,
    evaluate_claims,
)
from costbench.reports.frame import frame_of
from costbench.reports.training_guard import TrainingGuard
from tests.reports.claims.toy_claims import (
    EQUAL,
    LEARNED,
    MEAN,
    decide,
    rows_of_both,
    rows_of_side,
)
from tests.reports.conftest import make_row
from tests.sentences import numbers

PRINTED = replace(MEAN, paper_effect=2.0)
WAVE = np.array([1.0, -1.0] * 4)
"""Deviations whose mean has a standard error of sqrt(1 / 7) = 0.378; t(7) is 2.365, at 5% a side 1.895."""


def _lead(claim: Claim, leads: Sequence[float]) -> Finding:
    return decide(claim, rows_of_both([10.0] * len(leads), [10.0 + lead for lead in leads]))


@pytest.mark.parametrize(
    ("mean", "width", "verdict"),
    [
        (3.0, 0.0, HOLDS),
        (1.2, 1.0, HOLDS),  # 1.2 +- 0.894 lies above 0 and contains the printed 2
        (0.9, 0.5, SMALLER),  # 0.9 +- 0.447 lies above 0 and below 2
        (0.1, 1.0, NO_DIFFERENCE),  # 0.1 +- 0.716 at 5% a side: none larger than 0.816
        (0.0, 4.0, UNDECIDED),  # 0 +- 2.865 at 5% a side: as large as printed may be
        (-1.0, 1.0, DOES_NOT_HOLD),
    ],
)
def test_a_lead_holds_is_smaller_is_none_or_is_the_other_side_s(
    mean: float, width: float, verdict: str
) -> None:
    found = _lead(PRINTED, (mean + width * WAVE).tolist())
    assert found.verdict == verdict
    assert (found.no_larger_than is not None) == (verdict == NO_DIFFERENCE)


def test_p_is_that_of_the_verdict_that_is_printed() -> None:
    # 1.5 +- 0.189: below the printed 2 by 2.65 of t(7), a p of 3.3%, and above 0 by 7.9.
    found = _lead(PRINTED, (1.5 + 0.5 * WAVE).tolist())
    assert found.verdict == SMALLER
    assert found.p == pytest.approx(0.033, abs=0.004)
    found = _lead(replace(PRINTED, paper_effect=1.5), (1.5 + 0.5 * WAVE).tolist())
    assert found.verdict == HOLDS
    assert found.p == pytest.approx(0.0001, abs=0.0001)


def test_a_factor_has_an_interval_of_its_logarithm() -> None:
    # Logarithms 0 to 5: mean 2.5, standard error 0.764, t(5) 2.571. On factors it would reach below 0.
    claim = replace(MEAN, scale="factor", statistic="geometric_mean")
    found = decide(claim, rows_of_both([1.0] * 6, np.exp(np.arange(6.0)).tolist()))
    assert (found.verdict, found.effect) == (HOLDS, pytest.approx(np.exp(2.5)))
    assert np.log([found.low or 0.0, found.high or 0.0]) == pytest.approx([0.536, 4.464], abs=0.1)


def test_no_difference_says_how_large_one_may_be() -> None:
    found = _lead(PRINTED, (0.1 + WAVE).tolist())
    assert found.no_larger_than == pytest.approx(0.1 + 1.895 * 0.378, abs=0.03)


def test_without_a_printed_effect_none_is_what_the_papers_call_none() -> None:
    small = (0.05 + 0.2 * WAVE).tolist()
    assert _lead(MEAN, small).verdict == UNDECIDED
    rows = rows_of_both([10.0] * 8, [10.0 + lead for lead in small])
    # EQUAL prints a difference of 0.5 as none.
    assert decide(MEAN, rows, others=(EQUAL,)).verdict == NO_DIFFERENCE


@pytest.mark.parametrize(
    ("word", "effect", "verdict"),
    [
        ("much", 1.5, SMALLER),  # more than half of the printed 2, yet less than it
        ("much", 2.5, HOLDS),
        ("much", 0.5, SMALLER),
        ("much", -0.5, DOES_NOT_HOLD),
        ("little", 2.5, HOLDS),
        ("little", 9.0, DOES_NOT_HOLD),
    ],
)
def test_words_of_size_ask_for_more_than_a_lead(word: str, effect: float, verdict: str) -> None:
    assert _lead(replace(PRINTED, magnitude=word), [effect] * 8).verdict == verdict


def test_a_share_of_programs_that_is_not_nearly_all() -> None:
    claim = replace(MEAN, statistic="share_of_programs", magnitude="nearly_every", paper_effect=0.875)
    most = [1.0] * 32 + [-1.0] * 8
    assert _lead(claim, most).verdict == UNDECIDED  # 80%: from 64 to 91%
    assert _lead(claim, [1.0] * 40).verdict == HOLDS
    assert _lead(claim, [1.0] * 58 + [-1.0] * 42).verdict == NO_DIFFERENCE  # 48 to 68%
    assert _lead(claim, [1.0] * 66 + [-1.0] * 34).verdict == SMALLER  # 56 to 75%


def test_programs_of_one_application_are_alike() -> None:
    # Six applications of four programs; leads differ between applications alone. Over programs the standard
    # error is sqrt(24/23 / 24), over applications sqrt(6/5 / 6): t(5) of it is 1.15.
    leads = np.repeat([1.0, -1.0] * 3, 4) + 1.0
    rows = [
        make_row(model=model, application=f"a{i // 4}", program=f"p{i}", value=value)
        for model, values in (("learned", np.full(24, 10.0)), ("analytical", 10.0 + leads))
        for i, value in enumerate(values)
    ]
    (found,) = evaluate_claims((MEAN,), frame_of(rows), 0)
    assert found.by_program is not None
    assert found.by_application is not None
    assert (found.by_program.units, found.by_application.units) == (24, 6)
    assert found.by_program.low == pytest.approx(1.0 - 2.069 / np.sqrt(23.0), abs=0.03)
    assert found.by_application.low == pytest.approx(1.0 - 2.571 / np.sqrt(5.0), abs=0.06)
    assert (found.low, found.high) == (found.by_application.low, found.by_application.high)
    assert found.verdict == UNDECIDED


def _pair(seeds: int) -> list[MetricRow]:
    other = Side(variant="mse")
    left = {seed: [1.0, 1.1] * 4 for seed in range(seeds)}
    return [*rows_of_side(LEARNED, left), *rows_of_side(other, {seed: [3.0, 3.1] * 4 for seed in left})]


@pytest.mark.parametrize(("seeds", "about"), [(1, "networks as trained"), (3, "architectures")])
def test_what_a_verdict_is_about_depends_on_the_seeds(seeds: int, about: str) -> None:
    claim = replace(MEAN, right=(Side(variant="mse"),))
    found = decide(claim, _pair(seeds))
    assert (found.verdict, found.about) == (HOLDS, about)
    assert set(found.seeds.values()) == {seeds}


def test_a_network_that_was_not_trained_enough_decides_nothing() -> None:
    claim, key = replace(MEAN, right=(Side(variant="mse"),)), ("tile", Side(variant="mse"))
    guard = TrainingGuard({key: "10% of the samples"}, {key: 6400}, {key: 640})
    (found,) = evaluate_claims((claim,), frame_of(_pair(1)), 0, guard=guard)
    assert (found.verdict, found.p, found.reason) == (NOT_TRAINED_ENOUGH, None, "mse: 10% of the samples")
    assert found.needed is not None
    assert found.needed.steps == 6400
    assert found.steps == {Side(variant="mse"): 640}


def test_what_guides_a_search_is_judged_as_well() -> None:
    key = ("fusion", Side(chip="tpu_v3"))
    guard = TrainingGuard({key: "short"}, {}, {key: 500})
    search = Side("model and hardware", "default-10m", "any", "tpu_v3")
    assert guard.networks_of("fusion", search) == (key,)
    assert guard.networks_of("fusion", Side("hybrid and hardware", "default-10m", "any", "tpu_v3")) == ()
    assert guard.networks_of("tile", search) == ()


def test_what_a_side_that_knows_nothing_passes_cannot_hold() -> None:
    blind = Side("random")
    claim = replace(EQUAL, blind=blind, looks=2)
    rows = rows_of_both([10.1] * 6, [10.0] * 6)
    finding = decide(claim, rows, rows_of_side(blind, {0: [10.3] * 6}))
    assert finding.looks == 2
    assert (finding.verdict, finding.reason[:22]) == (UNDECIDED, "random may pass too: -")
    # Its difference, the ends of its interval, and the difference that counts.
    assert numbers(finding.reason) == [-0.3, -0.3, -0.3, 0.5]
    assert decide(claim, rows, rows_of_side(blind, {0: [30.0] * 6})).verdict == HOLDS
