"""The part of the page about the data: sets and their sizes, distributions, leaks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from costbench.reports.data.card_figures import write_application_figure, write_histogram_figure
from costbench.reports.data.corpus_table import corpus_tables
from costbench.reports.data.dataset_card import Card
from costbench.reports.data.evidence import Audit, SplitCounts
from costbench.reports.data.evidence_tables import dataset_tables, leakage_table
from costbench.reports.page import PageFigure, Section
from costbench.reports.papers.numbers import PAPERS, corpus_of_paper
from costbench.tasks import TASKS

_INTRODUCTION = (
    "Real XLA programs, compiled by the project's own compiler and measured on simulated chips: each sample "
    "three times, with noise, the minimum kept. A test kernel that also occurs in training makes the test "
    "easier, so these are counted."
)


def data_section(
    cards: Sequence[Card], counts: Sequence[SplitCounts], audits: Sequence[Audit], figures: Path
) -> Section:
    """Table 1, the card and the audit.

    Args:
        cards: of every task and chip with samples.
        counts: of every split.
        audits: where samples are kernels.
        figures: folder for figures.

    Raises:
        DataError: if a figure cannot be written.
    """
    paragraphs, drawn = [_INTRODUCTION], []
    for task in TASKS:
        own = [card for card in cards if card.task == task and card.counts.configs]
        if not own:
            continue
        paragraphs.append(_WORDS[task](own[0]))
        svg, _ = write_application_figure(task, own[0], figures)
        alt = f"Bars of the programs, kernels and samples of each application, {task} data."
        caption = (
            f"Who the {task} data are from ({own[0].chip}). Numbers of samples lie on a logarithmic axis: "
            "without balancing, training would see few applications."
        )
        drawn.append(PageFigure(svg, alt, caption))
        svg, _ = write_histogram_figure(task, own, figures)
        alt = f"Histograms of the {task} data; their quantiles are in the table below."
        caption = f"How the {task} data are distributed; bins have equal widths on a logarithmic axis."
        drawn.append(PageFigure(svg, alt, caption))
    tables = (*corpus_tables(counts), *dataset_tables(cards), leakage_table(audits))
    shown = tuple(table for table in tables if table.rows)
    title = "Data set, splits and leakage audit"
    return Section(
        anchor="data",
        title=title,
        label="Data set",
        paragraphs=tuple(paragraphs),
        figures=tuple(drawn),
        tables=shown,
        folded=tuple(table.name for table in shown if table.name != "dataset"),
        folded_figures=True,
    )


def _imbalance(card: Card) -> str:
    """Most samples of an application over fewest, named."""
    families = card.applications
    most = max(families, key=lambda name: (families[name].configs, name))
    least = min(families, key=lambda name: (families[name].configs, name))
    ratio = families[most].configs / max(1, families[least].configs)
    return f"{most} has {ratio:,.0f} times the samples of {least}"


def _tile_words(card: Card) -> str:
    spread, space = card.distributions["runtime_spread"], card.distributions["tile_space_size"]
    return (
        f"Tile sizes ({card.chip}): {card.counts.configs:,} samples of {card.counts.kernels:,} kernels from "
        f"{card.counts.programs} programs of {card.counts.applications} applications; {_imbalance(card)}. A "
        f"kernel has {space.median or 0:,.0f} tile sizes in the median and {space.max or 0:,.0f} at most; "
        f"the slowest measured one takes {spread.median or 0:.1f} times as long as the fastest in the median "
        f"kernel, {spread.p90 or 0:.0f} times or more in a tenth of them."
    )


def _fusion_words(card: Card) -> str:
    nodes, paper = card.distributions["nodes_per_kernel"], corpus_of_paper(PAPERS[0])
    share = 100.0 * card.counts.fast_kernels / card.counts.kernels
    return (
        f"Fusion ({card.chip}): {card.counts.kernels:,} kernels ({card.counts.unique_kernels:,} different) "
        f"from {card.counts.tried_configs:,} fusion configurations of {card.counts.programs} programs; "
        f"{_imbalance(card)}. {share:.0f}% take less than 5 µs ({paper.paper}: about "
        f"{100 * paper.fast_share:.0f}%). A kernel has {nodes.mean or 0:.0f} nodes on average, "
        f"{nodes.min or 0:.0f} to {nodes.max or 0:,.0f} ({paper.paper}: {paper.nodes_mean or 0:.0f}, "
        f"1 to {paper.nodes_max:,})."
    )


def _layout_words(card: Card) -> str:
    spread = card.distributions["runtime_spread"]
    return (
        f"Layouts ({card.chip}): {card.counts.configs:,} samples of {card.counts.programs} programs; the "
        f"slowest takes {spread.median or 0:.2f} times as long as the fastest in the median program, "
        f"{spread.max or 0:.2f} times at most."
    )


_WORDS = {"tile": _tile_words, "fusion": _fusion_words, "layout": _layout_words}
