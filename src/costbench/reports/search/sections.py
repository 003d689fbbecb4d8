"""Makes the sections of the page about tile and fusion searches, each with the papers' claims about them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from costbench.reports.claims.rule import NOT_EVALUATED, Finding
from costbench.reports.claims.section import printed_effect
from costbench.reports.described_table import described_table
from costbench.reports.page import PageFigure, Section
from costbench.reports.papers.numbers import searches_of_paper
from costbench.reports.scores import MIN_PROGRAMS
from costbench.reports.search.bars import EXHAUSTIVE, FIGURE_4, STARTS, TOP_K, absent, best_known, figure_5
from costbench.reports.search.curves import (
    SearchPath,
    mean_path,
    of_place,
    seconds_to_reach,
    write_path_figure,
)
from costbench.reports.search.fusion.figures import FIGURES, write_fusion_figure
from costbench.reports.search.fusion.tables import cost_table, start_table
from costbench.reports.search.results import GAINS, PREDICTED, SLOWDOWN, SPEEDUP, Bar, Place, Searches
from costbench.reports.search.tile.figures import write_tile_figure, write_top_k_figure
from costbench.reports.search.tile.tables import budget_table, figure_4_table
from costbench.reports.table import Table, Value
from costbench.tasks import labels_of

_NUMBERS = {"lpm2021": "5", "lpm2020": "4"}
_NAMED = ("hardware", "model and hardware", "analytical and hardware")
"""Fusion searches whose means stand in the text."""


def search_sections(
    searches: Searches, paths: Sequence[SearchPath], findings: Sequence[Finding], figures: Path
) -> tuple[Section, ...]:
    """The parts about tile sizes and fusion; those without searches are left out.

    Args:
        searches: the results.
        paths: best-so-far curves of fusion searches.
        findings: on the claims; those about speed-ups are shown again beside the figures.
        figures: folder that figures go to.

    Raises:
        DataError: if a figure cannot be written.
        ParamsError: if the package's data of the papers are broken.
    """
    found = (_tile_section(searches, findings, figures), _fusion_section(searches, paths, findings, figures))
    return tuple(section for section in found if section is not None)


def _rows_of_figures(searches: Searches, task: str) -> list[list[Place]]:
    """Returns places to show side by side: a split's; for the random split also those that gain most."""
    rows = []
    for place in searches.of(task):
        beside = searches.beside(place)
        rows.append([place] if beside is None else [place, beside])
    shown = {place.name for row in rows for place in row[1:]}
    return [row for row in rows if row[0].name not in shown]


def _tile_section(searches: Searches, findings: Sequence[Finding], figures: Path) -> Section | None:
    places = searches.of("tile")
    if not places:
        return None
    drawn = []
    for row in _rows_of_figures(searches, "tile"):
        where = f"{_split(row[0])}, {row[0].chip}"
        svgs = write_tile_figure(row, figures)
        if svgs:
            caption = (
                f"Ours of lpm2021's figure 4, {where}: speed-up over the program with the tile sizes that "
                f"the analytical model chooses. {TOP_K} stands for the {TOP_K} tile sizes of each kernel "
                "that a model likes best (alternating: the learned and the analytical one in turn), "
                "measured; exhaustive: of all legal ones; the empty bar is the learned model's first choice, "
                f"nothing measured. Numbers with an arrow lie beyond the axis. {absent(FIGURE_4, *row)}"
            )
            alt = f"Bar chart of speed-ups per program by way of choosing tile sizes, {where}."
            drawn.append(PageFigure(svgs[0], alt, caption.strip()))
        svgs = write_top_k_figure(row, figures)
        if svgs:
            caption = (
                "How much slower than exhaustive search programs are after measuring that many tile sizes "
                f"of each kernel (left) and for that many hardware seconds (right), mean over programs, "
                f"{where}. Linear below 1%, logarithmic above."
            )
            alt = f"Curves of slow-down against measurements and hardware seconds, one a model, {where}."
            drawn.append(PageFigure(svgs[0], alt, caption))
    said = _said_table("tile", findings)
    tables = [said, *(table for place in places for table in (figure_4_table(place), budget_table(place)))]
    text = [_tile_finding(place) for place in places]
    title = "Tile sizes: in the compiler and in the autotuner"
    shown = tuple(table for table in tables if table.rows)
    return Section(
        anchor="tile-search",
        title=title,
        label="Tile autotuner",
        page="searches",
        paragraphs=tuple(t for t in text if t),
        figures=tuple(drawn),
        tables=shown,
        folded=_details(shown, said),
    )


def _details(tables: Sequence[Table], said: Table) -> tuple[str, ...]:
    """Names of all tables but that of what the papers say."""
    return tuple(table.name for table in tables if table.name != said.name)


def _tile_finding(place: Place) -> str:
    """Returns a sentence, computed from the numbers, on the cost and gain of ten measurements."""
    learned = Bar("learned", f"top{TOP_K}")
    slowdown, fewer = place.mean(learned, SLOWDOWN), place.fewer_seconds(learned, EXHAUSTIVE)
    speedup = place.mean(learned, SPEEDUP)
    if slowdown is None or fewer is None or speedup is None:
        return ""
    best = place.mean(EXHAUSTIVE, SPEEDUP)
    analytical = place.mean(Bar("analytical", learned.budget), SPEEDUP)
    beside = "" if analytical is None else f" ({analytical:.3f} by the {TOP_K} best of the analytical model)"
    return (
        f"{_split(place).capitalize()}, {place.chip}: measuring the {TOP_K} best candidates of the learned "
        f"model takes {fewer:,.0f} times fewer hardware seconds than measuring everything, and leaves "
        f"programs {100 * slowdown:.2f}% slower on average: {speedup:.3f} times as fast as with the "
        f"analytical model's choices{beside}, out of {best:.3f}."
    )


def _fusion_section(
    searches: Searches, paths: Sequence[SearchPath], findings: Sequence[Finding], figures: Path
) -> Section | None:
    places = searches.of("fusion")
    if not places:
        return None
    drawn = []
    for row in _rows_of_figures(searches, "fusion"):
        where = f"{_split(row[0])}, {row[0].chip}"
        for paper in FIGURES:
            svgs = write_fusion_figure(row, paper, figures)
            if not svgs:
                continue
            alt = f"Bar charts of speed-ups per program by way of searching, from two starts, {where}."
            drawn.append(PageFigure(svgs[0], alt, _fusion_caption(paper, row)))
        for place in row:
            svgs = write_path_figure(paths, place, figures)
            if svgs:
                alt = f"Curves of speed-ups against minutes of hardware, {_split(place)}, {place.chip}."
                caption = (
                    "What searches had found after so much hardware: median over repeats, geometric mean "
                    f"over programs, {_split(place)}, {place.chip}."
                )
                drawn.append(PageFigure(svgs[0], alt, caption))
    tables = [_said_table("fusion", findings)]
    for place in places:
        tables += [start_table(place, paper, start) for paper in FIGURES for start in STARTS]
        tables.append(cost_table(place))
    text = (_budgets(), *(_fusion_finding(place, paths) for place in places))
    title = "Fusion: searches with and without a model"
    shown = tuple(table for table in tables if table.rows)
    return Section(
        anchor="fusion-search",
        title=title,
        label="Fusion autotuner",
        page="searches",
        paragraphs=tuple(t for t in text if t),
        figures=tuple(drawn),
        tables=shown,
        folded=_details(shown, tables[0]),
    )


def _fusion_caption(paper: str, row: Sequence[Place]) -> str:
    lacking = [absent(figure_5(start, paper), *row) for start in STARTS]
    starts = [f"From {STARTS[s]}: {text}" for s, text in zip(STARTS, lacking, strict=True) if text]
    known = "" if any(best_known(place) for place in row) else "Best known was not run."
    empty = " Empty bars had one minute of hardware." if paper == "lpm2021" else ""
    text = (
        f"Ours of {paper}'s figure {_NUMBERS[paper]}, {_split(row[0])}, {row[0].chip}: speed-up over the "
        "compiler's default, median of the repeats, whiskers from the lowest to the highest; from the "
        f"default (above) and from a random configuration (below).{empty} Best known: the best of all "
        "searches from either start."
    )
    return " ".join(part for part in (text, *starts, known) if part)


def _budgets() -> str:
    parts = []
    for paper in FIGURES:
        printed = searches_of_paper(paper)
        minutes = " or ".join(f"{number:g}" for number in printed.hardware_minutes)
        parts.append(
            f"{paper} ({printed.section}) searches on its model for {printed.model_minutes:g} minutes of a "
            f"CPU, then on hardware for {minutes}, beside hardware alone for as long; best known is what "
            f"{printed.best_known_minutes:g} minutes of hardware find. Repeats: "
            f"{' (text) or '.join(map(str, printed.repeats))}"
            f"{' (caption)' if len(printed.repeats) > 1 else ''}."
        )
    own = (
        "Ours is the fastest configuration that any search here found, one among them on the simulated "
        "machine free of charge; what it gains is a program's headroom."
    )
    return " ".join([*parts, own, "The papers' figures have no printed values."])


def _fusion_finding(place: Place, paths: Sequence[SearchPath]) -> str:
    """Returns sentences on the gain after one and ten minutes, and how long hardware alone needs for it."""
    parts = []
    for start in STARTS:
        pairs = {m: [Bar(m, f"{start}-{n}m") for n in (1, 10)] for m in _NAMED}
        found = {m: [place.mean(bar, SPEEDUP) for bar in bars] for m, bars in pairs.items()}
        means = {m: several for m, several in found.items() if None not in several}
        if "hardware" not in means or "model and hardware" not in means:
            continue
        speedups = "; ".join(f"{m}: {one:.3f}, {ten:.3f}" for m, (one, ten) in means.items())
        needed = _minutes_alone(place, paths, start)
        parts.append(f"from {STARTS[start]}, {speedups}{needed}")
    if not parts:
        return ""
    known = [place.mean(bar, SPEEDUP) for bar in best_known(place)]
    last = f" Best known: {known[0]:.3f}." if known and known[0] is not None else ""
    predicted = place.mean(Bar("model and hardware", "default-10m"), PREDICTED)
    if predicted is not None:
        last += f" On the model a search tried {predicted:,.0f} configurations, mean over programs."
    head = f"{_split(place).capitalize()}, {place.chip}, speed-ups after one and ten minutes of hardware"
    return f"{head}: {'; '.join(parts)}.{last}"


def _minutes_alone(place: Place, paths: Sequence[SearchPath], start: str) -> str:
    """Returns a phrase: when hardware alone reaches what the model reaches after one minute."""
    found = of_place(paths, place, start)
    helped, alone = found.get("model and hardware"), found.get("hardware")
    if not helped or not alone:
        return ""
    seconds, means = mean_path(helped)
    after_one = float(means[max(0, int((seconds <= 60.0).sum()) - 1)])
    needed = seconds_to_reach(alone, after_one)
    most = max(seconds) / 60.0
    minutes = f"more than {most:g}" if needed is None else f"{needed / 60.0:.1f}"
    return f" (hardware alone needs {minutes} minutes for what the model and one minute find)"


def _said_table(task: str, findings: Sequence[Finding]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for one in findings:
        claim = one.claim
        if claim.metric != SPEEDUP or claim.task != task:
            continue
        where, effect = f"{claim.paper}, {claim.where}", printed_effect(claim.paper_effect)
        ours = (one.effect, one.low, one.high, claim.unit, one.n, one.verdict)
        rows.append((claim.statement, where, effect, claim.tested_on, *ours))
    notes = []
    for one in findings:
        if one.verdict == NOT_EVALUATED and one.claim.metric == SPEEDUP and one.claim.task == task:
            notes.append(f"{one.claim.id} lacks {'; '.join(one.missing)}.")
    name = labels_of(task).searches
    return described_table(
        "search_claims", rows, name=f"{task}_search_claims", notes=notes, searches=name, programs=MIN_PROGRAMS
    )


def _split(place: Place) -> str:
    return "programs that gain most" if place.split == GAINS else f"{place.split} split"
