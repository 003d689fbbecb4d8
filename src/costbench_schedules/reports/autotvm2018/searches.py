"""Searches on recorded schedules: figures 4 to 9 of autotvm2018, what each arm found, what was recorded.

The figures show GFLOPS of the best schedule so far against the number of trials.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import pandas as pd
from matplotlib.artist import Artist

from costbench.metrics.measures import geometric_mean
from costbench.params import load_yaml, parse
from costbench.reports.claims.evaluation import Finding
from costbench.reports.figures.canvas import PALETTE, label_panels, save, styled
from costbench.reports.frame import number, select
from costbench.reports.page import PageFigure
from costbench.reports.table import Column, Table
from costbench_schedules.reports.autotvm2018.library import TARGET, compared
from costbench_schedules.reports.autotvm2018.results import BEST, Part, ScheduleResults
from costbench_schedules.reports.curves import draw_curves, in_order, panel_grid

LEAST = 0.4
"""Share of the fastest speed at which the axes of speed begin."""


@dataclass(frozen=True)
class CurveFigure:
    """One of the paper's figures.

    Attributes:
        number: number of the figure in the paper.
        name: name of the file, after `autotvm2018_`.
        title: words for what is compared.
        arms: label of each arm by its name; a workload has a panel if at least two of them were run.
        needs: arm without which a workload has no panel; empty for none.
        targets: whether it is drawn for the processor's own target or for the other ones.
        note: end of the caption.
    """

    number: str
    name: str
    title: str
    arms: Mapping[str, str]
    needs: str = ""
    targets: Literal["native", "others"] = "native"
    note: str = ""


@cache
def curve_figures() -> tuple[CurveFigure, ...]:
    """Returns the figures in `figures.yaml`, in the order of the paper.

    Raises:
        ParamsError: if the data file of the package is broken.
    """
    path = Path(__file__).with_name("figures.yaml")
    return tuple(
        parse(CurveFigure, {"name": name, **entry}, where=path, field=name)
        for name, entry in load_yaml(path).items()
        if isinstance(entry, dict)
    )


def panels(results: ScheduleResults, figure: CurveFigure) -> tuple[tuple[str, str], ...]:
    """Returns the targets and workloads that a figure has panels for."""
    curves = select(results.curves, arm=list(figure.arms))
    curves = curves[(curves["target"] == "native") == (figure.targets == "native")]
    keys = []
    for (target, workload), arms in curves.groupby(["target", "workload"], sort=False)["arm"]:
        ran = set(arms)
        if len(ran) > 1 and (not figure.needs or figure.needs in ran):
            keys.append((str(target), str(workload)))
    return tuple(keys)


def write_curves(results: ScheduleResults, figure: CurveFigure, folder: Path) -> tuple[Path, ...]:
    """Draws the curves of the figure's arms, a panel for each workload.

    Writes `autotvm2018_<name>.svg` and `.png`; returns the paths.

    Raises:
        DataError: if a file cannot be written.
    """
    shown = panels(results, figure)
    colours = dict(zip(figure.arms, PALETTE, strict=False))
    with styled():
        plot, grid = panel_grid(len(shown))
        lines: dict[str, Artist] = {}
        for axes, (target, name) in zip(grid.ravel(), shown, strict=False):
            lines |= draw_curves(axes, select(results.curves, target=target, workload=name), colours, 0.15)
            best = results.median(target, name, BEST, "gflops_best")
            if best is not None:
                axes.axhline(best, color="#444444", linewidth=0.8, linestyle="dotted")
                axes.set_ylim(LEAST * best, 1.04 * best)
            axes.set_xscale("log")
            axes.set_title(name if target == "native" else f"{name}, {target}", fontsize=9.0)
        label_panels(grid, len(shown), "trials", "GFLOPS")
        labels = [figure.arms[arm] for arm in lines]
        plot.legend([*lines.values()], labels, loc="outside upper center", ncols=4, frameon=False)
        return save(plot, folder / f"autotvm2018_{figure.name}")


PAPER = "autotvm2018"
"""Short id of the paper."""
TRIALS = (100, 200, 400)
"""After which tables and headline numbers say what was found."""
TO_REACH = "trials_to_95"
_REACHED = "trials to 95%"


def gflops(trials: int) -> str:
    """Returns the metric of the speed after that number of trials."""
    return f"gflops_{trials}"


def searches_part(results: ScheduleResults, figures: Path) -> Part | None:
    """Returns figures 4 to 9 and the tables; None without searches.

    Raises:
        DataError: if a figure cannot be written.
    """
    if results.curves.empty:
        return None
    counts = results.curves["repeats"]
    repeats = " to ".join(map(str, dict.fromkeys((counts.min(), counts.max()))))
    page_figures, absent = [], []
    for figure in curve_figures():
        shown = panels(results, figure)
        if not shown:
            absent.append(f"{figure.number} ({figure.title})")
            continue
        svg, _ = write_curves(results, figure, figures)
        caption = (
            f"Ours of autotvm2018's figure {figure.number}, {figure.title}: GFLOPS of the fastest schedule "
            f"so far, measured again, against trials, median over {repeats} repeats, band from the lower to "
            "the upper quartile; dotted: what the fastest of all is expected to have when measured again. "
            f"Speeds below {100 * LEAST:.0f}% of it are cut off. {figure.note}"
        )
        alt = f"Curves of GFLOPS against trials, a panel for each of {len(shown)} workloads: {figure.title}."
        page_figures.append(PageFigure(svg, alt, caption.strip()))
    tables = [
        table
        for target in results.targets
        for table in (arms_table(results, target), workloads_table(results, target))
    ]
    return Part(_text(results, absent), tuple(page_figures), (*tables, recorded_table(results)), 1)


def _text(results: ScheduleResults, absent: list[str]) -> tuple[str, ...]:
    processors = " and ".join(results.processors)
    configs = sum(table.configs for table in results.tables)
    sentences = [
        f"Schedules of {len({table.workload for table in results.tables})} tensor operators, built by TVM "
        f"and timed on {processors}, one thread: {configs:,} configurations of {len(results.tables)} "
        "sub-spaces. Searches replay their first measurements, which makes repeats cheap; a trial is one "
        "measurement (two where an arm is marked x2). What a search chooses is scored by a second "
        "measurement: the first is the least of many, and too fast on average. A schedule that was measured "
        "once is taken to change as the median of those near it that were measured twice."
    ]
    left_out = [f"{table.workload} for {table.target}" for table in results.tables if not table.scored]
    if left_out:
        sentences.append(
            f"Not searched: {', '.join(left_out)}, where the schedule that was measured fastest did not have "
            "95% of its expected speed again, so that there is no speed to be reached."
        )
    shares = sorted(100.0 * table.fast_share for table in results.tables)
    if shares:
        sentences.append(
            f"The sub-spaces were chosen to hold good schedules: {shares[0]:.1f}% to {shares[-1]:.1f}% of a "
            "table have at least 95% of the fastest speed, so random search finds one soon, and there is "
            "little left to gain."
        )
    noisy = [f"{table.workload} for {table.target}" for table in results.tables if not table.trusted]
    if noisy:
        sentences.append(
            f"Second measurements agree too little (Kendall's τ below 0.9) for {', '.join(noisy)}: there "
            "differences of a few percent are noise."
        )
    for target in results.targets:
        sentence = _finding(results, target)
        if sentence:
            sentences.append(sentence)
    if absent:
        sentences.append(f"Not run in this profile: figures {'; '.join(absent)}.")
    return tuple(sentences)


def _finding(results: ScheduleResults, target: str) -> str:
    """Returns a sentence on random and guided search where both were run, at the first number of trials."""
    searches = searches_on(results, target)
    guided, random = (
        select(searches, model=arm).set_index("program")[gflops(TRIALS[0])] for arm in ("gbt-rank", "random")
    )
    ratios = (guided / random.reindex(guided.index)).dropna()
    if ratios.empty:
        return ""
    return (
        f"After {TRIALS[0]} trials on {target}, the search that boosted trees guide has found schedules "
        f"{geometric_mean(ratios):.3f} times as fast as random search has, geometric mean over {len(ratios)} "
        "workloads."
    )


def searches_on(results: ScheduleResults, target: str) -> pd.DataFrame:
    """Returns medians over repeats of the searches on a target.

    Returns:
        a row for each workload and arm, in the order of tables: `program`, `model`, metrics, `best`, the
        fastest recorded speed, and `share_N`, percent of it after N trials.
    """
    medians = results.medians.reindex(columns=[*map(gflops, TRIALS), TO_REACH, "gflops_best"])
    medians = select(medians.reset_index(), chip=target, program=results.workloads(target))
    best = select(medians, model=BEST).set_index("program")["gflops_best"]
    searches = medians[medians["model"] != BEST].assign(best=medians["program"].map(best))
    for n in TRIALS:
        searches[f"share_{n}"] = 100.0 * searches[gflops(n)] / searches["best"]
    keys = sorted(
        zip(searches["program"], searches["model"], strict=True),
        key=lambda key: (in_order(key[0]), _arm_order(key[1])),
    )
    return searches.set_index(["program", "model"]).loc[keys].reset_index()


def _arm_order(arm: str) -> tuple[int, str]:
    """Returns a sort key of arms: those of figures in their order, then others."""
    known = [*dict.fromkeys(arm for figure in curve_figures() for arm in figure.arms)]
    return known.index(arm) if arm in known else len(known), arm


def means_of_arms(searches: pd.DataFrame) -> pd.DataFrame:
    """Returns geometric means over workloads: a row for each arm, in order, and columns as `searches_on`.

    A mean is NaN where there are no values, or one is 0.
    """
    means = searches.groupby("model")[[*(f"share_{n}" for n in TRIALS), TO_REACH]].agg(_geometric_mean)
    return means.loc[sorted(means.index, key=_arm_order)]


def _geometric_mean(values: pd.Series[float]) -> float:
    known = values.dropna()
    return math.nan if known.empty else geometric_mean(known)


def arms_table(results: ScheduleResults, target: str) -> Table:
    """Returns what each arm reached on average over its workloads."""
    columns = (
        Column("arm", "Search"),
        Column("workloads", "Workloads", count=True),
        *(Column(f"share_{n}", f"{n}", "Share of the fastest recorded (%), after trials", 1) for n in TRIALS),
        Column("trials", _REACHED, "", 1),
    )
    searches = searches_on(results, target)
    reached = searches.groupby("model")[TO_REACH].count()
    rows = tuple(
        (str(arm), int(reached[arm]), *map(number, means))
        for arm, *means in means_of_arms(searches).itertuples()
    )
    notes = (
        "Medians over repeats, geometric means over workloads. Arms that were run on other workloads cannot "
        "be compared by their means; the claims are decided on the workloads that both sides share. "
        f"{_REACHED}: until a schedule of at least 95% of the fastest speed is found; one more than all "
        "trials where none was.",
    )
    title = f"Searches for schedules on {target}"
    return Table(f"schedule_arms_{target}", title, columns, rows, 0, notes)


def workloads_table(results: ScheduleResults, target: str) -> Table:
    """Returns what each arm found for each workload after 100, 200 and 400 trials."""
    columns = (
        Column("workload", "Workload"),
        Column("arm", "Search"),
        *(Column(gflops(n), f"{n}", "GFLOPS after trials", 1) for n in TRIALS),
        Column("trials", _REACHED, "", 1),
        Column("best", "GFLOPS, fastest recorded", "", 1),
    )
    shown = searches_on(results, target)[["program", "model", *map(gflops, TRIALS), TO_REACH, "best"]]
    rows = tuple(
        (workload, arm, *map(number, values)) for workload, arm, *values in shown.itertuples(index=False)
    )
    title = f"Fastest schedule found on {target}, median over repeats"
    return Table(f"schedule_found_{target}", title, columns, rows)


def recorded_table(results: ScheduleResults) -> Table:
    """Returns what was recorded, and how far a second measurement agrees."""
    columns = (
        Column("target", "Target"),
        Column("workload", "Workload"),
        Column("configs", "Configurations", count=True),
        Column("failed", "Failed", count=True),
        Column("best", "fastest", "GFLOPS", 1),
        Column("median", "median", "GFLOPS", 1),
        Column("fast", "at least 95% of the fastest (%)", "", 1),
        Column("tau", "Kendall's τ", "Measured again", 3),
        Column("spread", "ratio, 90th percentile", "Measured again", 3),
        Column("scored", "searches are scored", "Measured again"),
        Column("processor", "Processor"),
    )
    rows = tuple(
        (
            *(facts.target, facts.workload, facts.configs, facts.failed, facts.best_gflops),
            *(facts.median_gflops, 100.0 * facts.fast_share, facts.tau, facts.spread),
            *("yes" if facts.scored else "no", facts.processor),
        )
        for facts in results.tables
    )
    return Table("schedule_recorded", "Recorded schedules", columns, rows)


def flat_schedules(results: ScheduleResults, findings: Sequence[Finding] = ()) -> dict[str, float]:
    """Returns headline numbers by key, medians over repeats; none without searches:

    - `schedule/{target}/{workload}/best_gflops`: of the fastest schedule that was recorded;
    - `schedule/native/{workload}/library_gflops`: of the vendor library;
    - `schedule/{target}/{workload}/{arm}/gflops_{trials}`, `.../trials_to_95`;
    - `schedule/{target}/all/{arm}/share_{trials}`: percent of the fastest speed, geometric mean over
      workloads;
    - `schedule/claims/{name}/effect`, `.../ci_low`, `.../ci_high`: of the claims of autotvm2018.
    """
    numbers: dict[str, float | None] = {}
    for finding in () if results.curves.empty else findings:
        if finding.claim.paper == PAPER:
            key = f"schedule/claims/{finding.claim.id.partition('.')[2]}"
            numbers |= {
                f"{key}/effect": finding.effect,
                f"{key}/ci_low": finding.low,
                f"{key}/ci_high": finding.high,
            }
    for target in results.targets:
        searches = searches_on(results, target)
        for search in searches.to_dict("records"):
            key = f"schedule/{target}/{search['program']}"
            numbers[f"{key}/best_gflops"] = search["best"]
            for metric in (*map(gflops, TRIALS), TO_REACH):
                numbers[f"{key}/{search['model']}/{metric}"] = search[metric]
        for arm, means in means_of_arms(searches).iterrows():
            numbers |= {f"schedule/{target}/all/{arm}/share_{n}": means[f"share_{n}"] for n in TRIALS}
    for name, (_, library) in compared(results).items():
        numbers[f"schedule/{TARGET}/{name}/library_gflops"] = library
    known = {key: number(value) for key, value in numbers.items()}
    return {key: value for key, value in known.items() if value is not None}
