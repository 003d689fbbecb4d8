"""The page about the data: sets and their sizes, distributions, leaks."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path

import pandas as pd

from costbench.reports.dataset_files import Card
from costbench.reports.declared_tables import fill_table
from costbench.reports.figures.dataset import write_application_figure, write_histogram_figure
from costbench.reports.page import Section, page_figure, paragraphs, sentence
from costbench.reports.papers.printed import PAPERS, corpus_of_paper
from costbench.reports.table import Column, Table
from costbench.tasks import TASKS

_SUMMED_SETS = ("train", "validation", "test")
_PAPER_SAMPLES = {
    "tile": ("tile-size samples", "tile_samples"),
    "fusion": ("fusion kernels", "fusion_kernels"),
}
"""Task -> what the papers call its samples, and the column of their Table 1 that counts these."""
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


def data_section(
    cards: Sequence[Card], counts: pd.DataFrame, leakage: pd.DataFrame, figures: Path
) -> Section:
    """Returns Table 1 of the papers, the card and the leakage audit.

    Args:
        cards: cards of every task and chip with samples.
        counts: counts of every split's sets (`read_set_counts`).
        leakage: leakage audits where samples are kernels (`read_leakage`).
        figures: folder that figures go to.

    Raises:
        DataError: if a figure cannot be written.
        ParamsError: if the package's data of the papers are broken.
    """
    text, page_figures = list(paragraphs("data", "introduction")), []
    paper = corpus_of_paper(PAPERS[0])
    for task in TASKS:
        of_task = [card for card in cards if card.task == task and card.configs]
        if not of_task:
            continue
        card = of_task[0]
        samples = sorted((name, counts.configs) for name, counts in card.by_application.items())
        samples.sort(key=itemgetter(1))
        text.append(sentence("data", task, card=card, applications=samples, paper=paper))
        svg, _ = write_application_figure(task, card, figures)
        page_figures.append(page_figure(svg, "data", "applications", task=task, chip=card.chip))
        svg, _ = write_histogram_figure(task, of_task, figures)
        page_figures.append(page_figure(svg, "data", "histograms", task=task))
    tables = (*corpus_tables(counts), *dataset_tables(cards), leakage_table(leakage))
    shown = tuple(table for table in tables if table.rows)
    return Section(
        anchor="data",
        title="Data set, splits and leakage audit",
        label="Data set",
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
    columns: dict[Column, dict[Hashable, int]] = {}
    for task in tasks:
        ours, (samples, printed_samples) = sums.loc[task], _PAPER_SAMPLES[task]
        group = f"Programs, {task}"
        columns[Column(f"{task}_programs", "ours", group, count=True)] = ours["programs"].to_dict()
        for paper, theirs in printed.items():
            column = Column(f"{task}_programs_{paper}", paper, group, count=True)
            columns[column] = theirs[f"{task}_programs"].to_dict()
        if TASKS[task].counts_kernels:
            columns[Column(f"{task}_kernels", "ours", f"Kernels, {task}", count=True)] = ours[
                "kernels"
            ].to_dict()
        group = samples.capitalize()
        columns[Column(f"{task}_samples", "ours", group, count=True)] = ours["samples"].to_dict()
        for paper, theirs in printed.items():
            column = Column(f"{task}_samples_{paper}", paper, group, count=True)
            columns[column] = theirs[printed_samples].to_dict()
    dropped = counts[(counts["set"] == "dropped") & (counts["programs"] > 0)]
    rows = [
        (split, name, *(numbers.get((split, name)) for numbers in columns.values()))
        for split in dict.fromkeys(counts["split"])
        for name in (*_SUMMED_SETS, "all", *(["dropped"] if split in set(dropped["split"]) else []))
    ]
    return Table(
        f"corpus_{chip}",
        f"Programs and samples of each set on {chip}, beside Table 1 of {' and '.join(PAPERS)}",
        (Column("split", "Split"), Column("set", "Set"), *columns),
        tuple(rows),
        notes=paragraphs("data", "corpus_notes", tasks=tasks),
    )
