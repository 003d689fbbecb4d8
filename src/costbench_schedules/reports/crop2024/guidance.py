"""Searches of recorded tables with the analytical model's estimates: how many trials each needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.artist import Artist

from costbench.metrics.intervals import paired_bootstrap
from costbench.metrics.measures import geometric_mean
from costbench.metrics.rows import MetricRow, read_rows
from costbench.reports.declared_tables import fill_table
from costbench.reports.figures.canvas import PALETTE, label_panels, save
from costbench.reports.frame import frame_of, select
from costbench.reports.page import PageFigure, page_figure, sentence
from costbench.reports.table import Table
from costbench.rng import stream
from costbench_schedules.metrics import TrialsRatio
from costbench_schedules.reports.autotvm2018.results import BEST
from costbench_schedules.reports.curves import NO_CURVES, draw_curves, in_order, panel_grid, read_curves
from costbench_schedules.reports.tables import TABLES

TEMPLATE = Path(__file__).with_name("section.txt.j2")
"""Text of the section."""
LABELS: Mapping[str, str] = {
    "random": "random",
    "crop": "Crop's order, nothing learned",
    "trees": "trees on loops",
    "trees-crop-first": "trees on loops, first batch by Crop",
    "trees-parts": "trees on Crop's parts",
    "trees-both": "trees on loops and Crop's parts",
    "hybrid": "Crop plus trees on its parts",
    "hybrid-both": "Crop plus trees on loops and its parts",
    "draft-verify": "Crop drafts, trees on loops choose",
}
_IN_FIGURE = ("random", "crop", "trees", "trees-crop-first", "trees-both", "hybrid-both", "draft-verify")
BASELINE = "trees"
PERCENT = (90, 95, 99)
_DECIDES = 95
_LEAST = 50.0
FEWER, MORE, UNDECIDED = "fewer", "more", "undecided"


def verdict(ratio: TrialsRatio) -> str:
    """Returns whether the arm needs fewer trials, more, or whether the interval has 1 in it."""
    return FEWER if ratio.high < 1.0 else MORE if ratio.low > 1.0 else UNDECIDED


@dataclass(frozen=True, eq=False)
class GuidedSearches:
    """Results of these searches; empty where no programs of tables have estimates.

    Attributes:
        rows: result rows of the split `estimated`: the program is a workload, the model an arm, the seed a
            repeat.
        curves: curves of percent of the fastest program's speed against trials, see `read_curves`.
    """

    rows: tuple[MetricRow, ...] = ()
    curves: pd.DataFrame = field(default_factory=NO_CURVES.copy)

    @cached_property
    def values(self) -> pd.DataFrame:
        """Returns a row for each workload and repeat, a column for each arm and metric."""
        keys = ["program", "seed", "model", "metric"]
        return frame_of(self.rows).set_index(keys)["value"].unstack(["model", "metric"])

    @property
    def workloads(self) -> tuple[str, ...]:
        """Returns the workloads that were searched, C1 to C12 before others."""
        return tuple(sorted({row.program for row in self.rows}, key=in_order))

    @property
    def arms(self) -> tuple[str, ...]:
        """Returns the arms that were run, in the order of `LABELS`."""
        ran = {row.model for row in self.rows} - {BEST}
        return tuple(arm for arm in LABELS if arm in ran)

    def repeats(self, arm: str, metric: str) -> pd.DataFrame | None:
        """Returns a row for each workload, a column for each repeat; None where a number is missing."""
        if (arm, metric) not in self.values:
            return None
        table = self.values[arm, metric].unstack("seed").loc[[*self.workloads]].dropna(axis=1, how="all")
        return None if table.isna().any(axis=None) else table

    def median(self, arm: str, metric: str) -> float | None:
        """Returns the geometric mean over workloads of medians over repeats; None if one is missing."""
        repeats = self.repeats(arm, metric)
        return None if repeats is None else geometric_mean(repeats.median(axis=1))

    def ratio(self, arm: str, metric: str) -> TrialsRatio | None:
        """Returns the trials of an arm over those of `BASELINE`, geometric means over tables and repeats.

        Tables are chosen, not drawn: two or three say nothing of others. None where one of both was not run
        on every workload, equally often.
        """
        part, whole = self.repeats(arm, metric), self.repeats(BASELINE, metric)
        if arm == BASELINE or part is None or whole is None or part.shape != whole.shape:
            return None
        left, right = (np.log(table.to_numpy()).mean(axis=0) for table in (part, whole))
        interval = paired_bootstrap(left, right, stream(0, "searches with estimates", arm, metric))
        return TrialsRatio(*map(float, np.exp([interval.difference, interval.low, interval.high])))


def load_guided(folder: Path) -> GuidedSearches:
    """Returns the results in the folder `estimated` of the stage `schedules`; empty ones without rows.

    Raises:
        DataError: naming the file, if one is missing or malformed.
    """
    if not (folder / "rows.jsonl").is_file():
        return GuidedSearches()
    return GuidedSearches(read_rows(folder / "rows.jsonl"), read_curves(folder / "curves.json"))


def guidance_table(searches: GuidedSearches) -> Table:
    """Returns the trials of each arm to 90%, 95% and 99% of the fastest program's speed."""
    rows = []
    for arm in searches.arms:
        row: dict[str, object] = {"search": LABELS[arm]}
        for percent in PERCENT:
            metric = f"trials_to_{percent}"
            row[f"trials_{percent}"] = searches.median(arm, metric)
            ratio = searches.ratio(arm, metric)
            if ratio is not None:
                row[f"ratio_{percent}"] = ratio.text
                row |= {"verdict": verdict(ratio)} if percent == _DECIDES else {}
        rows.append(row)
    facts = searches.values[BEST].xs(0, level="seed")
    note = sentence(TEMPLATE, "searches_note", facts=facts, workloads=searches.workloads)
    return fill_table("crop_searches", rows, TABLES, notes=[note])


def guidance_figure(searches: GuidedSearches, folder: Path) -> PageFigure:
    """Draws speed against trials, a panel for each table; writes `crop_searches.svg` and `.png`.

    Raises:
        DataError: if a file cannot be written.
    """
    shown = searches.workloads
    colours = dict(zip(_IN_FIGURE, ("#000000", *PALETTE), strict=False))
    with panel_grid(len(shown), 2.9, 2.4, legend=0.9) as (figure, grid):
        lines: dict[str, Artist] = {}
        for axes, name in zip(grid.ravel(), shown, strict=False):
            lines |= draw_curves(axes, select(searches.curves, workload=name), colours, 0.12)
            axes.set_xscale("log")
            axes.set_ylim(_LEAST, 101.0)
            axes.set_title(name, fontsize=9.0)
        label_panels(grid, len(shown), "trials", "% of the fastest")
        labels = [LABELS[arm] for arm in lines]
        figure.legend(
            [*lines.values()], labels, loc="outside upper center", ncols=2, frameon=False, fontsize=7.5
        )
        svg, _ = save(figure, folder / "crop_searches")
    return page_figure(svg, TEMPLATE, "searches", panels=len(shown), least=_LEAST)


def guidance_sentence(searches: GuidedSearches) -> str:
    """Returns what the searches say, by the verdicts on trials to 95% of the fastest program's speed."""
    by_verdict: dict[str, list[tuple[str, float]]] = {FEWER: [], MORE: [], UNDECIDED: []}
    for arm in searches.arms:
        ratio = searches.ratio(arm, f"trials_to_{_DECIDES}")
        if ratio is not None and arm != "random":
            by_verdict[verdict(ratio)].append((LABELS[arm], ratio.value))
    decided = {verdict: arms for verdict, arms in by_verdict.items() if arms}
    return sentence(TEMPLATE, "searches", workloads=searches.workloads, by_verdict=decided)


def flat_guidance(searches: GuidedSearches) -> dict[str, float]:
    """Returns `crop/searches/{arm}/trials_to_{percent}`, and `ratio_{percent}` with `_low` and `_high`."""
    flat: dict[str, float] = {}
    for arm in searches.arms:
        for percent in PERCENT:
            metric, key = f"trials_to_{percent}", f"crop/searches/{arm}"
            value, ratio = searches.median(arm, metric), searches.ratio(arm, metric)
            if value is not None:
                flat[f"{key}/{metric}"] = value
            if ratio is not None:
                flat[f"{key}/ratio_{percent}"] = ratio.value
                flat |= {f"{key}/ratio_{percent}_low": ratio.low, f"{key}/ratio_{percent}_high": ratio.high}
    return flat
