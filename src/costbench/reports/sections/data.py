"""The page about the data: sets and their sizes, distributions, leaks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator

from costbench.reports.dataset_files import Card
from costbench.reports.declared_tables import fill_table
from costbench.reports.figures.canvas import PALETTE, drawing, legend_above, save
from costbench.reports.inputs import ReportData
from costbench.reports.page import Page, Section, page_figure, paragraphs, sentence
from costbench.reports.papers.printed import PAPERS, corpus_of_paper
from costbench.reports.table import Table
from costbench.tasks import TASKS

_SUMMED_SETS = ("train", "validation", "test")
_PAPER_SAMPLES = {"tile": "tile_samples", "fusion": "fusion_kernels"}
"""Task -> column of the papers' Table 1 that counts its samples."""
_DISTRIBUTIONS = {
    "tile_space_size": "tile sizes in a kernel's space",
    "configs_per_kernel": "tile sizes measured per kernel",
    "configs_per_program": "layout configurations per program",
    "nodes_per_kernel": "nodes per kernel",
    "runs_per_program": "executions of a kernel in a program",
    "default_runtime_ns": "runtime with the default tile size (ns)",
    "runtime_ns": "runtime of all samples (ns)",
    "runtime_spread": "slowest / fastest sample of a kernel (layout: of a program)",
}


def data_section(data: ReportData) -> Section | None:
    """Returns Table 1 of the papers, the card and the leakage audit; None without simulated samples.

    Raises:
        DataError: if a figure cannot be written.
        ParamsError: if the package's data of the papers are broken.
    """
    if not data.cards:
        return None
    text, page_figures = list(paragraphs("data", "introduction")), []
    paper = corpus_of_paper(PAPERS[0])
    for task in TASKS:
        of_task = [card for card in data.cards if card.task == task and card.configs]
        if not of_task:
            continue
        card = of_task[0]
        samples = sorted((name, counts.configs) for name, counts in card.by_application.items())
        samples.sort(key=itemgetter(1))
        text.append(sentence("data", task, card=card, applications=samples, paper=paper))
        svg, _ = write_application_figure(task, card, data.figures)
        page_figures.append(page_figure(svg, "data", "applications", task=task, chip=card.chip))
        svg, _ = write_histogram_figure(task, of_task, data.figures)
        page_figures.append(page_figure(svg, "data", "histograms", task=task))
    tables = (*corpus_tables(data.set_counts), *dataset_tables(data.cards), leakage_table(data.leakage))
    shown = tuple(table for table in tables if table.rows)
    return Section(
        anchor="data",
        title="Data set, splits and leakage audit",
        label="Data set",
        page=Page("data", "Data and trainings"),
        paragraphs=tuple(text),
        figures=tuple(page_figures),
        tables=shown,
        folded=tuple(table.name for table in shown if table.name != "dataset"),
        folded_figures=True,
    )


def leakage_table(leakage: pd.DataFrame) -> Table:
    """Returns, per task, split, chip and test program, the shares of kernels that training has seen."""
    shares = ["share_of_kernels", "share_of_runtime"]
    return fill_table("leakage", leakage.assign(**100.0 * leakage[shares]))


def dataset_tables(cards: Sequence[Card]) -> tuple[Table, Table]:
    """Returns what was measured: counts per task and chip, and how sizes and runtimes are distributed."""
    quantiles = [
        asdict(card.distributions[name]) | {"task": card.task, "chip": card.chip, "quantity": label}
        for card in cards
        for name, label in _DISTRIBUTIONS.items()
        if name in card.distributions
    ]
    return fill_table("dataset", map(asdict, cards)), fill_table("dataset_distributions", quantiles)


def corpus_tables(counts: pd.DataFrame) -> tuple[Table, ...]:
    """Returns Table 1 of both versions of the paper, ours beside theirs, a table a chip.

    Args:
        counts: counts of every split's sets (`read_set_counts`); tasks without samples have no columns.

    Raises:
        ParamsError: if the package's data of the papers are broken.
    """
    printed = {}
    for paper in PAPERS:
        rows = pd.DataFrame(corpus_of_paper(paper).rows).rename(columns={"part": "set"})
        printed[paper] = _with_sums(rows, ["split"])
    known = counts[counts["task"].isin(list(_PAPER_SAMPLES))]
    return tuple(_corpus_table(str(chip), rows, printed) for chip, rows in known.groupby("chip"))


def _with_sums(counts: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Returns counts by keys and set, with the sums of train, validation and test as the set `all`."""
    summed = counts[counts["set"].isin(_SUMMED_SETS)].groupby(keys).sum(numeric_only=True)
    both = pd.concat([counts, summed.reset_index().assign(set="all")])
    return both.set_index([*keys, "set"]).sort_index()


def _corpus_table(chip: str, counts: pd.DataFrame, printed: Mapping[str, pd.DataFrame]) -> Table:
    tasks = [task for task in _PAPER_SAMPLES if task in set(counts["task"])]
    sums = _with_sums(counts, ["task", "split"])
    columns: dict[str, pd.Series[int]] = {}
    for task in tasks:
        counted = ("programs", "samples", *(["kernels"] if TASKS[task].counts_kernels else []))
        columns |= {f"{task}_{amount}": sums.loc[task][amount] for amount in counted}
        for paper, theirs in printed.items():
            columns[f"{task}_programs_{paper}"] = theirs[f"{task}_programs"]
            columns[f"{task}_samples_{paper}"] = theirs[_PAPER_SAMPLES[task]]
    dropped = set(counts["split"][(counts["set"] == "dropped") & (counts["programs"] > 0)])
    rows = [
        (split, name)
        for split in dict.fromkeys(counts["split"])
        for name in (*_SUMMED_SETS, "all", *(["dropped"] if split in dropped else []))
    ]
    return fill_table(
        "corpus",
        pd.DataFrame(columns).reindex(pd.MultiIndex.from_tuples(rows, names=["split", "set"])).reset_index(),
        name=f"corpus_{chip}",
        notes=paragraphs("data", "corpus_notes", tasks=tasks),
        chip=chip,
        papers=" and ".join(PAPERS),
    )


FAST_NS = 5_000
_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


_PANELS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "tile": (
        ("configs_per_kernel", "tile sizes measured per kernel", "kernels"),
        ("tile_space_size", "tile sizes in the kernel's space", "kernels"),
        ("nodes_per_kernel", "nodes per kernel", "kernels"),
        ("default_runtime_ns", "runtime with the compiler's tile size", "kernels"),
        ("runtime_ns", "runtime of all measured tile sizes", "samples"),
        ("runtime_spread", "slowest / fastest tile size of a kernel", "kernels"),
    ),
    "fusion": (
        ("runtime_ns", "runtime", "kernels"),
        ("nodes_per_kernel", "nodes per kernel", "kernels"),
        ("tile_space_size", "tile sizes in the kernel's space", "kernels"),
        ("runs_per_program", "executions in a run of the program", "kernels"),
    ),
    "layout": (
        ("configs_per_program", "layout configurations per program", "programs"),
        ("runtime_ns", "runtime of the program", "samples"),
        ("runtime_spread", "slowest / fastest layouts of a program", "programs"),
    ),
}
"""Histograms of a task: the key in the card's distributions, the label of the axis, and what bins count.

Quantities whose keys end in `_ns` are times.
"""


def write_histogram_figure(task: str, cards: Sequence[Card], folder: Path) -> tuple[Path, ...]:
    """Draws histograms of a task's quantities, one line a chip, as `dataset_<task>.svg` and `.png`.

    Args:
        task: task that has panels of its own.
        cards: cards of that task, one a chip.
        folder: folder that the files are written to.

    Raises:
        DataError: if a file cannot be written.
    """
    # A task without a choice of its own shows every quantity of its card.
    panels = _PANELS.get(task) or tuple(
        (name, name.replace("_", " "), "samples") for name in cards[0].distributions
    )
    columns = min(3, len(panels)) if len(panels) != 4 else 2
    rows = -(-len(panels) // columns)
    with drawing((3.5 * columns, 2.7 * rows + 0.3), rows, columns) as (figure, grid):
        for (quantity, label, counted), axes in zip(panels, grid.flat, strict=True):
            for index, card in enumerate(cards):
                _draw_steps(axes, card, quantity, index)
            _mark_papers_value(axes, task, quantity)
            _log_axis(axes, quantity.endswith("_ns"))
            axes.set_xlabel(label)
            axes.set_ylabel(f"% of {counted}")
            axes.set_ylim(bottom=0.0)
        # The chips, in the panel that has the most of them.
        fullest = max(grid.flat, key=lambda axes: len(axes.get_legend_handles_labels()[1]))
        if fullest.get_legend_handles_labels()[1]:
            legend_above(figure, fullest, len(cards))
        return save(figure, folder / f"dataset_{task}")


def _draw_steps(axes: Axes, card: Card, quantity: str, index: int) -> None:
    shape = card.distributions.get(quantity)
    if shape is None or not shape.counts:
        return
    share = 100.0 * np.array(shape.counts) / sum(shape.counts)
    colour, style = PALETTE[index % len(PALETTE)], ("-", "--", ":")[index % 3]
    if index == 0:
        axes.stairs(share, shape.edges(), fill=True, color=colour, alpha=0.18)
    axes.stairs(share, shape.edges(), color=colour, linestyle=style, linewidth=1.4, label=card.chip)


def _mark_papers_value(axes: Axes, task: str, quantity: str) -> None:
    """Marks the value that the papers give for their data, where they give one."""
    marks = {
        ("fusion", "runtime_ns"): (FAST_NS, "5 µs: half of the\npapers' kernels lie below"),
        ("fusion", "nodes_per_kernel"): (41, "41: the\npapers' mean"),
        ("tile", "tile_space_size"): (500_000, "500,000:\nthe papers'\nlargest"),
    }
    if (task, quantity) in marks:
        value, text = marks[task, quantity]
        axes.axvline(value, color="#444444", linewidth=0.9, linestyle=":")
        note = axes.annotate(text, (value, 0.98), (4, 0), axes.get_xaxis_transform(), "offset points")
        note.set(va="top", fontsize=7.5, color="#444444")


def _log_axis(axes: Axes, is_time: bool) -> None:
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    decades = np.log10(high / low)
    axes.xaxis.set_major_locator(LogLocator(10.0, (1.0,) if decades > 2.2 else (1.0, 2.0, 5.0), numticks=12))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(_time_text if is_time else "{x:,.0f}")
    axes.tick_params(axis="x", labelsize=8, labelrotation=35 if decades > 6 else 0)


def _time_text(nanoseconds: float, _: float) -> str:
    for unit, name in _UNITS:
        if nanoseconds >= unit:
            return f"{nanoseconds / unit:g} {name}"
    return f"{nanoseconds:g} ns"


def write_application_figure(task: str, card: Card, folder: Path) -> tuple[Path, ...]:
    """Draws programs, kernels and samples of each application, as `applications_<task>.svg` and `.png`.

    Raises:
        DataError: if a file cannot be written.
    """
    names = sorted(card.by_application, key=lambda name: (card.by_application[name].configs, name))
    panels = [("programs", "programs"), ("kernels", "kernels"), ("configs", "samples")]
    if TASKS[task].samples == "program":
        panels.remove(("kernels", "kernels"))
    size = (9.5, 1.0 + 0.19 * len(names))
    with drawing(size, columns=len(panels), sharey=True) as (figure, (grid,)):
        for (key, label), axes, colour in zip(panels, grid, PALETTE, strict=False):
            counts = [getattr(card.by_application[name], key) for name in names]
            axes.barh(names, counts, color=colour, height=0.75)
            axes.grid(axis="y", visible=False)
            axes.grid(axis="x", visible=True)
            axes.set_xlabel(label + ("" if key == "programs" else " (logarithmic)"))
            axes.margins(y=0.01)
            axes.tick_params(axis="y", length=0)
            if key == "programs":
                axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, min_n_ticks=1))
            else:
                axes.set_xscale("log")
                axes.set_xlim(left=0.7)
                axes.xaxis.set_major_formatter("{x:,.0f}")
                axes.xaxis.set_minor_formatter(NullFormatter())
        return save(figure, folder / f"applications_{task}")
