"""Tile sizes in the compiler and in the autotuner as tables: speed-ups per program, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence

from costbench.metrics.measures import AVERAGES, Measure
from costbench.reports.described_table import described_table
from costbench.reports.results import SPLIT_NAMES
from costbench.reports.search.figures import FIGURES
from costbench.reports.search.results import (
    BEST_KNOWN,
    CANDIDATES,
    EXHAUSTIVE,
    FIGURE_4,
    FUSION_MODELS,
    GAINS,
    MEASURED,
    PREDICTED,
    SECONDS,
    SLOWDOWN,
    SPEEDUP,
    STARTS,
    TILE_MODELS,
    TOP_K,
    Bar,
    Place,
    absent,
    best_known,
    figure_5,
    key,
    there,
    title,
)
from costbench.reports.table import Column, Table, Value

WHERE = {**SPLIT_NAMES, GAINS: "programs that gain most"}
_LEARNED = Bar("learned", f"top{TOP_K}")
_KINDS = ("median", "geometric_mean", "mean")
AVERAGE = Measure(SPEEDUP, SPEEDUP, "speed-up", "error", 3, "higher")
"""Of speed-ups over programs."""


def figure_4_table(place: Place) -> Table:
    """The bars of lpm2021's figure 4 as numbers, per program, and the cost of measuring ten tile sizes."""
    bars = there(FIGURE_4, place)
    columns = [Column("application", "Application"), Column("program", "Program")]
    columns.append(Column("tile_sizes", "Tile sizes", count=True))
    columns.append(Column("candidates", "Candidates", count=True))
    columns.append(Column("headroom", "Headroom (%)", decimals=1))
    group = "Speed-up over the analytical model's choice"
    for bar in bars:
        contest = "top" if bar.top_k == TOP_K else ""
        columns.append(Column(key(bar), title(bar), group, 3, "higher", contest))
    costs = f"Learned {TOP_K} against exhaustive"
    columns += [
        Column("slowdown_percent", "slower by (%)", costs, 2),
        Column("fewer_seconds", "hardware time, times less", costs, 1),
    ]
    rows = [_program_row(place, bars, program) for program in place.programs]
    rows += [_average_row(place, bars, kind) for kind in _KINDS]
    name, where = f"lpm2021_figure4_{place.name}", WHERE.get(place.split, place.split)
    heading = f"Figure 4 of lpm2021 with our models, {where}, {place.chip}"
    notes = [
        "Runtime of the program with the tile sizes that the analytical model chooses, over its runtime with "
        f"those chosen. {title(_LEARNED)}: the {TOP_K} tile sizes of each kernel that the model likes best "
        "are measured, the fastest is taken; 'in the compiler': its first choice, nothing is measured. "
        "Alternating: best candidates of the learned and the analytical model in turn. Random: median over "
        "repeats. Exhaustive measures all tile sizes that are legal, models rank the candidates among them. "
        "Headroom: what exhaustive gains.",
        _sampled(place),
        absent(FIGURE_4, place),
    ]
    return Table(name, heading, tuple(columns), tuple(rows), len(_KINDS), tuple(n for n in notes if n))


def _sampled(place: Place) -> str:
    """Returns a sentence on kernels with too many tile sizes to measure all; empty where there are none."""
    sampled = sum(place.fact("num_kernels_sampled", program) or 0.0 for _, program in place.programs)
    return (
        f"Of {sampled:.0f} kernels, whose spaces are too large, exhaustive measures the candidates."
        if sampled
        else ""
    )


def _program_row(place: Place, bars: tuple[Bar, ...], program: tuple[str, str]) -> tuple[Value, ...]:
    slowdown, best = place.score(_LEARNED, SLOWDOWN, program[1]), place.score(EXHAUSTIVE, SPEEDUP, program[1])
    own, other = (place.score(bar, SECONDS, program[1]) for bar in (_LEARNED, EXHAUSTIVE))
    return (
        *program,
        place.fact("num_tiles", program[1]),
        place.fact("num_candidates", program[1]),
        None if best is None else 100.0 * (best - 1.0),
        *(place.score(bar, SPEEDUP, program[1]) for bar in bars),
        None if slowdown is None else 100.0 * slowdown,
        other / own if own and other is not None else None,
    )


def _average_row(place: Place, bars: tuple[Bar, ...], kind: str) -> tuple[Value, ...]:
    best = AVERAGE.average(kind, place.over_programs(EXHAUSTIVE, SPEEDUP))
    row: list[Value] = [AVERAGES[kind], "", None, None, None if best is None else 100.0 * (best - 1.0)]
    row += [AVERAGE.average(kind, place.over_programs(bar, SPEEDUP)) for bar in bars]
    slowdowns = place.over_programs(_LEARNED, SLOWDOWN)
    # Many are zero: there is no geometric mean.
    slowdown = None if kind == "geometric_mean" else AVERAGE.average(kind, slowdowns)
    total = place.fewer_seconds(_LEARNED, EXHAUSTIVE) if kind == "mean" else None
    return (*row, None if slowdown is None else 100.0 * slowdown, total)


def budget_table(place: Place) -> Table:
    """What every way of choosing measured, was charged, and lost against exhaustive search."""
    rows = [row for bar in _ordered(place) if (row := _budget_row(place, bar)) is not None]
    where = f"{WHERE.get(place.split, place.split)}, {place.chip}"
    return described_table("tile_search", rows, name=f"tile_search_{place.name}", where=where)


def _ordered(place: Place) -> list[Bar]:
    """Exhaustive first, then model by model, in the compiler and by k."""
    rank = {model: number for number, model in enumerate((EXHAUSTIVE.model, CANDIDATES.model, *TILE_MODELS))}
    return sorted(place.bars, key=lambda bar: (rank.get(bar.model, len(rank)), bar.model, bar.top_k or 0))


def _budget_row(place: Place, bar: Bar) -> tuple[Value, ...] | None:
    speedup = place.mean(bar, SPEEDUP)
    if speedup is None:
        return None
    slowdowns = place.over_programs(bar, SLOWDOWN)
    named = Bar(bar.model, "all")
    k = {"all": "all", "compiler": "none"}.get(bar.budget, str(bar.top_k))
    return (
        title(named),
        k,
        speedup,
        100.0 * sum(slowdowns) / len(slowdowns) if slowdowns else None,
        100.0 * max(slowdowns) if slowdowns else None,
        sum(place.over_programs(bar, MEASURED)),
        sum(place.over_programs(bar, SECONDS)),
        place.fewer_seconds(bar, EXHAUSTIVE),
    )


_FUSION_KINDS = ("median", "geometric_mean", "mean")
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
    rows = [_fusion_program_row(place, bars, program) for program in place.programs]
    rows += [_fusion_average_row(place, bars, kind) for kind in _FUSION_KINDS]
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
    return Table(
        name, heading, tuple(columns), shown, len(_FUSION_KINDS), tuple(note for note in notes if note)
    )


def _fusion_program_row(place: Place, bars: Sequence[Bar], program: tuple[str, str]) -> tuple[Value, ...]:
    headroom = [place.score(bar, SPEEDUP, program[1]) for bar in best_known(place)]
    row: list[Value] = [*program, place.fact("num_edges", program[1]), *(_percent(headroom) or [None])]
    for bar in bars:
        found = place.repeats(bar, SPEEDUP, program[1])
        row.append(place.score(bar, SPEEDUP, program[1]))
        if bar.model != BEST_KNOWN:
            row += [min(found), max(found)] if found else [None, None]
    return tuple(row)


def _fusion_average_row(place: Place, bars: Sequence[Bar], kind: str) -> tuple[Value, ...]:
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
