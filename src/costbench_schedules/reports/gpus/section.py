"""The section about tuning tables of GPUs: strategies beside Kernel Tuner's, and choices between GPUs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from costbench.metrics.measures import geometric_mean
from costbench.reports.declared_tables import fill_table
from costbench.reports.figures.canvas import drawing, save
from costbench.reports.frame import frame_of, number, select
from costbench.reports.page import PageFigure, Section, page_figure, paragraphs, sentence
from costbench.reports.table import Table
from costbench_schedules.experiments.table_summary import over_tables
from costbench_schedules.reports.curves import write_tuning_curves
from costbench_schedules.reports.gpus.results import BETWEEN, KERNEL_TUNER, RANDOM, GpuResults
from costbench_schedules.reports.tables import TABLES

ANCHOR = "gpus"
_TEMPLATE = Path(__file__).with_name("section.txt.j2")
_ENDS = ("95", "99")
_COMPARED = 5
"""Strategies, besides the reference and random search, that stand beside each other on every table."""
_TRANSFER = "transfer"
"""Part of the names of strategies that begin with records of other devices."""
_DARK = 60.0
"""Percent below which a cell of a matrix is dark."""


def gpus_section(results: GpuResults, figures: Path) -> Section | None:
    """Returns the section, or None where no tuning tables were searched.

    Args:
        results: results of the stage `schedules`.
        figures: folder that figures are written to.

    Raises:
        DataError: if a figure cannot be written.
    """
    if results.curves.empty:
        return None
    page_figures = [_searches_figure(results, figures)]
    if any(row.split == BETWEEN for row in results.rows):
        page_figures.append(_transfer_figure(results, figures))
    return Section(
        anchor=ANCHOR,
        title="Tuning spaces of real GPUs",
        label="GPUs",
        paragraphs=paragraphs(
            _TEMPLATE,
            "text",
            tables=results.tables,
            leaders=_leaders(results),
            reference=results.reference,
        ),
        figures=tuple(page_figures),
        tables=(strategies_table(results), ratios_table(results), trials_table(results)),
        folded=("gpu_trials",),
    )


def _leaders(results: GpuResults) -> dict[str, pd.Series[Any]]:
    """Returns who needs the fewest trials on tables that no strategy was made with: alone, with records."""
    unseen = over_tables(results.unseen, results.reference)
    rows = unseen[unseen["metric"] == "trials_to_95_ratio"].dropna()
    rows = rows[~rows["strategy"].str.startswith(KERNEL_TUNER) & (rows["strategy"] != results.reference)]
    with_records = rows["strategy"].str.contains(_TRANSFER)
    kinds = {"without records": rows[~with_records], "with records": rows[with_records]}
    return {kind: of_kind.sort_values("value").iloc[0] for kind, of_kind in kinds.items() if len(of_kind)}


def strategies_table(results: GpuResults) -> Table:
    """Returns what each strategy needs, over all tables and over those that none was made with."""
    unseen, every = (over_tables(scores, results.reference) for scores in (results.unseen, results.scores))
    trials = {end: results.trials(end) for end in _ENDS}
    repeats = results.scores.groupby("strategy")["repeat"].nunique()
    rows: list[dict[str, object]] = []
    for strategy in results.strategies:
        row: dict[str, object] = {
            "strategy": strategy,
            "tables": int(trials["95"][strategy].notna().sum()),
            "repeats": int(repeats[strategy]),
            "auc": every.set_index(["strategy", "metric"])["value"].get((strategy, "auc")),
        }
        for end in _ENDS:
            known = trials[end][strategy].dropna()
            row[f"trials_{end}"] = geometric_mean(known) if len(known) else None
            for name, frame in (("unseen", unseen), ("all", every)):
                row[f"{name}_{end}"] = _interval(frame, strategy, f"trials_to_{end}_ratio")
        rows.append(row)
    reference, note = results.reference, _reference_note(results)
    return fill_table("gpu_strategies", rows, TABLES, reference=reference, reference_note=note)


def _reference_note(results: GpuResults) -> str:
    facts = {"reference": results.reference, "kernel_tuner": results.reference.startswith(KERNEL_TUNER)}
    return sentence(_TEMPLATE, "reference_note", unseen=not results.unseen.empty, **facts)


def _interval(frame: pd.DataFrame, strategy: str, metric: str) -> str | None:
    rows = frame[(frame["strategy"] == strategy) & (frame["metric"] == metric)]
    if rows.empty:
        return None
    row = rows.iloc[0]
    ratio = f"{row['value']:.2f}"
    return ratio if pd.isna(row["low"]) else f"{ratio} [{row['low']:.2f}, {row['high']:.2f}]"


def compared(results: GpuResults) -> list[str]:
    """Returns the strategies that are shown on every table, the reference first and random search last.

    Between them are those that need the fewest trials to 95%, of those that are not Kernel Tuner's.
    """
    trials = results.trials("95")
    means = {
        name: geometric_mean(trials[name].dropna())
        for name in results.strategies
        if not name.startswith(KERNEL_TUNER) and name not in (results.reference, RANDOM)
    }
    best = sorted(means, key=lambda name: means[name])[:_COMPARED]
    return [*dict.fromkeys((results.reference, *best, *({RANDOM} & {*results.strategies})))]


def ratios_table(results: GpuResults) -> Table:
    """Returns the ratio of trials to 95% on each table, with intervals over repeats."""
    names = compared(results)[1:]
    ratios = {name: results.ratios(name) for name in names}
    rows = [
        {"kernel": table.kernel, "device": table.device, "development": "yes" if table.development else ""}
        | {name: ratio.text for name in names if (ratio := ratios[name].get((table.kernel, table.device)))}
        for table in results.tables
    ]
    across = {name: name for name in names}
    return fill_table("gpu_ratios", rows, TABLES, across=across, reference=results.reference)


def trials_table(results: GpuResults) -> Table:
    """Returns the expected trials to 95% on each table, of the strategies in `compared`."""
    trials, names = results.trials("95"), compared(results)
    rows = [
        asdict(table)
        | {"drawn_at_random": table.random_trials_to_95}
        | {name: number(trials[name].get((table.kernel, table.device))) for name in names}
        for table in results.tables
    ]
    return fill_table("gpu_trials", rows, TABLES, across={name: name for name in names})


def _searches_figure(results: GpuResults, folder: Path) -> PageFigure:
    titled = results.curves.assign(
        target=[
            f"{device} (development)" if (kernel, device) in results.development else device
            for kernel, device in zip(results.curves["workload"], results.curves["target"], strict=True)
        ]
    )
    svg, _ = write_tuning_curves(titled, compared(results), folder / "gpu_searches")
    return page_figure(
        svg,
        _TEMPLATE,
        "searches",
        tables=results.tables,
        repeats=results.curves["repeats"],
        reference=results.reference,
        reference_note=_reference_note(results),
    )


def _transfer_figure(results: GpuResults, folder: Path) -> PageFigure:
    """Draws a matrix for each kernel: how fast the choice of one GPU is on another."""
    rows = select(frame_of(results.rows), split=BETWEEN, metric="share_of_best")
    kernels = sorted(rows["application"].unique())
    with drawing((3.1 * len(kernels) + 0.6, 3.4), columns=len(kernels)) as (figure, (panels,)):
        for axes, kernel in zip(panels, kernels, strict=True):
            of_kernel = select(rows, application=kernel)
            shares = 100.0 * of_kernel.pivot(index="variant", columns="chip", values="value")
            image = axes.imshow(shares.to_numpy(), vmin=0.0, vmax=100.0, cmap="viridis")
            for (row, column), share in np.ndenumerate(shares.to_numpy()):
                colour = "white" if share < _DARK else "black"
                if not np.isnan(share):
                    axes.text(column, row, f"{share:.0f}", ha="center", va="center", color=colour, fontsize=8)
            names = [[name.replace("_", " ") for name in labels] for labels in (shares.columns, shares.index)]
            axes.set_xticks(range(len(names[0])), names[0], rotation=45, ha="right", fontsize=7.0)
            axes.set_yticks(range(len(names[1])), names[1], fontsize=7.0)
            axes.set_title(str(kernel).replace("_", " "), fontsize=9.0)
            axes.grid(visible=False)
        panels[0].set_ylabel("fastest on")
        figure.supxlabel("measured on", fontsize=9.0)
        figure.colorbar(image, ax=panels, label="% of the best", shrink=0.8)
        svg, _ = save(figure, folder / "gpu_transfer")
    return page_figure(svg, _TEMPLATE, "transfer", kernels=len(kernels))
