"""The first page: conclusions and answers with links to the evidence, what was not run, provenance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from costbench.metrics.measures import Measure
from costbench.metrics.rows import MAIN
from costbench.reports.baseline_comparison import Standing, Standings
from costbench.reports.claims.evaluation import (
    DOES_NOT_HOLD,
    FALSE_DISCOVERIES,
    HOLDS,
    Finding,
    verdict_after_control,
)
from costbench.reports.dataset_files import Card
from costbench.reports.figures.programs import write_hybrid_figure
from costbench.reports.figures.searches import write_tune_figure
from costbench.reports.page import FIRST, PageFigure, Pointer, Section, paragraphs
from costbench.reports.results import (
    FOLDS,
    OWN,
    PRIMARY_CHIP,
    SPLIT_NAMES,
    Cell,
    Results,
    split_order,
    title_of,
)
from costbench.reports.searches import (
    BEST_OF_ALL,
    EXHAUSTIVE,
    SLOWDOWN,
    SPEEDUP,
    TOP_K,
    Bar,
    Searches,
    SearchResults,
)
from costbench.reports.sections.claims import papers_own
from costbench.reports.tables.variants import BASE as PAPERS_MODEL
from costbench.reports.tables.variants import known_differences, left_out
from costbench.reports.training_runs import Budget
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


def _tile_search(place: SearchResults | None) -> dict[str, object] | None:
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


def _fusion_search(place: SearchResults | None) -> dict[str, object] | None:
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


_NAMED = {"learned": "The learned model", "hybrid": "The hybrid of network and analytical model"}
_TEMPLATES: Mapping[int, str] = {
    -1: "{model} is better than the strongest baseline ({baseline})",
    1: "{model} is worse than the strongest baseline ({baseline})",
    0: "Whether {model} is better than the strongest baseline ({baseline}) cannot be told",
}
"""By the sign of the difference of errors, as far as its interval tells."""


def primary_cell(cells: Sequence[Cell], task: str, model: str) -> Cell | None:
    """Returns the results that a conclusion about a model is drawn from.

    Folds where there are any, as they test every program, else the random split; of their chips the one
    whose timing was fitted to measurements, if there is one.
    """
    own = [cell for cell in cells if cell.task == task and model in cell.seeds]
    ranked = sorted(
        own,
        key=lambda c: (c.split != FOLDS, split_order(c.split), c.chip != PRIMARY_CHIP, c.chip),
    )
    return next(iter(ranked), None)


def conclusions(cells: Sequence[Cell], found: Mapping[str, Standings]) -> tuple[Pointer, ...]:
    """Returns a conclusion for each learned task and each of network and hybrid that was evaluated.

    Args:
        cells: main results of learned tasks.
        found: by name of cell, how its models stand to the strongest baseline.
    """
    said = []
    for task in LEARNED:
        for model in _NAMED:
            cell = primary_cell(cells, task, model)
            if cell is not None:
                said.append(_conclusion(cell, model, found[cell.name]))
    return tuple(one for one in said if one is not None)


def _conclusion(cell: Cell, model: str, found: Standings) -> Pointer | None:
    own = found.of(model)
    strongest = None if found.strongest is None else found.of(found.strongest)
    if own is None or strongest is None or own.difference is None:
        return None
    name = _NAMED[model]
    subject = name[0].lower() + name[1:] if own.sign == 0 else name
    labels = cell.labels
    said = _TEMPLATES[own.sign].format(model=subject, baseline=title_of(strongest.model))
    headline = f"{labels.title}: {said}"
    where = f"{SPLIT_NAMES.get(cell.split, cell.split)}, {cell.chip}{labels.kernels}"
    measure = cell.described.measures[0]
    answer = f"{_numbers(own, strongest, measure, labels.short_error)}; {where}."
    return Pointer(headline, answer, f"baselines_{cell.name}")


def _numbers(own: Standing, strongest: Standing, measure: Measure, error: str) -> str:
    difference = own.difference
    if difference is None or own.won is None:
        return ""
    digits = measure.decimals
    ends = sorted(abs(end) for end in (difference.low, difference.high))
    if difference.sign:
        gap = f"{abs(difference.value):.{digits}f} points {'less' if difference.value < 0.0 else 'more'}"
        span = f"{ends[0]:.{digits}f} to {ends[1]:.{digits}f}"
    else:
        gap = f"a difference of {difference.value:+.{digits}f} points"
        span = f"{difference.low:+.{digits}f} to {difference.high:+.{digits}f}"
    return (
        f"{error} {own.error.value:.{digits}f}% against {strongest.error.value:.{digits}f}%, {gap} "
        f"(95% interval {span}), ahead on {100.0 * own.won:.0f}% of {own.compared} programs"
    )


_SPLIT = "random"
"""Few enough programs to name them all."""


def overview_figures(
    cells: Sequence[Cell], found: Mapping[str, Standings], searches: Searches, folder: Path
) -> tuple[PageFigure, ...]:
    """Returns the figures whose results are there.

    Args:
        cells: main results of learned tasks.
        found: by name of cell, how its models stand to the strongest baseline.
        searches: of the stage `autotune`.
        folder: where figures go.

    Raises:
        DataError: if a figure cannot be written.
    """
    return (*_hybrid(cells, found, folder), *_tune(searches, folder))


def _hybrid(cells: Sequence[Cell], found: Mapping[str, Standings], folder: Path) -> tuple[PageFigure, ...]:
    shown = []
    for task in LEARNED:
        own = [c for c in cells if (c.task, c.split) == (task, _SPLIT) and "hybrid" in c.seeds]
        if own:
            cell = min(own, key=lambda c: (c.chip != PRIMARY_CHIP, c.chip))
            shown.append((cell, found[cell.name].strongest))
    paths = write_hybrid_figure(shown, folder)
    if not paths:
        return ()
    where = "; ".join(dict.fromkeys(f"{SPLIT_NAMES[_SPLIT]}, {cell.chip}" for cell, _ in shown))
    alt = f"Dots of the errors of analytical model, strongest baseline, network and hybrid; {where}."
    caption = (
        "The hybrid, a network that learns what the analytical model gets wrong, beside both and the "
        f"strongest baseline: error of each test program on a logarithmic axis, lower is better. {where}."
    )
    return (PageFigure(paths[0], alt, caption),)


def _tune(searches: Searches, folder: Path) -> tuple[PageFigure, ...]:
    shown: list[SearchResults] = []
    for task in LEARNED:
        own = [place for place in searches.of(task) if place.split == _SPLIT]
        if own:
            shown.append(min(own, key=lambda place: (place.chip != PRIMARY_CHIP, place.chip)))
    paths = write_tune_figure(shown, folder)
    if not paths:
        return ()
    alt = "Dots of what tuning gains in each test program over the compiler's own choice."
    caption = (
        "What tuning with a model, as `costbench tune` does, gains over the compiler's own choice in each "
        "test program. Tile sizes: the learned model's first choice, nothing measured; the best of "
        f"{TOP_K} measured for each kernel, the analytical model's beside them; of all measured. Fusion: the "
        "best found with that many minutes of hardware, after a search on the model, on the analytical model "
        "or on none, and by any search."
    )
    return (PageFigure(paths[0], alt, caption),)


def missing_section(results: Results) -> Section | None:
    """Which of the papers' tables are left out, and why; None if they are all there.

    Raises:
        ParamsError: if the package's data of the papers are broken.
    """
    lines = left_out(results)
    title = "Tables of the papers without results here"
    return Section("missing", title, "Not run", lines, page=FIRST) if lines else None


def provenance_section(results: Results, searches: Searches, more: Mapping[str, str]) -> Section:
    """Returns the digests of parameters, samples and code.

    Args:
        results: of evaluation.
        searches: of the stage `autotune`.
        more: what else says where the numbers come from, name -> value.
    """
    # Not the revision: a report that is committed would always name the commit before its own.
    names = {"params_digest": "parameters", "data_digest": "samples"}
    found = tuple((label, ", ".join(results.identities(field))) for field, label in names.items())
    if len(searches.frame):
        digests = sorted(searches.frame["params_digest"].unique())
        found += (("parameters, searches included", ", ".join(digests)),)
    text = "The same parameters and the same code give the same numbers, byte for byte."
    return Section(
        "provenance",
        "Where the numbers come from",
        "Provenance",
        (text,),
        facts=found + tuple(more.items()),
        page=FIRST,
    )
