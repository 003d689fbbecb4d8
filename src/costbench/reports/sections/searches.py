"""The page about tile and fusion searches: figures, speed-ups and costs as tables, claims about them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from costbench.reports.claims.evaluation import NOT_EVALUATED, Finding
from costbench.reports.declarations import ColumnDeclaration, declaration_of
from costbench.reports.declared_tables import fill_table, make_table
from costbench.reports.figures.search_curves import (
    SearchPath,
    mean_path,
    paths_from_start,
    seconds_to_reach,
    write_path_figure,
)
from costbench.reports.figures.searches import (
    FIGURES,
    has_curves,
    write_fusion_figure,
    write_tile_figure,
    write_top_k_figure,
)
from costbench.reports.inputs import ReportData
from costbench.reports.machine_searches import TITLES, search_gains
from costbench.reports.page import Page, PageFigure, Section, page_figures, sentence
from costbench.reports.papers.printed import searches_of_paper
from costbench.reports.scores import MIN_PROGRAMS
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
    Searches,
    SearchResults,
    absent,
    bar_key,
    bars_with_results,
    best_known,
    figure_5,
    title,
)
from costbench.reports.sections.claims import findings_frame
from costbench.reports.table import Table, Value
from costbench.tasks import LEARNED, labels_of

_PAGE = "searches"
"""Name of the page and of the template of its sections."""
_ON_PAGE = Page(_PAGE, "Autotuners")
_NAMED = ("hardware", "model and hardware", "analytical and hardware")
"""Fusion searches whose means stand in the text."""
_LEARNED = Bar("learned", f"top{TOP_K}")


def search_sections(data: ReportData) -> Iterator[Section]:
    """Yields the parts about tile sizes and fusion; those without searches are left out.

    Raises:
        DataError: if a figure cannot be written.
        ParamsError: if the package's data of the papers are broken.
    """
    for task, make_section in (("tile", _tile_section), ("fusion", _fusion_section)):
        if data.front_searches.of(task):
            section = make_section(data)
            shown = tuple(table for table in section.tables if table.rows)
            # What the papers say comes first, and is not folded.
            folded = tuple(table.name for table in shown if table.name != section.tables[0].name)
            yield replace(section, page=_ON_PAGE, tables=shown, folded=folded)


def _rows_of_figures(searches: Searches, task: str) -> list[list[SearchResults]]:
    """Returns results to show side by side: a split's; beside the first split those that gain most."""
    rows = []
    for results in searches.of(task):
        beside = searches.beside(results)
        rows.append([results] if beside is None else [results, beside])
    shown = {results.name for row in rows for results in row[1:]}
    return [row for row in rows if row[0].name not in shown]


def _tile_section(data: ReportData) -> Section:
    all_results = data.front_searches.of("tile")
    drawn: list[PageFigure] = []
    for row in _rows_of_figures(data.front_searches, "tile"):
        words = {
            "where": row[0].where,
            "k": TOP_K,
            "absent": absent(FIGURE_4, *row),
            "curves": has_curves(row),
        }
        drawn += page_figures(write_tile_figure(row, data.figures), _PAGE, "tile", **words)
        drawn += page_figures(write_top_k_figure(row, data.figures), _PAGE, "top_k", **words)
    tables = [_claims_table("tile", data.printed_findings)]
    for results in all_results:
        tables += [figure_4_table(results), budget_table(results)]
    return Section(
        anchor="tile-search",
        title="Tile sizes: in the compiler and in the autotuner",
        label="Tile autotuner",
        paragraphs=tuple(filter(None, map(_tile_finding, all_results))),
        figures=tuple(drawn),
        tables=tuple(tables),
    )


def _tile_finding(results: SearchResults) -> str:
    """Returns a sentence, computed from the numbers, on the cost and gain of ten measurements."""
    numbers = {
        "fewer": results.fewer_seconds(_LEARNED, EXHAUSTIVE),
        "slowdown": results.mean(_LEARNED, SLOWDOWN),
        "speedup": results.mean(_LEARNED, SPEEDUP),
    }
    if None in numbers.values():
        return ""
    return sentence(
        _PAGE,
        "tile_finding",
        where=results.where,
        k=TOP_K,
        analytical=results.mean(Bar("analytical", _LEARNED.budget), SPEEDUP),
        best=results.mean(EXHAUSTIVE, SPEEDUP),
        **numbers,
    )


def _fusion_section(data: ReportData) -> Section:
    all_results = data.front_searches.of("fusion")
    programs = frozenset(data.front_searches.frame["program"])
    paths = [path for path in data.front_search_paths if path.program in programs]
    drawn: list[PageFigure] = []
    for row in _rows_of_figures(data.front_searches, "fusion"):
        for paper in FIGURES:
            drawn += page_figures(
                write_fusion_figure(row, paper, data.figures),
                _PAGE,
                "fusion",
                paper=paper,
                number=FIGURES[paper].removeprefix("figure"),
                where=row[0].where,
                curves=has_curves(row),
                starts={words: absent(figure_5(start, paper), *row) for start, words in STARTS.items()},
                known=any(best_known(results) for results in row),
                minute=paper == "lpm2021",
            )
        for results in row:
            svgs = write_path_figure(paths, results, data.figures)
            drawn += page_figures(svgs, _PAGE, "path", where=results.where)
    tables = [_claims_table("fusion", data.printed_findings)]
    for results in all_results:
        tables += [start_table(results, paper, start) for paper in FIGURES for start in STARTS]
        tables.append(cost_table(results))
    budgets = sentence(_PAGE, "budgets", papers=[searches_of_paper(paper) for paper in FIGURES])
    findings = (_fusion_finding(results, paths) for results in all_results)
    return Section(
        anchor="fusion-search",
        title="Fusion: searches with and without a model",
        label="Fusion autotuner",
        paragraphs=tuple(filter(None, (budgets, *findings))),
        figures=tuple(drawn),
        tables=tuple(tables),
    )


def _fusion_finding(results: SearchResults, paths: Sequence[SearchPath]) -> str:
    """Returns sentences on the gain after one and ten minutes, and how long hardware alone needs for it."""
    starts = {}
    for start, words in STARTS.items():
        means = {
            model: [results.mean(Bar(model, f"{start}-{minutes}m"), SPEEDUP) for minutes in (1, 10)]
            for model in _NAMED
        }
        means = {model: of_model for model, of_model in means.items() if None not in of_model}
        if "hardware" in means and "model and hardware" in means:
            starts[words] = {"means": means, "minutes": _minutes_alone(results, paths, start)}
    if not starts:
        return ""
    return sentence(
        _PAGE,
        "fusion_finding",
        where=results.where,
        starts=starts,
        known=next((results.mean(bar, SPEEDUP) for bar in best_known(results)), None),
        predicted=results.mean(Bar("model and hardware", "default-10m"), PREDICTED),
    )


def _minutes_alone(results: SearchResults, paths: Sequence[SearchPath], start: str) -> str | None:
    """Returns after how many minutes hardware alone reaches what the model reaches after one."""
    by_model = paths_from_start(paths, results, start)
    helped, alone = by_model.get("model and hardware"), by_model.get("hardware")
    if not helped or not alone:
        return None
    seconds, means = mean_path(helped)
    after_one = float(means[max(0, int((seconds <= 60.0).sum()) - 1)])
    needed = seconds_to_reach(alone, after_one)
    return f"more than {max(seconds) / 60.0:g}" if needed is None else f"{needed / 60.0:.1f}"


def _claims_table(task: str, findings: Sequence[Finding]) -> Table:
    shown = [finding for finding in findings if (finding.claim.metric, finding.claim.task) == (SPEEDUP, task)]
    return fill_table(
        "search_claims",
        findings_frame(shown),
        name=f"{task}_search_claims",
        notes=[
            sentence(_PAGE, "lacking", claim=finding.claim.id, missing=finding.missing)
            for finding in shown
            if finding.verdict == NOT_EVALUATED
        ],
        searches=labels_of(task).searches,
        programs=MIN_PROGRAMS,
    )


def machine_searches_section(data: ReportData) -> Section | None:
    """Returns the gains of searches and a row for each of them; None where there are none.

    Raises:
        DataError: for a damaged file of results.
    """
    gains, rows = search_gains(data.inputs.params.machine_searches)
    if gains.empty:
        return None
    kinds = gains.assign(start=gains["start"].replace(TITLES))
    by_program = rows.assign(
        start=rows["start"].astype(str).replace(TITLES),
        own_ms=rows["own_ns"] / 1e6,
        chosen_ms=rows["chosen_ns"] / 1e6,
    )
    tables = (fill_table("machine_searches", kinds), fill_table("machine_searches_programs", by_program))
    return Section(
        anchor="machine-search",
        title="Fusion on a machine that exists: searches with and without a model",
        label="Fusion autotuner, real machine",
        page=_ON_PAGE,
        paragraphs=(sentence(_PAGE, "machine", programs=rows["program"].nunique()),),
        tables=tables,
        folded=(tables[1].name,),
    )


def flat_searches(searches: Searches) -> dict[str, float]:
    """Returns headline numbers of all searches.

    Keys are `autotune/<task>/<split>/<chip>/<program>/<way>/<number>`, with `all` for all programs.
    """
    flat: dict[str, float | None] = {}
    for results in searches.results:
        for bar in results.bars:
            flat |= _tile(results, bar) if LEARNED[results.task].ranks_decisions else _fusion(results, bar)
    return {key: value for key, value in flat.items() if value is not None}


def _key(results: SearchResults, bar: Bar, program: str = "all") -> str:
    way = f"{bar.model}/{bar.budget}"
    if bar.start is not None:
        way = f"{bar.start}/{bar.model}/{bar.minutes:g}m"
    return f"autotune/{results.task}/{results.split}/{results.chip}/{program}/{way}".replace(" ", "_")


def _tile(results: SearchResults, bar: Bar) -> dict[str, float | None]:
    key = _key(results, bar)
    numbers = {
        f"{key}/speedup_mean": results.mean(bar, SPEEDUP),
        f"{key}/slowdown_mean": results.mean(bar, SLOWDOWN),
        f"{key}/num_measured_total": sum(results.over_programs(bar, MEASURED)),
        f"{key}/hardware_seconds_total": sum(results.over_programs(bar, SECONDS)),
        f"{key}/fewer_hardware_seconds": results.fewer_seconds(bar, EXHAUSTIVE),
    }
    if bar in (*FIGURE_4, CANDIDATES):
        for _, program in results.programs:
            for metric in (SPEEDUP, SLOWDOWN):
                numbers[f"{_key(results, bar, program)}/{metric}"] = results.score(bar, metric, program)
    return numbers


def _fusion(results: SearchResults, bar: Bar) -> dict[str, float | None]:
    metrics = (SPEEDUP, SLOWDOWN, MEASURED, SECONDS, PREDICTED)
    numbers = {f"{_key(results, bar)}/{metric}_mean": results.mean(bar, metric) for metric in metrics}
    for _, program in results.programs:
        repeats = results.repeats(bar, SPEEDUP, program)
        if repeats:
            speedup = f"{_key(results, bar, program)}/speedup"
            numbers[f"{speedup}_median"] = results.score(bar, SPEEDUP, program)
            numbers |= {f"{speedup}_min": min(repeats), f"{speedup}_max": max(repeats)}
    return numbers


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
        words={"where": results.where},
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
        row: dict[str, object] = {"model": title(Bar(bar.model, "all")), "speedup": speedup}
        row["top_k"] = {"all": "all", "compiler": "none"}.get(bar.budget, str(bar.top_k))
        if slowdowns:
            row["slowdown_percent"] = 100.0 * (sum(slowdowns) / len(slowdowns))
            row["worst_percent"] = 100.0 * max(slowdowns)
        row["measured"] = sum(results.over_programs(bar, MEASURED))
        row["seconds"] = sum(results.over_programs(bar, SECONDS))
        row["fewer_seconds"] = results.fewer_seconds(bar, EXHAUSTIVE)
        rows.append(row)
    return fill_table("tile_search", rows, name=f"tile_search_{results.name}", where=results.where)


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
        "where": results.where,
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
        row: dict[str, object] = {"start": bar.start, "minutes": bar.minutes, "speedup": speedup}
        row["search"] = FUSION_MODELS.get(bar.model, bar.model)
        row["slowdown_percent"] = None if slower is None else 100.0 * slower
        for column, metric in (("measured", MEASURED), ("seconds", SECONDS), ("predicted", PREDICTED)):
            values = [v for _, program in results.programs for v in results.repeats(bar, metric, program)]
            row[column] = sum(values) / len(values) if values else None
        rows.append(row)
    return fill_table("fusion_search", rows, name=f"fusion_search_{results.name}", where=results.where)
