"""Searches of recorded tables with the analytical model's estimates: how many trials each needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from costbench.artifacts import read_json
from costbench.errors import DataError
from costbench.metrics.intervals import paired_bootstrap
from costbench.metrics.measures import geometric_mean
from costbench.metrics.rows import MetricRow, read_rows
from costbench.reports.dataset_files import parse_data
from costbench.reports.figures.canvas import PALETTE, label_panels, save, styled
from costbench.reports.page import PageFigure
from costbench.reports.table import Column, Table, Value
from costbench.rng import stream
from costbench_schedules.reports.autotvm2018.results import BEST, Curve, in_order

ESTIMATED = "estimated"
"""Folder of the stage `schedules`."""
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
_DRAWN = ("random", "crop", "trees", "trees-crop-first", "trees-both", "hybrid-both", "draft-verify")
BASELINE = "trees"
PERCENT = (90, 95, 99)
_COLUMNS = 4
_LEAST = 50.0
FEWER, MORE, CANNOT_TELL = "fewer", "more", "cannot tell"


@dataclass(frozen=True)
class Ratio:
    """Trials of an arm over those of the baseline.

    Attributes:
        value: geometric mean over tables and repeats.
        low: lower end of the 95% interval over repeats of the tables that were searched.
        high: upper end of that interval.
    """

    value: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Returns whether the arm needs fewer trials, more, or whether the interval has 1 in it."""
        return FEWER if self.high < 1.0 else MORE if self.low > 1.0 else CANNOT_TELL


@dataclass(frozen=True)
class GuidedSearches:
    """Results of these searches; empty where no programs of tables have estimates.

    Attributes:
        rows: result rows of the split `estimated`: the program is a workload, the model an arm, the seed a
            repeat.
        curves: curves of percent of the fastest program's speed against trials.
    """

    rows: tuple[MetricRow, ...] = ()
    curves: tuple[Curve, ...] = ()

    @cached_property
    def _values(self) -> Mapping[tuple[str, str, str], Mapping[int, float]]:
        by_key: dict[tuple[str, str, str], dict[int, float]] = {}
        for row in self.rows:
            by_key.setdefault((row.program, row.model, row.metric), {})[row.seed] = row.value
        return by_key

    @property
    def workloads(self) -> tuple[str, ...]:
        """Returns the workloads that were searched, C1 to C12 before others."""
        return tuple(sorted({row.program for row in self.rows}, key=in_order))

    @property
    def arms(self) -> tuple[str, ...]:
        """Returns the arms that were run, in the order of `LABELS`."""
        ran = {row.model for row in self.rows} - {BEST}
        return tuple(arm for arm in LABELS if arm in ran)

    def repeats(self, workload: str, arm: str, metric: str) -> tuple[float, ...]:
        """Returns a metric of each repeat in the order of their numbers; nothing where it is missing."""
        by_seed = self._values.get((workload, arm, metric), {})
        return tuple(by_seed[seed] for seed in sorted(by_seed))

    def median(self, arm: str, metric: str) -> float | None:
        """Returns the geometric mean over workloads of medians over repeats; None if one is missing."""
        repeats = [self.repeats(name, arm, metric) for name in self.workloads]
        return (
            geometric_mean([float(np.median(values)) for values in repeats])
            if repeats and all(repeats)
            else None
        )

    def ratio(self, arm: str, metric: str) -> Ratio | None:
        """Returns the trials of an arm over those of `BASELINE`, with the interval over repeats.

        Tables are given, not drawn: two or three say nothing of others. None where one of both was not run on
        every workload, equally often.
        """
        both = [[self.repeats(name, side, metric) for name in self.workloads] for side in (arm, BASELINE)]
        lengths = {len(values) for side in both for values in side}
        if arm == BASELINE or len(lengths) != 1 or not max(lengths):
            return None
        left, right = (np.log(np.array(side)) for side in both)
        draws = stream(0, "searches with estimates", arm, metric)
        interval = paired_bootstrap(left.mean(axis=0), right.mean(axis=0), draws)
        return Ratio(
            *(float(np.exp(number)) for number in (interval.difference, interval.low, interval.high))
        )


def load_guided(folder: Path) -> GuidedSearches:
    """Returns the results in the folder `estimated` of the stage `schedules`; empty ones without rows.

    Raises:
        DataError: naming the file, if one is missing or malformed.
    """
    if not (folder / "rows.jsonl").is_file():
        return GuidedSearches()
    path = folder / "curves.json"
    content = read_json(path)
    if not isinstance(content, list):
        raise DataError("no list", where=path, expected="a list of objects")
    curves = tuple(parse_data(Curve, entry, path, f"[{number}]") for number, entry in enumerate(content))
    return GuidedSearches(read_rows(folder / "rows.jsonl"), curves)


def guidance_table(searches: GuidedSearches) -> Table:
    """Returns the trials of each arm to 90%, 95% and 99% of the fastest program's speed."""
    rows: list[tuple[Value, ...]] = []
    for arm in searches.arms:
        ratios = [searches.ratio(arm, f"trials_to_{percent}") for percent in PERCENT]
        rows.append(
            (
                LABELS[arm],
                *(searches.median(arm, f"trials_to_{percent}") for percent in PERCENT),
                *(
                    None if ratio is None else f"{ratio.value:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"
                    for ratio in ratios
                ),
                None if ratios[1] is None else ratios[1].verdict,
            )
        )
    columns = (
        Column("search", "Search"),
        *(Column(f"trials_{p}", f"{p}%", "Trials to a share of the fastest", 1) for p in PERCENT),
        *(Column(f"ratio_{p}", f"{p}%", "Over those of trees on loops") for p in PERCENT),
        Column("verdict", "trials to 95% on these tables"),
    )
    notes = (
        "Medians over repeats, geometric means over tables; a search that never gets there counts one more "
        "than all its trials. Ratios are geometric means over tables and repeats, with 95% intervals over "
        "repeats: they hold for these tables, and say nothing of others. All searches ask their "
        "model about every program that is left; random search and the one in Crop's order have no batches.",
        _about(searches),
    )
    return Table(
        "crop_searches", "Searches with and without the analytical model", columns, tuple(rows), 0, notes
    )


def _about(searches: GuidedSearches) -> str:
    parts = []
    for name in searches.workloads:
        [programs], [configs], [enough] = (
            searches.repeats(name, BEST, metric) for metric in ("programs", "configs", "enough_95")
        )
        parts.append(f"{name}: {programs:.0f} of {configs:.0f} programs, {enough:.0f} of them within 95%")
    return "Programs with estimates that were searched: " + "; ".join(parts) + "."


def guidance_figure(searches: GuidedSearches, folder: Path) -> PageFigure:
    """Draws speed against trials, a panel for each table; writes `crop_searches.svg` and `.png`.

    Raises:
        DataError: if a file cannot be written.
    """
    shown = searches.workloads
    colours = dict(zip(_DRAWN, ("#000000", *PALETTE), strict=False))
    with styled():
        width = min(_COLUMNS, len(shown))
        height = -(-len(shown) // width)
        figure = Figure(figsize=(2.9 * width + 0.4, 2.4 * height + 0.9), layout="constrained")
        grid = figure.subplots(height, width, squeeze=False)
        handles = {}
        for index, name in enumerate(shown):
            axes = grid[index // width][index % width]
            for arm in _DRAWN:
                for curve in searches.curves:
                    if (curve.workload, curve.arm) != (name, arm):
                        continue
                    (handles[LABELS[arm]],) = axes.step(
                        curve.trials, curve.median, where="post", color=colours[arm], linewidth=1.2
                    )
                    band = {"step": "post", "color": colours[arm], "alpha": 0.12, "linewidth": 0.0}
                    axes.fill_between(curve.trials, curve.low, curve.high, **band)
            axes.set_xscale("log")
            axes.set_ylim(_LEAST, 101.0)
            axes.set_title(name, fontsize=9.0)
        label_panels(grid, len(shown), "trials", "% of the fastest")
        figure.legend(
            list(handles.values()),
            list(handles),
            loc="outside upper center",
            ncols=2,
            frameon=False,
            fontsize=7.5,
        )
        svg, _ = save(figure, folder / "crop_searches")
    caption = (
        "Speed of the fastest program so far in percent of the fastest of the table, against trials: median "
        "over repeats, band from the lower to the upper quartile. Speeds below "
        f"{_LEAST:.0f}% are cut off."
    )
    alt = f"Curves of speed against trials, a panel for each of {len(shown)} tables."
    return PageFigure(svg, alt, caption)


def guidance_sentence(searches: GuidedSearches) -> str:
    """Returns what the searches say, by the verdicts on trials to 95% of the fastest program's speed."""
    by_verdict: dict[str, list[str]] = {FEWER: [], MORE: [], CANNOT_TELL: []}
    for arm in searches.arms:
        ratio = searches.ratio(arm, "trials_to_95")
        if ratio is not None and arm != "random":
            by_verdict[ratio.verdict].append(f"{LABELS[arm]} ({ratio.value:.2f})")
    parts = [
        f"{label}: {', '.join(by_verdict[verdict])}"
        for verdict, label in ((FEWER, "fewer"), (MORE, "more"), (CANNOT_TELL, "cannot be told"))
        if by_verdict[verdict]
    ]
    return (
        "Searches of recorded tables can read Crop's estimates. To 95% of the fastest program's speed "
        f"({', '.join(searches.workloads)}) they need, as a ratio to the trials of trees that read loops "
        f"only, {'; '.join(parts)}."
    )


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
