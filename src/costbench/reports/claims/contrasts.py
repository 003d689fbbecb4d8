"""Which comparisons are made: each once, with words that say what is compared, in one of five sets.

- `printed`: claims as a paper makes them, with its own model on its own kind of split.
- `all_programs`: the same comparison on folds over applications, where every program is tested once; the
  papers' splits have six to eight test programs.
- `stand_in`: claims of the two papers about learned performance models in which our network `learned` or one
  of its variants stands in for the paper's model, on folds where it was tested there.
- `strongest`: statements of this project (`papers/strongest.yaml`) that hold trained networks against boosted
  trees, like with like: both know the analytical estimate, or neither does.
- `real`: all of these on folds of programs that ran on a machine that exists, and what only such a machine
  can decide (`papers/real_machine.yaml`).

Sides are never swapped: what a statement sees ahead is the same in every set. Claims about programs unlike
those of training are asked on folds, too: there as on the manual split no application and no builder is on
both sides. What a shift costs, the difference between the random and the manual split, is there that between
folds over programs and folds over applications, which test the same programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from costbench.baselines import BASELINES
from costbench.datasets.splits import RANDOM_FOLDS
from costbench.reports.claims.claim import ANY, PAPERS, TPUGRAPHS, Claim, Side, read_claims
from costbench.reports.results import FOLDS, PRIMARY_CHIP
from costbench.reports.scores import ScoreIndex, scores_of

_NETWORK = Side().model
_PAPERS_MODEL = "lpm2021"
_SEARCH_ON_NETWORK, _SEARCH_ON_ESTIMATE = "model and hardware", "analytical and hardware"
_STAND_INS = {_NETWORK, _SEARCH_ON_NETWORK}
"""Models of result rows that are our network, alone or in a search."""
_OF_PAPERS = ("lpm2020-lstm",)
"""Variants of our network that are a paper's own."""
_ABOUT_OUR_NETWORK = ("lpm2021", "lpm2020")
_MOVABLE = ({"random"}, {"manual"}, {"gains"})
"""Splits of all sides of a claim that may become folds; where they differ, the claim is about that.

`gains` are those programs of the corpus that gain most, and folds have all of it.
"""
_SHIFT = {"random": RANDOM_FOLDS, "manual": FOLDS}
"""Kinds of folds that stand for the two splits of a claim about their difference."""


def contrasts(claims: Sequence[Claim], index: ScoreIndex) -> tuple[Claim, ...]:
    """Returns all comparisons, those of claims as printed first.

    Args:
        claims: claims as the papers print them.
        index: results, which say what was tested on folds.

    Raises:
        ParamsError: if the package's data are broken.
    """
    printed = [claim for claim in claims if not stands_in(claim)]
    stand_ins = [claim for claim in claims if stands_in(claim)]
    stand_ins += [
        claim.with_sides(
            lambda side: replace(side, model=_NETWORK) if side.model == _PAPERS_MODEL else side,
            id=f"{claim.id}@learned",
            restates=claim.id,
        )
        for claim in printed
        if claim.paper in _ABOUT_OUR_NETWORK and any(side.model == _PAPERS_MODEL for side in claim.sides)
    ]
    on_folds = [
        replace(moved, id=f"{claim.id}@folds", set="all_programs")
        for claim in printed
        if (moved := _to_folds(claim, index)) is not None
    ]
    stand_ins = [placed for claim in stand_ins for placed in _placed(claim, index)]
    strongest = [replace(claim, set="strongest") for claim in strongest_statements()]
    stand_ins = [replace(claim, set="stand_in") for claim in stand_ins]
    return tuple(_distinct((*printed, *on_folds, *stand_ins, *strongest)))


def contrasts_on_machine(claims: Sequence[Claim], index: ScoreIndex, chip: str) -> tuple[Claim, ...]:
    """Returns the comparisons of claims and of this project's statements that a real machine has results for.

    Args:
        claims: claims as the papers print them.
        index: results on the machine.
        chip: name of the machine in these results.

    Raises:
        ParamsError: if the package's data are broken.
    """
    moved = []
    for claim in (*claims, *strongest_statements(), *read_claims(PAPERS / "real_machine.yaml")):
        splits, chips = {side.split for side in claim.sides}, {side.chip for side in claim.sides}
        if len(chips) != 1 or splits not in (*_MOVABLE, {FOLDS}) or claim.wall_time or claim.construction:
            continue
        name = claim.restates or claim.id
        on_machine = claim.with_sides(
            lambda side: replace(side, split=FOLDS, chip=chip), id=f"{name}@{chip}", set="real", restates=name
        )
        left = tuple(_with_estimate(side, claim, index) for side in on_machine.left)
        on_machine = replace(on_machine, left=left)
        if all(scores_of(index, claim.task, claim.metric, side).programs for side in on_machine.sides):
            moved.append(on_machine)
    return tuple(_distinct(moved))


def _with_estimate(side: Side, claim: Claim, index: ScoreIndex) -> Side:
    """Returns the side of a search on a network first, or on the estimate where there is no such search."""
    on_estimate = replace(side, model=_SEARCH_ON_ESTIMATE)
    missing = side.model == _SEARCH_ON_NETWORK and (claim.task, claim.metric, side) not in index
    return on_estimate if missing else side


def strongest_statements() -> tuple[Claim, ...]:
    """Returns this project's statements about the strongest baseline.

    Raises:
        ParamsError: if the file is broken.
    """
    return read_claims(PAPERS / "strongest.yaml", "strongest")


def stands_in(claim: Claim) -> bool:
    """Returns whether our network stands in for the model of the paper that the claim is of."""
    return claim.paper in _ABOUT_OUR_NETWORK and any(
        side.model in _STAND_INS and side.variant not in _OF_PAPERS for side in claim.sides
    )


def _placed(claim: Claim, index: ScoreIndex) -> tuple[Claim, ...]:
    """Returns the claim on folds where it was tested there, beside it that of the manual split."""
    moved = _to_folds(claim, index)
    if moved is None or "manual" not in {side.split for side in claim.sides}:
        return (moved or claim,)
    return moved, replace(claim, id=f"{claim.id}@manual", restates=claim.restates or claim.id)


def _to_folds(claim: Claim, index: ScoreIndex) -> Claim | None:
    """Returns the claim on folds; None if it is about another split, or a side was not tested there.

    Where chips are what differs, they stay. Layouts are of the random split as far as they are of any.
    """
    splits, chips = {side.split for side in claim.sides}, {side.chip for side in claim.sides}
    movable = splits in (*_MOVABLE, _SHIFT.keys()) or (splits <= {"random", ANY} and claim.paper == TPUGRAPHS)
    if not movable or claim.wall_time or claim.construction:
        return None
    if splits == {ANY} and _tested_splits(claim, index) == {FOLDS}:
        return None  # Programs of all splits are already those of folds.
    moved = claim.with_sides(
        lambda side: replace(
            side,
            split=_SHIFT[side.split] if splits == _SHIFT.keys() else FOLDS,
            chip=PRIMARY_CHIP if len(chips) == 1 else side.chip,
        ),
        restates=claim.restates or claim.id,
    )
    tested = all(scores_of(index, claim.task, claim.metric, side).programs for side in moved.sides)
    return moved if tested else None


def _tested_splits(claim: Claim, index: ScoreIndex) -> set[str]:
    """Returns the splits that the claim's first side has results on."""
    side = claim.sides[0]
    wanted = replace(side.rows, split="")
    return {
        rows.split
        for task, metric, rows in index.row_numbers
        if (task, metric) == (side.task or claim.task, side.metric or claim.metric)
        and replace(rows, split="") == wanted
        and rows.split != ANY
    }


def _distinct(claims: Iterable[Claim]) -> Iterable[Claim]:
    """Yields the claims without those that ask of the same rows what an earlier one asks.

    Every statement stays once: two papers, or one of two kinds of split, may say the same of one comparison.
    """
    asked, stated = set(), set()
    for claim in claims:
        sides = frozenset((frozenset(claim.left), frozenset(claim.right)))
        words = (claim.direction, claim.magnitude)
        question = (claim.task, claim.metric, claim.statistic, claim.scale, claim.pairing, words, sides)
        statement = claim.restates or claim.id
        if statement not in stated or not claim.sides or question not in asked:
            yield claim
        asked.add(question)
        stated.add(statement)


def knows_estimate(model: str) -> bool:
    """Returns whether a model of result rows, or of a search, is given the analytical estimate."""
    name = model.removesuffix(" and hardware")
    return name == "hybrid" or (name in BASELINES and BASELINES[name].reads_estimate)
