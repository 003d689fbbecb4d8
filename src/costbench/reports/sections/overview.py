"""Makes the first section of the page: conclusions and answers in a line, with links to the evidence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costbench.metrics.rows import MAIN
from costbench.reports.baseline_comparison import Standings
from costbench.reports.claims.rule import (
    DOES_NOT_HOLD,
    FALSE_DISCOVERIES,
    HOLDS,
    Finding,
    verdict_after_control,
)
from costbench.reports.claims.section import papers_own
from costbench.reports.data.budgets import Budget
from costbench.reports.data.dataset_card import Card
from costbench.reports.page import FIRST, PageFigure, Pointer, Section
from costbench.reports.prose import paragraphs
from costbench.reports.results import OWN, SPLIT_NAMES, Cell, title_of
from costbench.reports.search.results import (
    BEST_OF_ALL,
    EXHAUSTIVE,
    SLOWDOWN,
    SPEEDUP,
    TOP_K,
    Bar,
    Place,
    Searches,
)
from costbench.reports.sections.conclusions import conclusions
from costbench.reports.tables.variants import BASE as PAPERS_MODEL
from costbench.reports.tables.variants import known_differences
from costbench.tasks import LEARNED, labels_of

_TITLE = "How well do cost models choose tile sizes?"
_TITLE_OF_BOTH = "How well do cost models rank tile sizes and predict the runtimes of fused kernels?"


@dataclass(frozen=True)
class Overview:
    """What the first section is made of.

    Attributes:
        cells: main results of learned tasks.
        found: by name of cell, how its models stand to the strongest baseline.
        searches: of the stage `autotune`, if it was run.
        findings: on the papers' claims, restated ones included.
        cards: of the data set.
        budgets: of the training runs.
        differences: whether the differences to lpm2021's model were measured.
        figures: of the hybrid and of what tuning gains.
        tpugraphs: how the models of tpugraphs2023 do, if any was tested.
        evidence: path of the page whose verdicts count, from this one; empty if that is this page.
    """

    cells: Sequence[Cell]
    found: Mapping[str, Standings]
    searches: Searches
    findings: Sequence[Finding]
    cards: Sequence[Card]
    budgets: Sequence[Budget] = ()
    differences: bool = False
    figures: tuple[PageFigure, ...] = ()
    tpugraphs: Pointer | None = None
    evidence: str = ""


def overview_section(overview: Overview) -> Section:
    """What is simulated, how our model differs from the paper's, and conclusions with links to the evidence.

    Raises:
        ParamsError: if the package's data of the papers are broken.
    """
    return Section(
        anchor="overview",
        title="At a glance",
        label="At a glance",
        page=FIRST,
        paragraphs=_words(overview.cells),
        figures=overview.figures,
        pointers=(
            *_preview(overview.evidence),
            *conclusions(overview.cells, overview.found),
            *(() if overview.tpugraphs is None else (overview.tpugraphs,)),
        ),
        more=_questions(overview),
    )


_MEASURED = {
    "tpu_v2": "of tpu_v2 nothing was measured, its timing is that of tpu_v3 scaled by public figures",
    "tpu_v3": "the timing of tpu_v3 was fitted to recorded runs of kernels of one program on a real core",
}
"""Where the timing of a chip comes from, as its file in `costbench/chips` says."""


def _preview(evidence: str) -> tuple[Pointer, ...]:
    if not evidence:
        return ()
    answer = (
        "This page is a preview: short trainings of one seed. The ablations (lpm2021's tables 3 and 4), the "
        "differences to the paper's model one at a time, longer trainings and the verdicts that they allow "
        "are there."
    )
    return (Pointer("Which results count? Those of the profile evidence", answer, "overview", evidence),)


def _words(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Returns what is simulated, and what the model `learned` has and lpm2021's has not, task by task."""
    chips = sorted({cell.chip for cell in cells if not cell.is_imported})
    imported = any(cell.is_imported for cell in cells)
    known = {
        labels_of(task).title: [one.text for one in known_differences() if task in one.tasks]
        for task in LEARNED
        if any(cell.task == task for cell in cells)
    }
    papers_model = any(PAPERS_MODEL in cell.seeds for cell in cells)
    return paragraphs(
        "overview",
        simulated=bool(chips) or not imported,
        measured=[_MEASURED[chip] for chip in reversed(chips) if chip in _MEASURED],
        imported=SPLIT_NAMES[OWN] if imported else "",
        differences={task: texts for task, texts in known.items() if texts},
        papers_model=title_of(PAPERS_MODEL) if papers_model else "",
    )


def _questions(overview: Overview) -> tuple[Pointer, ...]:
    printed = papers_own(overview.findings)
    # Without wall times, which differ from run to run.
    main = {one.task: one for one in reversed(overview.budgets) if one.variant == MAIN}
    lines = paragraphs(
        "questions",
        differences=overview.differences,
        tile=_tile_search(next(iter(overview.searches.of("tile")), None)),
        fusion=_fusion_search(next(iter(overview.searches.of("fusion")), None)),
        claims=Counter(one.verdict for one in printed),
        kept=sum(verdict_after_control(one) in (HOLDS, DOES_NOT_HOLD) for one in printed),
        rate=100.0 * FALSE_DISCOVERIES,
        cards=overview.cards,
        models=len(overview.budgets),
        budgets={task: main[task] for task in LEARNED if task in main},
    )
    parts = (line.split(" | ", 2) for line in lines)
    return tuple(Pointer(question, answer, anchor) for anchor, question, answer in parts)


def _tile_search(place: Place | None) -> dict[str, object] | None:
    """Returns the cost of ten measurements per kernel, and their loss against exhaustive search."""
    if place is None:
        return None
    learned, analytical = (Bar(model, f"top{TOP_K}") for model in ("learned", "analytical"))
    return {
        "k": TOP_K,
        "fewer": place.fewer_seconds(learned, EXHAUSTIVE),
        "slowdown": place.mean(learned, SLOWDOWN),
        "analytical": place.mean(analytical, SLOWDOWN),
        "where": f"{place.split} split, {place.chip}",
    }


def _fusion_search(place: Place | None) -> dict[str, object] | None:
    if place is None:
        return None
    names = {
        "one minute of hardware after a search on the model": Bar("model and hardware", "default-1m"),
        "one after a search on the analytical model": Bar("analytical and hardware", "default-1m"),
        "ten minutes of hardware alone": Bar("hardware", "default-10m"),
        "the best of all searches": BEST_OF_ALL,
    }
    means = {name: place.mean(bar, SPEEDUP) for name, bar in names.items()}
    gains = {name: 100.0 * (mean - 1.0) for name, mean in means.items() if mean is not None}
    return {"gains": gains, "where": f"{place.split} split, {place.chip}"}


def page_title(cells: Sequence[Cell]) -> str:
    """Returns the heading of the report, by the tasks that there are results on."""
    return _TITLE if all(LEARNED[cell.task].ranks_decisions for cell in cells) else _TITLE_OF_BOTH


def page_lead(cells: Sequence[Cell]) -> str:
    """Returns the first paragraph of the report: what was done, on how many programs."""
    imported = [cell for cell in cells if cell.is_imported]
    simulated = [cell for cell in cells if not cell.is_imported]
    lines = []
    if simulated:
        chips = sorted({cell.chip for cell in simulated})
        lines.append(
            f"A learned and a hand-written cost model {_goals(simulated)} of {_num_programs(simulated)} "
            f"unseen XLA programs on {' and '.join(chips)} (simulated), beside baselines and the paper that "
            "posed the task."
        )
    if imported:
        lines.append(
            f"Learned cost models {_goals(imported)} of {_num_programs(imported)} programs of imported data, "
            "beside baselines."
        )
    return " ".join(lines)


def _goals(cells: Sequence[Cell]) -> str:
    tasks = {cell.task for cell in cells}
    return " and ".join(labels_of(task).goal for task in LEARNED if task in tasks)


def _num_programs(cells: Sequence[Cell]) -> int:
    return len({program for cell in cells for _, program in cell.programs})
