"""Restates claims about the analytical model against the strongest baseline.

lpm2021 scales its analytical model by kind of kernel on runs of the default fusion, since XLA's estimates
have no unit. Ours predicts nanoseconds and loses by that scaling, so that a lead over it may be a lead over
the scaling. A claim that a network is better (or worse) than the analytical model is therefore decided three
times: as the paper states it, on the same split against the strongest baseline (`<id>@strongest`), and on
folds over applications against the strongest baseline (`<id>@folds`), where every program is tested once.

Claims that compare trained networks with each other, such as those about lpm2021's tables 3 and 4 and all
of tpugraphs2023, are decided a second time on folds (`<id>@folds`), where there are any: the papers' splits
have six to eight test programs, folds have all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from costbench.metrics.rows import MAIN
from costbench.reports.baseline_comparison import STRONGEST
from costbench.reports.claims.claim import TPUGRAPHS, Claim, Side
from costbench.reports.results import FOLDS, PRIMARY_CHIP
from costbench.reports.scores import ScoreIndex, scores_of
from costbench.tasks import KERNEL_TASKS

_ANALYTICAL, _LEARNED = "analytical", "learned"


def restate_against_strongest(claims: Sequence[Claim]) -> tuple[Claim, ...]:
    """Returns the claims about the analytical model again: those on folds first, then those on their split.

    A claim is restated if it says which of a network and the analytical model is better. Of a claim about
    several models only the comparison with the analytical one is kept; no paper prints an effect for it.
    """
    about_analytical = [claim for claim in claims if _compares_analytical(claim)]
    restated = [
        replace(
            claim,
            id=f"{claim.id}@strongest",
            right=tuple(replace(side, model=STRONGEST) for side in claim.right if _is_analytical(side)),
            pairing="all",
            paper_effect=None,
            restates=claim.id,
        )
        for claim in about_analytical
    ]
    on_folds = (
        replace(_to_folds(claim), id=f"{claim.restates}@folds", restates=claim.restates) for claim in restated
    )
    return (*on_folds, *restated)


def _compares_analytical(claim: Claim) -> bool:
    return (
        claim.direction in ("left_better", "right_better")
        and claim.scale == "difference"
        and any(_is_analytical(side) for side in claim.right)
        and not any(_is_analytical(side) for side in claim.left)
    )


def _is_analytical(side: Side) -> bool:
    return (side.model, side.variant) == (_ANALYTICAL, MAIN)


def move_to_folds(claims: Sequence[Claim], index: ScoreIndex) -> tuple[Claim, ...]:
    """Returns the claims that compare networks of one split, on folds over applications.

    Of tpugraphs2023 these are all claims but those about wall times, baselines among their sides included, as
    far as any side was tested on folds. Of the other papers they are claims about tiles and fusions whose
    sides are all trained networks of one split and chip, as far as all sides were tested on folds. What two
    claims ask of folds alike (one of them of the manual split, say) is asked once.
    """
    moved_claims: list[Claim] = []
    questions = set()
    for claim in claims:
        moved = _to_folds(claim)
        tested = [bool(scores_of(index, claim.task, claim.metric, side).programs) for side in moved.sides]
        if claim.paper == TPUGRAPHS:
            if any(tested) and not claim.wall_time:
                moved_claims.append(moved)
            continue
        question = (claim.paper, claim.metric, claim.statistic, claim.direction, moved.left, moved.right)
        if _compares_networks(claim) and all(tested) and question not in questions:
            questions.add(question)
            moved_claims.append(moved)
    return tuple(moved_claims)


def _compares_networks(claim: Claim) -> bool:
    """Returns whether both sides are networks that were trained and tested alike, on one split and chip."""
    splits_and_chips = {(side.split, side.chip) for side in claim.sides}
    learned = all((side.model, side.task) == (_LEARNED, None) for side in claim.sides)
    return claim.task in KERNEL_TASKS and bool(claim.right) and learned and len(splits_and_chips) == 1


def _to_folds(claim: Claim) -> Claim:
    left, right = (
        tuple(replace(side, split=FOLDS, chip=PRIMARY_CHIP) for side in sides)
        for sides in (claim.left, claim.right)
    )
    return replace(claim, id=f"{claim.id}@folds", left=left, right=right, restates=claim.id)
