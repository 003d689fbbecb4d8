"""Where the hand-written model does well and where not: by application, and by what kernels mainly do.

It is not trained, so the test programs of all splits are taken together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from costbench.metrics.measures import APE, APE_FLOOR_PERCENT, TAU, geometric_mean
from costbench.reports.declarations import fill_table
from costbench.reports.papers.printed import main_table
from costbench.reports.results import ALL, BEST, KINDS, Results
from costbench.reports.table import Table, Value
from costbench.tasks import LEARNED

MODEL = "analytical"
APE_NEAR_PAPERS = (4.0, 12.0)
TAU_NEAR_PAPERS = (0.70, 0.85)
"""The neighbourhood of the papers' analytical model (lpm2021, tables 2 and 8): the middle of its programs."""


@dataclass(frozen=True)
class Score:
    """The model on one group of a program's kernels.

    Attributes:
        application: family of the program.
        ape: Tile-Size APE in percent.
        tau: mean Kendall's tau; None where no kernel ranks anything.
        kernels: how many.
        best_ns: runtime with the best tile sizes, executions counted.
    """

    application: str
    ape: float
    tau: float | None
    kernels: float
    best_ns: float

    @property
    def lost_ns(self) -> float:
        """Time lost by the model's choices."""
        return self.ape / 100.0 * self.best_ns


Scores = Mapping[str, Mapping[str, Score]]
"""Group of kernels -> program -> score."""


def analytical_scores(results: Results, chip: str) -> Scores:
    """The model's scores of every test program on a chip, over all kernels and over each kind."""
    found: dict[str, dict[str, Score]] = {}
    for cell in (*results.cells, *results.parts):
        if cell.chip != chip or not LEARNED[cell.task].ranks_decisions or cell.kernels not in (ALL, *KINDS):
            continue
        for application, program in cell.programs:
            ape = cell.score(MODEL, APE, program)
            kernels, best = (cell.score(BEST, name, program) for name in ("kernels", "runtime_ns"))
            if ape is not None and kernels is not None and best is not None:
                tau = cell.score(MODEL, TAU, program)
                found.setdefault(cell.kernels, {})[program] = Score(application, ape, tau, kernels, best)
    return found


def kind_table(scores: Scores, chip: str) -> Table:
    """One row a kind of kernel: how many there are, how much time is spent and lost there, APE and tau."""
    total = list(scores.get(ALL, {}).values())
    rows = []
    for kind in (*KINDS, ALL):
        own = list(scores.get(kind, {}).values())
        if own:
            rows.append((kind, *_summary(own, total)))
    return fill_table("analytical_kinds", rows, name=f"analytical_kinds_{chip}", averages=1, chip=chip)


def _summary(own: Sequence[Score], total: Sequence[Score]) -> tuple[Value, ...]:
    best, lost = sum(s.best_ns for s in own), sum(s.lost_ns for s in own)
    all_best, all_lost = sum(s.best_ns for s in total), sum(s.lost_ns for s in total)
    taus = [s.tau for s in own if s.tau is not None]
    return (
        sum(s.kernels for s in own),
        100.0 * best / all_best,
        100.0 * lost / all_lost if all_lost else 0.0,
        100.0 * lost / best,
        geometric_mean([s.ape for s in own], APE_FLOOR_PERCENT),
        float(np.mean(taus)) if taus else None,
        min(taus) if taus else None,
    )


def application_table(scores: Scores, chip: str) -> Table:
    """One row an application: APE, tau, how they lie to the papers', and where most time is lost."""
    rows = [(name, *_application_row(scores, name)) for name in _applications(scores)]
    apes = [score.ape for score in scores.get(ALL, {}).values()]
    taus = [score.tau for score in scores.get(ALL, {}).values() if score.tau is not None]
    if apes and taus:
        kernels = sum(score.kernels for score in scores[ALL].values())
        ape, tau = geometric_mean(apes, APE_FLOOR_PERCENT), float(np.mean(taus))
        places = (_place(ape, APE_NEAR_PAPERS), tau, _place(tau, TAU_NEAR_PAPERS))
        rows.append(("All programs", len(apes), kernels, ape, *places, "", None, None))
    ape_printed, tau_printed = _printed("error"), _printed("tau")
    return fill_table(
        "analytical",
        rows,
        name=f"analytical_{chip}",
        averages=int(bool(apes and taus)),
        chip=chip,
        ape_low=ape_printed[0],
        ape_high=ape_printed[-1],
        tau_low=tau_printed[0],
        tau_high=tau_printed[-1],
        ape_inside=_inside(ape_printed, APE_NEAR_PAPERS),
        tau_inside=_inside(tau_printed, TAU_NEAR_PAPERS),
        programs=len(ape_printed),
    )


def _applications(scores: Scores) -> list[str]:
    return sorted({score.application for score in scores.get(ALL, {}).values()})


def _of(scores: Scores, group: str, application: str) -> list[Score]:
    return [score for score in scores.get(group, {}).values() if score.application == application]


def _application_row(scores: Scores, application: str) -> tuple[Value, ...]:
    own = _of(scores, ALL, application)
    ape = geometric_mean([score.ape for score in own], APE_FLOOR_PERCENT)
    taus = [score.tau for score in own if score.tau is not None]
    tau = float(np.mean(taus)) if taus else None
    return (
        len(own),
        sum(score.kernels for score in own),
        ape,
        _place(ape, APE_NEAR_PAPERS),
        tau,
        "" if tau is None else _place(tau, TAU_NEAR_PAPERS),
        *(_worst(scores, application) or ("", None, None)),
    )


def _worst(scores: Scores, application: str) -> tuple[str, float, float] | None:
    """Kind of kernels with most of the application's lost time, its share in percent, its APE in percent."""
    groups = {kind: _of(scores, kind, application) for kind in KINDS}
    lost = {kind: sum(score.lost_ns for score in own) for kind, own in groups.items() if own}
    if not lost or not sum(lost.values()):
        return None
    kind = max(lost, key=lambda name: lost[name])
    best = sum(score.best_ns for score in groups[kind])
    return kind, 100.0 * lost[kind] / sum(lost.values()), 100.0 * lost[kind] / best


def _place(value: float, near: tuple[float, float]) -> str:
    return "below" if value < near[0] else "above" if value > near[1] else "inside"


def _printed(metric: str) -> list[float]:
    """What the paper prints for its programs, `error` or `tau`, ascending."""
    splits = ("random", "manual")
    tables = [table for split in splits if (table := main_table("tile", split)) is not None]
    column = f"{metric}_{MODEL}"
    return sorted(float(table.value_in(row, column) or 0.0) for table in tables for row in table.rows)


def _inside(values: Sequence[float], near: tuple[float, float]) -> int:
    return sum(_place(value, near) == "inside" for value in values)


def summarise_scores(scores: Scores) -> dict[str, object] | None:
    """Returns how applications lie to the papers' neighbourhood, and which kinds of kernels stand out.

    Returns:
        `applications`: a mapping each, with the columns of `application_table`; `kinds`: of the kinds of
        kernels the one that loses most time, the one that is ranked best and the one that is ranked worst,
        None with fewer than two kinds. None without scores.
    """
    if ALL not in scores:
        return None
    columns = ("programs", "kernels", "ape", "ape_place", "tau", "tau_place")
    worst = ("worst_kind", "worst_share", "worst_ape")
    applications: list[dict[str, Value]] = [
        dict(zip(("name", *columns, *worst), (name, *_application_row(scores, name)), strict=True))
        for name in _applications(scores)
    ]
    total = list(scores[ALL].values())
    kinds = []
    for kind in KINDS:
        if kind in scores:
            _, runtime, loss, _, _, tau, _ = _summary(list(scores[kind].values()), total)
            kinds.append({"name": kind, "share_of_runtime": runtime, "share_of_loss": loss, "tau": tau})
    ranked = sorted(kinds, key=lambda kind: float(kind["tau"] or 0.0))
    return {
        "applications": applications,
        "kinds": {
            "most_lost": max(kinds, key=lambda kind: float(kind["share_of_loss"] or 0.0)),
            "best_ranked": ranked[-1],
            "worst_ranked": ranked[0],
        }
        if len(kinds) > 1
        else None,
    }
