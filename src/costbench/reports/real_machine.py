"""Results on a machine that exists, beside those on the simulated chip: which findings carry over.

They are packed results (`costbench.reports.headline`) of experiments on recorded kernels. Every comparison
that they have all sides of is made again on them, by the same rule (`claims.contrasts.contrasts_on_machine`),
and stands beside its finding on folds of the simulated chip.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from costbench.metrics.rows import PROGRAMS
from costbench.reports.claims.claim import Claim
from costbench.reports.claims.evaluation import (
    BY_CONSTRUCTION,
    DOES_NOT_HOLD,
    HOLDS,
    NO_DIFFERENCE,
    NOT_EVALUATED,
    SMALLER,
    Finding,
)
from costbench.reports.headline import Headline
from costbench.reports.results import FOLDS, PRIMARY_CHIP, Cell
from costbench.reports.summary import averages, summarise
from costbench.tasks import LEARNED

TASK = "fusion"
"""The task that real machines have samples of."""
REAL = "real"
"""Set of the comparisons on a real machine."""
_TRANSFER = re.compile(r"transfer-(?P<start>[a-z]+)-(?P<kernels>\d+)")
_OUTCOMES = {HOLDS: HOLDS, SMALLER: HOLDS, DOES_NOT_HOLD: DOES_NOT_HOLD, NO_DIFFERENCE: NO_DIFFERENCE}
_NO_SUMMARY = re.compile(r"@(curve|kernels)-")
_SHORT = {"mape": "mape_ge5us_mean", "mape_short": "mape_lt5us_mean", "tau": "tau_mean"}
"""Short names of the headline numbers of a model, by which a summary has them as well."""
CarriesOver = Literal["yes", "no", "open", "tested here alone"]


def main_cell(real: Headline) -> Cell | None:
    """Returns the main results on the machine; None without any."""
    return real.results.cell(TASK, FOLDS, real.chip)


@dataclass(frozen=True)
class Carried:
    """A comparison on the simulated chip and on the real machine.

    Attributes:
        real: finding on the real machine.
        simulated: finding on the simulated chip, on folds; None where it was not made there.
        carries_over: `yes` where both are decided alike, `no` where they are decided differently, `open`
            where one is not decided, `tested here alone` where the simulated chip has no finding.
    """

    real: Finding
    simulated: Finding | None
    carries_over: CarriesOver


def carried_findings(findings: Iterable[Finding]) -> tuple[Carried, ...]:
    """Returns each finding on a real machine with that of the same comparison on the simulated chip."""
    findings = list(findings)
    simulated: dict[object, Finding] = {}
    for finding in findings:
        splits, chips = ({getattr(side, name) for side in finding.claim.sides} for name in ("split", "chip"))
        if finding.claim.set != REAL and splits == {FOLDS} and chips == {PRIMARY_CHIP}:
            simulated.setdefault(_question(finding.claim), finding)
    by_construction = {
        finding.claim.id: finding for finding in findings if finding.verdict == BY_CONSTRUCTION
    }
    rows = []
    for finding in findings:
        if finding.claim.set == REAL:
            other = simulated.get(_question(finding.claim), by_construction.get(finding.claim.restates))
            rows.append(Carried(finding, other, _carries_over(finding, other)))
    return tuple(rows)


def _question(claim: Claim) -> tuple[object, ...]:
    """Returns what a claim compares, whatever machine it is tested on."""
    left, right = (
        frozenset((side.model, side.variant, side.kernels) for side in sides)
        for sides in (claim.left, claim.right)
    )
    return (claim.task, claim.metric, claim.statistic, claim.scale, claim.pairing, left, right)


def _carries_over(real: Finding, simulated: Finding | None) -> CarriesOver:
    if simulated is None or simulated.verdict in (BY_CONSTRUCTION, NOT_EVALUATED):
        return "tested here alone"
    outcomes = [_OUTCOMES.get(finding.verdict) for finding in (real, simulated)]
    if None in outcomes:
        return "open"
    return "yes" if outcomes[0] == outcomes[1] else "no"


@dataclass(frozen=True)
class ModelScores:
    """A model on both machines; None where it was not evaluated.

    Attributes:
        model: name in result rows.
        simulated: averages on the simulated chip, by name as in the summary.
        real: averages on the real machine.
        programs: averages over the fusion configs of whole programs on the real machine.
    """

    model: str
    simulated: Mapping[str, float]
    real: Mapping[str, float]
    programs: Mapping[str, float]


def scores_of_models(real: Headline, simulated: Cell | None) -> tuple[ModelScores, ...]:
    """Returns the models on the real machine and on the simulated chip, in the order of reports.

    Args:
        real: packed results on the machine.
        simulated: main results on folds of the simulated chip; None where there are none.
    """
    cell = main_cell(real)
    if cell is None:
        return ()
    programs = real.results.part(cell, PROGRAMS)
    names = [*cell.models, *(["sum_of_kernels"] if programs is not None else []), *cell.ceilings]
    return tuple(
        ModelScores(
            model,
            {} if simulated is None else averages(simulated, model),
            averages(cell, model),
            {} if programs is None else averages(programs, model),
        )
        for model in names
    )


@dataclass(frozen=True)
class TransferPoint:
    """A network that was trained on some real kernels.

    Attributes:
        start: `nothing`, or `simulated` where it was trained on simulated kernels before.
        kernels: number of real kernels.
        error: mean error of kernels from 5 us on the test programs, in percent.
        tau: mean of Kendall's tau over all kernels of a program.
        seeds: number of training seeds.
    """

    start: str
    kernels: int
    error: float
    tau: float
    seeds: int


def transfer_points(real: Headline) -> tuple[TransferPoint, ...]:
    """Returns the points of the experiment on transfer, by start and kernels."""
    error, tau = (*LEARNED[TASK].measures[:1], *LEARNED[TASK].all_kernels[1:])
    points = []
    for cell in real.results.variants:
        match = _TRANSFER.fullmatch(cell.variant)
        for model in cell.models if match else ():
            values = [m.mean(cell.over_programs(model, m.metric)) for m in (error, tau)]
            if match and None not in values:
                seeds = len(cell.seeds[model])
                point = TransferPoint(
                    match["start"],
                    int(match["kernels"]),
                    float(values[0] or 0.0),
                    float(values[1] or 0.0),
                    seeds,
                )
                points.append(point)
    return tuple(sorted(points, key=lambda point: (point.start, point.kernels)))


def flat_real(real: Headline | None) -> dict[str, float]:
    """Returns the headline numbers on the machine, by key of the summary, as those of other chips.

    Main models have three under short names, too: `mape`, from 5 us, `mape_short`, below, and `tau`. Points
    of learning curves and of budgets are left out; `programs_<name>` are over the fusion configs of
    whole programs.
    """
    if real is None:
        return {}
    numbers = {
        key: value for key, value in summarise(real.results, {}).items() if not _NO_SUMMARY.search(key)
    }
    for scores in scores_of_models(real, None):
        prefix = f"{TASK}/{FOLDS}/{real.chip}/{scores.model}"
        numbers |= {
            f"{prefix}/{name}": scores.real[key] for name, key in _SHORT.items() if key in scores.real
        }
        numbers |= {f"{prefix}/programs_{name}": value for name, value in scores.programs.items()}
    return {key: value for key, value in numbers.items() if math.isfinite(value)}


def count_carried(carried: Sequence[Carried]) -> dict[str, int]:
    """Returns how many findings carry over, how many do not, and how many are open."""
    counts = {"yes": 0, "no": 0, "open": 0, "tested here alone": 0}
    for row in carried:
        counts[row.carries_over] += 1
    return counts
