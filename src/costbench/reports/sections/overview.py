"""Makes the first section of the page: main questions with one-line answers and links to the evidence."""

from __future__ import annotations

from collections.abc import Sequence

from costbench.metrics.rows import MAIN
from costbench.reports.claims.rule import CANNOT_TELL, DOES_NOT_HOLD, HOLDS, Finding
from costbench.reports.data.budgets import Budget
from costbench.reports.data.dataset_card import Card
from costbench.reports.page import Pointer, Section
from costbench.reports.results import TITLES, Cell
from costbench.reports.search.bars import EXHAUSTIVE, TOP_K, best_known
from costbench.reports.search.results import SLOWDOWN, SPEEDUP, Bar, Place, Searches
from costbench.tasks import LEARNED, labels_of


def overview_section(
    cells: Sequence[Cell],
    searches: Searches,
    findings: Sequence[Finding],
    cards: Sequence[Card],
    budgets: Sequence[Budget] = (),
) -> Section:
    """Questions with their answers in a line each, and links to the parts of the page behind them.

    Args:
        cells: results over all kernels; the first of each task is quoted.
        searches: of the stage `autotune`, if it was run.
        findings: on the papers' claims.
        cards: of the data set.
        budgets: of the training runs.
    """
    asked: list[Pointer | None] = []
    for task in LEARNED:
        asked.append(_models(next((cell for cell in cells if cell.task == task), None)))
    asked += [
        _tile_search(next(iter(searches.of("tile")), None)),
        _fusion_search(next(iter(searches.of("fusion")), None)),
        _claims(findings),
        _data(cards),
        _training(budgets),
        Pointer(
            "With which parameters and which code?",
            "Digests of parameters, samples and code, to check every number again.",
            "provenance",
        ),
    ]
    pointers = tuple(one for one in asked if one is not None)
    return Section("overview", "At a glance", "At a glance", pointers=pointers)


def _models(cell: Cell | None) -> Pointer | None:
    """Models by their error, the best first."""
    if cell is None:
        return None
    error, tau = LEARNED[cell.task].measures
    scores = {model: error.mean(cell.over_programs(model, error.metric)) for model in cell.models}
    ranked = sorted(
        (score, model) for model, score in scores.items() if score is not None and model != "random"
    )
    parts = []
    for score, model in ranked:
        other = tau.mean(cell.over_programs(model, tau.metric))
        parts.append(
            f"{TITLES.get(model, model)} {score:.1f}%" + ("" if other is None else f" (τ {other:.2f})")
        )
    where = f"{cell.split} split, {cell.chip}, {len(cell.programs)} test programs"
    labels = labels_of(cell.task)
    return Pointer(labels.question, f"{labels.error}: {', '.join(parts)}; {where}.", cell.name)


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
            f"{fewer:.0f} times fewer hardware seconds and leaves programs {100.0 * slowdown:.2f}% slower; "
            f"{_where(place)}."
        )
    return Pointer("What does a model save a tile autotuner?", answer, "tile-search")


def _fusion_search(place: Place | None) -> Pointer | None:
    if place is None:
        return None
    names = {
        "one minute of hardware after a search on the model": Bar("model and hardware", "default-1m"),
        "ten minutes of hardware alone": Bar("hardware", "default-10m"),
    }
    names |= {f"{bar.minutes:g} minutes of hardware alone": bar for bar in best_known(place)}
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
    counts = {
        verdict: sum(one.verdict == verdict for one in findings)
        for verdict in (HOLDS, DOES_NOT_HOLD, CANNOT_TELL)
    }
    answer = (
        f"Of {sum(counts.values())} that could be tested, {counts[HOLDS]} hold, {counts[DOES_NOT_HOLD]} do "
        f"not, {counts[CANNOT_TELL]} cannot be told either way."
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
