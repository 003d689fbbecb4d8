"""Searches as tables: speed-ups per program, as in the papers' figures, and what each search cost."""

from __future__ import annotations

from dataclasses import replace

from costbench.reports.declarations import ColumnDeclaration, declaration_of
from costbench.reports.declared_tables import fill_table, make_table
from costbench.reports.figures.searches import FIGURES
from costbench.reports.searches import (
    CANDIDATES,
    EXHAUSTIVE,
    FIGURE_4,
    FUSION_MODELS,
    MEASURED,
    PREDICTED,
    SECONDS,
    SLOWDOWN,
    SPEEDUP,
    STARTS,
    TILE_MODELS,
    TOP_K,
    Bar,
    SearchResults,
    absent,
    bar_key,
    bars_with_results,
    best_known,
    figure_5,
    title,
)
from costbench.reports.table import Table, Value

_LEARNED = Bar("learned", f"top{TOP_K}")
_LETTERS = {"default": "a", "random": "b"}


def figure_4_table(results: SearchResults) -> Table:
    """Returns the bars of lpm2021's figure 4 as numbers, per program, and what ten measurements cost.

    Args:
        results: searches for tile sizes.
    """
    fewer: dict[tuple[str, ...], Value] = {("mean",): results.fewer_seconds(_LEARNED, EXHAUSTIVE)}
    for pair in results.programs:
        seconds, others = (results.score(bar, SECONDS, pair[1]) for bar in (_LEARNED, EXHAUSTIVE))
        fewer[pair] = others / seconds if seconds and others is not None else None
    sampled = sum(results.fact("num_kernels_sampled", program) or 0.0 for _, program in results.programs)
    note = f"Of {sampled:.0f} kernels, whose spaces are too large, exhaustive measures the candidates."
    notes = (note if sampled else "", absent(FIGURE_4, results))
    return make_table(
        declaration_of("lpm2021_figure4", f"lpm2021_figure4_{results.name}", notes),
        results.frame,
        words={"where": results.title},
        rows=results.programs,
        numbers={"fewer_seconds": fewer},
    )


def budget_table(results: SearchResults) -> Table:
    """Returns what each way of choosing tile sizes measured, was charged, and lost against exhaustive search.

    Exhaustive search comes first, then model by model, in the compiler and by k.
    """
    order = (EXHAUSTIVE.model, CANDIDATES.model, *TILE_MODELS)
    bars = sorted(
        results.bars, key=lambda bar: ((*order, bar.model).index(bar.model), bar.model, bar.top_k or 0)
    )
    rows: list[dict[str, object]] = []
    for bar in bars:
        speedup, slowdowns = results.mean(bar, SPEEDUP), results.over_programs(bar, SLOWDOWN)
        if speedup is None:
            continue
        row: dict[str, object] = {"model": title(Bar(bar.model, "all")), "speedup": speedup}
        row["top_k"] = {"all": "all", "compiler": "none"}.get(bar.budget, str(bar.top_k))
        if slowdowns:
            row["slowdown_percent"] = 100.0 * (sum(slowdowns) / len(slowdowns))
            row["worst_percent"] = 100.0 * max(slowdowns)
        row["measured"] = sum(results.over_programs(bar, MEASURED))
        row["seconds"] = sum(results.over_programs(bar, SECONDS))
        row["fewer_seconds"] = results.fewer_seconds(bar, EXHAUSTIVE)
        rows.append(row)
    return fill_table("tile_search", rows, name=f"tile_search_{results.name}", where=results.title)


def start_table(results: SearchResults, paper: str, start: str) -> Table:
    """Returns the speed-up over the default configuration per program, from one start: median and range.

    Args:
        results: searches for fusion configurations.
        paper: paper whose minutes of hardware are shown: `lpm2021` (figure 5) or `lpm2020` (figure 4).
        start: `default` or `random`.

    Returns:
        a table without rows if none of its searches was run.
    """
    name = f"{paper}_{FIGURES[paper]}{_LETTERS[start]}_{results.name}"
    declared = declaration_of("fusion_starts", name, (absent(figure_5(start, paper), results),))
    columns: list[ColumnDeclaration] = []
    bars, best = bars_with_results(figure_5(start, paper), results), best_known(results)
    for bar in (*bars, *best):
        median = ColumnDeclaration(
            bar_key(bar),
            "median",
            title(bar),
            filter={"model": bar.model, "budget": bar.budget, "metric": SPEEDUP},
            over_seeds="median",
            decimals=3,
            better="higher",
            highlight="" if bar in best else f"{bar.minutes:g}",
        )
        columns.append(median)
        if bar not in best:
            lowest = replace(
                median, key=f"{bar_key(bar)}_lowest", header="lowest", over_seeds="min", highlight=""
            )
            highest = replace(lowest, key=f"{bar_key(bar)}_highest", header="highest", over_seeds="max")
            columns += [lowest, highest]
    number = FIGURES[paper].removeprefix("figure")
    repeats = max((len(results.repeats(b, SPEEDUP, p)) for b in bars for _, p in results.programs), default=0)
    words = {
        "paper": paper,
        "figure": f"{number}{_LETTERS[start]}",
        "start": STARTS[start],
        "where": results.title,
    }
    table = make_table(
        replace(declared, columns=(*declared.columns, *columns)),
        results.frame,
        words=words | {"repeats": repeats},
        rows=results.programs,
    )
    return table if bars else replace(table, rows=())


def cost_table(results: SearchResults) -> Table:
    """Returns what every kind of fusion search measured, predicted and was charged, and how it ended."""
    models, starts = list(FUSION_MODELS), list(STARTS)

    def rank(bar: Bar) -> tuple[int, int, str, float]:
        start = len(starts) if bar.start is None else starts.index(bar.start)
        return start, (*models, bar.model).index(bar.model), bar.model, bar.minutes or 0.0

    rows: list[dict[str, object]] = []
    for bar in sorted(results.bars, key=rank):
        speedup, slower = results.mean(bar, SPEEDUP), results.mean(bar, SLOWDOWN)
        if speedup is None:
            continue
        row: dict[str, object] = {"start": bar.start, "minutes": bar.minutes, "speedup": speedup}
        row["search"] = FUSION_MODELS.get(bar.model, bar.model)
        row["slowdown_percent"] = None if slower is None else 100.0 * slower
        for column, metric in (("measured", MEASURED), ("seconds", SECONDS), ("predicted", PREDICTED)):
            values = [v for _, program in results.programs for v in results.repeats(bar, metric, program)]
            row[column] = sum(values) / len(values) if values else None
        rows.append(row)
    return fill_table("fusion_search", rows, name=f"fusion_search_{results.name}", where=results.title)
