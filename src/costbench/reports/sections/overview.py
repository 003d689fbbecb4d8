"""Makes the first section of the page: conclusions and answers in a line, with links to the evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from costbench.metrics.rows import MAIN
from costbench.reports.claims.rule import (
    CANNOT_TELL,
    DOES_NOT_HOLD,
    FALSE_DISCOVERIES,
    HOLDS,
    Finding,
    verdict_after_control,
)
from costbench.reports.claims.section import papers_own
from costbench.reports.data.budgets import Budget
from costbench.reports.data.dataset_card import Card
from costbench.reports.described import OWN
from costbench.reports.page import FIRST, PageFigure, Pointer, Section
from costbench.reports.results import SPLIT_NAMES, Cell, title_of
from costbench.reports.search.bars import BEST_OF_ALL, EXHAUSTIVE, TOP_K
from costbench.reports.search.results import SLOWDOWN, SPEEDUP, Bar, Place, Searches
from costbench.reports.sections.conclusions import conclusions
from costbench.reports.standings import Standings
from costbench.reports.tables.differences import BASE as PAPERS_MODEL
from costbench.reports.tables.differences import known_differences
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
    chips = sorted({cell.chip for cell in overview.cells if not cell.is_imported})
    given = any(cell.is_imported for cell in overview.cells)
    origins = [
        *([_simulated(chips)] if chips or not given else []),
        *([f"Runtimes on {SPLIT_NAMES[OWN]} are those in the files that were imported."] if given else []),
    ]
    asked: list[Pointer | None] = [
        _differences(overview.differences),
        _tile_search(next(iter(overview.searches.of("tile")), None)),
        _fusion_search(next(iter(overview.searches.of("fusion")), None)),
        _claims(overview.findings),
        _data(overview.cards),
        _training(overview.budgets),
        Pointer(
            "With which parameters and which code?",
            "Digests of parameters, samples and code, to check every number again.",
            "provenance",
        ),
    ]
    return Section(
        anchor="overview",
        title="At a glance",
        label="At a glance",
        page=FIRST,
        paragraphs=(*origins, *_differs(overview.cells)),
        figures=overview.figures,
        pointers=(
            *_preview(overview.evidence),
            *conclusions(overview.cells, overview.found),
            *(() if overview.tpugraphs is None else (overview.tpugraphs,)),
        ),
        more=tuple(one for one in asked if one is not None),
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


def _simulated(chips: Sequence[str]) -> str:
    known = [_MEASURED[chip] for chip in reversed(chips) if chip in _MEASURED]
    measured = f" Measured: {'; '.join(known)}." if known else ""
    return (
        "Simulated: the compiler, the chips and with them every runtime on this page that is not marked as a "
        f"paper's.{measured} The programs are real."
    )


def _differs(cells: Sequence[Cell]) -> tuple[str, ...]:
    """What the model `learned` has and lpm2021's has not, task by task; nothing where nothing is known."""
    known = known_differences()
    parts = []
    for task in LEARNED:
        texts = [one.text for one in known if task in one.tasks]
        if texts and any(cell.task == task for cell in cells):
            listed = " and ".join(part for part in (", ".join(texts[:-1]), texts[-1]) if part)
            parts.append(f"{labels_of(task).title}: {listed}.")
    if not parts:
        return ()
    own = f'The paper\'s own is the model "{title_of(PAPERS_MODEL)}".'
    run = any(PAPERS_MODEL in cell.seeds for cell in cells)
    return (" ".join(["The model learned is not lpm2021's; it has more.", *parts, *([own] if run else [])]),)


def _differences(measured: bool) -> Pointer | None:
    if not measured:
        return None
    answer = "What each thing that learned has and lpm2021's model has not is worth, measured one at a time."
    return Pointer("How does ours differ from the paper's model?", answer, "differences")


def _tile_search(place: Place | None) -> Pointer | None:
    """Returns the cost of ten measurements per kernel, and their loss against exhaustive search."""
    bar = Bar("learned", f"top{TOP_K}")
    if place is None:
        return None
    fewer, slowdown = place.fewer_seconds(bar, EXHAUSTIVE), place.mean(bar, SLOWDOWN)
    answer = "Speed-ups per program and hardware seconds of every way of choosing."
    if fewer is not None and slowdown is not None:
        answer = (
            f"Measuring the learned model's {TOP_K} best candidates in place of all tile sizes takes "
            f"{fewer:,.0f} times fewer hardware seconds and leaves programs {100.0 * slowdown:.2f}% slower"
            f"{_analytical(place)}; {_where(place)}."
        )
    return Pointer("What does a model save a tile autotuner?", answer, "tile-search")


def _analytical(place: Place) -> str:
    """Returns a phrase on the baseline that needs no training."""
    slowdown = place.mean(Bar("analytical", f"top{TOP_K}"), SLOWDOWN)
    return "" if slowdown is None else f", the analytical model's {TOP_K} best {100.0 * slowdown:.2f}%"


def _fusion_search(place: Place | None) -> Pointer | None:
    if place is None:
        return None
    names = {
        "one minute of hardware after a search on the model": Bar("model and hardware", "default-1m"),
        "one after a search on the analytical model": Bar("analytical and hardware", "default-1m"),
        "ten minutes of hardware alone": Bar("hardware", "default-10m"),
        "the best of all searches": BEST_OF_ALL,
    }
    means = {name: place.mean(bar, SPEEDUP) for name, bar in names.items()}
    parts = [f"{name} {100.0 * (mean - 1.0):.1f}%" for name, mean in means.items() if mean is not None]
    answer = "Speed-ups per program and what searches were charged."
    if parts:
        answer = f"Gained over the compiler's default: {'; '.join(parts)}; {_where(place)}."
    question = "What does a model save a fusion autotuner?"
    return Pointer(question, answer, "fusion-search")


def _where(place: Place) -> str:
    return f"{place.split} split, {place.chip}"


def _claims(findings: Sequence[Finding]) -> Pointer:
    printed = papers_own(findings)
    counts = {
        verdict: sum(one.verdict == verdict for one in printed)
        for verdict in (HOLDS, DOES_NOT_HOLD, CANNOT_TELL)
    }
    kept = sum(verdict_after_control(one) in (HOLDS, DOES_NOT_HOLD) for one in printed)
    answer = (
        f"Of {sum(counts.values())} that could be tested, {counts[HOLDS]} hold, {counts[DOES_NOT_HOLD]} do "
        f"not, {counts[CANNOT_TELL]} cannot be told either way; {kept} verdicts are left with false "
        f"discoveries held at {100.0 * FALSE_DISCOVERIES:g}%."
    )
    return Pointer("Do the papers' claims hold here?", answer, "claims")


def _training(budgets: Sequence[Budget]) -> Pointer | None:
    """Returns the training budgets of the main models, without wall times, which differ from run to run."""
    if not budgets:
        return None
    main = {one.task: one for one in reversed(budgets) if one.variant == MAIN}
    given = (
        f"{task} {main[task].samples:,} samples in {main[task].steps:,} steps"
        for task in LEARNED
        if task in main
    )
    models = f"{len(budgets)} models were trained" if len(budgets) > 1 else "1 model was trained"
    answer = "; ".join([models, *given])
    return Pointer("What does training a model take?", f"{answer}.", "training")


def _data(cards: Sequence[Card]) -> Pointer | None:
    if not cards:
        return None
    programs = max(card.counts.programs for card in cards)
    seconds = sum(card.counts.device_seconds for card in cards)
    answer = (
        f"{programs} programs; {sum(card.counts.configs for card in cards):,} samples for "
        f"{seconds:,.0f} seconds of the simulated machines, {len(cards)} data sets in all."
    )
    return Pointer("What was measured, and for how long?", answer, "data")


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
