"""Searches on recorded schedules: figures 4 to 9 of autotvm2018, what each arm found, what was recorded.

The figures show GFLOPS of the best schedule so far against the number of trials.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import pandas as pd
from matplotlib.artist import Artist

from costbench.metrics.measures import geometric_mean
from costbench.params import load_yaml, parse
from costbench.reports.claims.evaluation import Finding
from costbench.reports.declared_tables import fill_table
from costbench.reports.figures.canvas import PALETTE, label_panels, save
from costbench.reports.frame import number, select
from costbench.reports.page import page_figure, paragraphs
from costbench.reports.table import Table
from costbench_schedules.reports.autotvm2018.library import TARGET, compared
from costbench_schedules.reports.autotvm2018.results import BEST, TEMPLATE, Part, ScheduleResults
from costbench_schedules.reports.curves import draw_curves, in_order, panel_grid
from costbench_schedules.reports.tables import TABLES

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
    with panel_grid(len(shown)) as (plot, grid):
        lines: dict[str, Artist] = {}
        for axes, (target, name) in zip(grid.ravel(), shown, strict=False):
            lines |= draw_curves(axes, select(results.curves, target=target, workload=name), colours, 0.15)
            best = results.median(target, name, BEST, "gflops_best")
            if best is not None:
                axes.axhline(best, color="#444444", linewidth=0.8, linestyle="dotted")
                axes.set_ylim(LEAST * best, 1.04 * best)
            axes.set_xscale("log")
            axes.set_title(name if target == "native" else f"{name}\n{target}", fontsize=9.0)
        label_panels(grid, len(shown), "trials", "GFLOPS")
        labels = [figure.arms[arm] for arm in lines]
        plot.legend([*lines.values()], labels, loc="outside upper center", ncols=4, frameon=False)
        return save(plot, folder / f"autotvm2018_{figure.name}")


PAPER = "autotvm2018"
"""Short id of the paper."""
TRIALS = (25, 100, 200)
"""After which tables and headline numbers say what was found."""
COMPARED_AFTER = 100
"""Trials after which claims compare speeds."""
TO_REACH = "trials_to_95"


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
    page_figures, absent = [], []
    for figure in curve_figures():
        shown = panels(results, figure)
        if not shown:
            absent.append(figure)
            continue
        svg, _ = write_curves(results, figure, figures)
        words = {"repeats": results.curves["repeats"], "panels": len(shown), "least": LEAST}
        page_figures.append(page_figure(svg, TEMPLATE, "curves", figure=figure, **words))
    tables = [
        table
        for target in results.targets
        for table in (arms_table(results, target), workloads_table(results, target))
    ]
    text = paragraphs(
        TEMPLATE,
        "searches",
        tables=results.tables,
        processors=results.processors,
        trials=COMPARED_AFTER,
        leads=[lead for target in results.targets if (lead := _lead(results, target)) is not None],
        absent=absent,
    )
    return Part(text, tuple(page_figures), (*tables, recorded_table(results)), 1)


def _lead(results: ScheduleResults, target: str) -> tuple[str, float, int] | None:
    """Returns a target, the lead of guided over random search there, and the number of workloads.

    None where they were not both run.
    """
    searches = searches_on(results, target)
    guided, random = (
        select(searches, model=arm).set_index("program")[gflops(COMPARED_AFTER)]
        for arm in ("gbt-rank", "random")
    )
    ratios = (guided / random.reindex(guided.index)).dropna()
    return None if ratios.empty else (target, geometric_mean(ratios), len(ratios))


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
    searches = searches_on(results, target)
    rows = means_of_arms(searches).assign(workloads=searches.groupby("model")[TO_REACH].count())
    rows = rows.rename(columns={TO_REACH: "trials"}).reset_index(names="arm")
    return fill_table("schedule_arms", rows, TABLES, name=f"schedule_arms_{target}", target=target)


def workloads_table(results: ScheduleResults, target: str) -> Table:
    """Returns what each arm found for each workload after 25, 100 and 200 trials."""
    names = {"program": "workload", "model": "arm", TO_REACH: "trials"}
    rows = searches_on(results, target).rename(columns=names)
    return fill_table("schedule_found", rows, TABLES, name=f"schedule_found_{target}", target=target)


def recorded_table(results: ScheduleResults) -> Table:
    """Returns what was recorded, and how far a second measurement agrees."""
    rows = [
        asdict(facts)
        | {"best": facts.best_gflops, "median": facts.median_gflops, "fast": 100.0 * facts.fast_share}
        | {"scored": "yes" if facts.scored else "no"}
        for facts in results.tables
    ]
    return fill_table("schedule_recorded", rows, TABLES)


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
