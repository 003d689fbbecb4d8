"""Fusion searches with and without a model as tables: speed-ups per program, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence

from costbench.metrics.measures import AVERAGES
from costbench.reports.described_table import described_table
from costbench.reports.search.bars import (
    BEST_KNOWN,
    FUSION_MODELS,
    STARTS,
    absent,
    best_known,
    figure_5,
    key,
    there,
    title,
)
from costbench.reports.search.fusion.figures import FIGURES
from costbench.reports.search.results import MEASURED, PREDICTED, SECONDS, SLOWDOWN, SPEEDUP, Bar, Place
from costbench.reports.search.tile.tables import AVERAGE, WHERE
from costbench.reports.table import Column, Table, Value

_KINDS = ("median", "geometric_mean", "mean")
_LETTERS = {"default": "a", "random": "b"}


def start_table(place: Place, paper: str, start: str) -> Table:
    """Median, lowest and highest speed-up over the default configuration per program, from one start.

    Args:
        place: the results.
        paper: whose minutes of hardware: `lpm2021` (figure 5) or `lpm2020` (figure 4).
        start: `default` or `random`.

    Returns:
        A table without rows if none of its searches was run.
    """
    bars = (*there(figure_5(start, paper), place), *best_known(place))
    columns = [Column("application", "Application"), Column("program", "Program")]
    columns.append(Column("edges", "Fusible edges", count=True))
    columns.append(Column("headroom", "Headroom (%)", decimals=1))
    for bar in bars:
        ends = ("",) if bar.model == BEST_KNOWN else ("", "lowest", "highest")
        for end in ends:
            column = f"{key(bar)}_{end}" if end else key(bar)
            contest = "" if end or bar.model == BEST_KNOWN else f"{bar.minutes:g}"
            columns.append(Column(column, end or "median", title(bar), 3, "higher", contest))
    rows = [_program_row(place, bars, program) for program in place.programs]
    rows += [_average_row(place, bars, kind) for kind in _KINDS]
    number = FIGURES[paper].removeprefix("figure")
    heading = (
        f"Figure {number}{_LETTERS[start]} of {paper} with our models, from {STARTS[start]}, "
        f"{WHERE.get(place.split, place.split)}, {place.chip}"
    )
    ran = there(figure_5(start, paper), place)
    repeats = max((len(place.repeats(b, SPEEDUP, p)) for b in ran for _, p in place.programs), default=0)
    notes = (
        "Runtime of the program as the compiler fuses it, over its runtime with the best configuration that "
        f"a search measured; median, lowest and highest of {repeats} searches, averages over programs are of "
        "those. Best known: the best of all searches of a program, from either start, with a model and "
        "without, and of one more that sets out from it and is free of charge on the simulated machine; none "
        "is above it. Headroom: what it gains over the default.",
        absent(figure_5(start, paper), place),
    )
    name = f"{paper}_{FIGURES[paper]}{_LETTERS[start]}_{place.name}"
    shown = tuple(rows) if ran else ()
    return Table(name, heading, tuple(columns), shown, len(_KINDS), tuple(note for note in notes if note))


def _program_row(place: Place, bars: Sequence[Bar], program: tuple[str, str]) -> tuple[Value, ...]:
    headroom = [place.score(bar, SPEEDUP, program[1]) for bar in best_known(place)]
    row: list[Value] = [*program, place.fact("num_edges", program[1]), *(_percent(headroom) or [None])]
    for bar in bars:
        found = place.repeats(bar, SPEEDUP, program[1])
        row.append(place.score(bar, SPEEDUP, program[1]))
        if bar.model != BEST_KNOWN:
            row += [min(found), max(found)] if found else [None, None]
    return tuple(row)


def _average_row(place: Place, bars: Sequence[Bar], kind: str) -> tuple[Value, ...]:
    known = [AVERAGE.average(kind, place.over_programs(bar, SPEEDUP)) for bar in best_known(place)]
    row: list[Value] = [AVERAGES[kind], "", None, *(_percent(known) or [None])]
    for bar in bars:
        found = [place.repeats(bar, SPEEDUP, program) for _, program in place.programs]
        ran = [one for one in found if one]
        row.append(AVERAGE.average(kind, place.over_programs(bar, SPEEDUP)))
        if bar.model != BEST_KNOWN:
            row += [AVERAGE.average(kind, [end(one) for one in ran]) for end in (min, max)]
    return tuple(row)


def _percent(speedups: Sequence[float | None]) -> list[Value]:
    """Returns what speed-ups gain, in percent."""
    return [None if one is None else 100.0 * (one - 1.0) for one in speedups]


def cost_table(place: Place) -> Table:
    """What every kind of search measured, predicted and was charged, and how it ended."""
    ranked = {model: number for number, model in enumerate(FUSION_MODELS)}

    def order(bar: Bar) -> tuple[int, int, str, float]:
        start = len(STARTS) if bar.start is None else list(STARTS).index(bar.start)
        return (start, ranked.get(bar.model, len(ranked)), bar.model, bar.minutes or 0.0)

    rows: list[tuple[Value, ...]] = []
    for bar in sorted(place.bars, key=order):
        speedup = place.mean(bar, SPEEDUP)
        if speedup is None:
            continue
        costs = (_mean_of_search(place, bar, metric) for metric in (MEASURED, SECONDS, PREDICTED))
        slower = place.mean(bar, SLOWDOWN)
        named = (bar.start, FUSION_MODELS.get(bar.model, bar.model), bar.minutes, speedup)
        rows.append((*named, None if slower is None else 100.0 * slower, *costs))
    where = f"{WHERE.get(place.split, place.split)}, {place.chip}"
    return described_table("fusion_search", rows, name=f"fusion_search_{place.name}", where=where)


def _mean_of_search(place: Place, bar: Bar, metric: str) -> float | None:
    found = [value for _, program in place.programs for value in place.repeats(bar, metric, program)]
    return sum(found) / len(found) if found else None
