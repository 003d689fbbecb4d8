"""The part of the page about the data: sets and their sizes, distributions, leaks."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

from costbench.reports.data.card_figures import write_application_figure, write_histogram_figure
from costbench.reports.data.corpus_table import corpus_tables
from costbench.reports.data.dataset_card import Card
from costbench.reports.data.evidence import Audit, SplitCounts
from costbench.reports.data.evidence_tables import dataset_tables, leakage_table
from costbench.reports.page import PageFigure, Section
from costbench.reports.papers.numbers import PAPERS, corpus_of_paper
from costbench.reports.prose import sentence
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
        paragraphs.append(_words(task, own[0]))
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


def _words(task: str, card: Card) -> str:
    """Returns what the card of a task says, in words; the template of each takes what it needs."""
    families = sorted((name, one.configs) for name, one in card.applications.items())
    families.sort(key=itemgetter(1))
    return sentence("data", task, card=card, families=families, paper=corpus_of_paper(PAPERS[0]))
