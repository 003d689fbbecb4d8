"""All tables, figures and the page of a run, from what its stages left behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from costbench.artifacts import write_json
from costbench.reports.comparison_table import comparison_table
from costbench.reports.evidence import (
    Audit,
    flat_numbers,
    read_audits,
    read_cards,
    read_history,
)
from costbench.reports.evidence_tables import dataset_tables, leakage_table
from costbench.reports.figures import write_curve_figure, write_tile_figure
from costbench.reports.page import PageFigure, Section, write_page
from costbench.reports.papers import tile_table_of_paper
from costbench.reports.rendering import write_table
from costbench.reports.results import Cell, Results, load_results
from costbench.reports.summary import averages, headlines, summarise
from costbench.reports.tables import Table
from costbench.reports.tile_table import SPLIT_NAMES, tile_table

_TITLE = "How well do cost models choose tile sizes?"


@dataclass(frozen=True)
class ReportInputs:
    """Files that a report is made of.

    Attributes:
        rows: result rows.
        audits: `leakage.json`.
        card: `card.json`.
        histories: name of a training run -> its curve as CSV.
        curve: column of the curves that is drawn.
        provenance: what else says where the numbers come from, name -> value.
    """

    rows: Path
    audits: Path
    card: Path
    histories: Mapping[str, Path]
    curve: str
    provenance: Mapping[str, str]


@dataclass(frozen=True)
class ReportFiles:
    """What was written: the page, headline numbers (all; those for `dvc metrics`), tables, figures."""

    page: Path
    summary: Path
    metrics: Path
    tables: tuple[Path, ...]
    figures: tuple[Path, ...]
    headline: Mapping[str, float]


def write_report(inputs: ReportInputs, folder: Path, seed: int) -> ReportFiles:
    """Write `index.html`, `summary.json`, `metrics.json`, `tables/` and `figures/` into `folder`.

    Args:
        inputs: results and evidence.
        folder: where to.
        seed: of the bootstrap.

    Raises:
        DataError: if an input is missing or malformed, or a file cannot be written.
    """
    results = load_results(inputs.rows)
    audits, cards = read_audits(inputs.audits), read_cards(inputs.card)
    tables: list[Table] = []
    figures: list[Path] = []
    sections: list[Section] = []
    for cell in results.cells:
        section = _cell_section(cell, audits, folder / "figures", seed)
        sections.append(section)
        tables += section.tables
        figures += [
            path for figure in section.figures for path in (figure.path, figure.path.with_suffix(".png"))
        ]
    data = (*dataset_tables(cards), leakage_table(audits))
    sections.append(_data_section(data))
    tables += data
    training = _training_section(inputs, folder / "figures")
    if training is not None:
        sections.append(training)
        figures += [path for f in training.figures for path in (f.path, f.path.with_suffix(".png"))]
    sections.append(_provenance_section(results, inputs.provenance))
    headline = summarise(results, flat_numbers(audits, cards))
    write_json(folder / "summary.json", headline)
    write_json(folder / "metrics.json", headlines(results))
    written = tuple(path for table in tables for path in write_table(table, folder / "tables"))
    write_page(folder / "index.html", _TITLE, _lead(results), tuple(sections))
    page, summary, metrics = (folder / n for n in ("index.html", "summary.json", "metrics.json"))
    return ReportFiles(page, summary, metrics, written, tuple(figures), headline)


def _cell_section(cell: Cell, audits: Sequence[Audit], figures: Path, seed: int) -> Section:
    paper = tile_table_of_paper(cell.split)
    if paper is not None:
        cell = replace(cell, programs=paper.ordered(cell.programs))
    svg, _ = write_tile_figure(cell, paper, figures)
    alt = (
        f"Bar chart of Tile-Size APE and Kendall's tau per test program, {cell.split} split, {cell.chip}; "
        "the numbers are in the table below."
    )
    caption = (
        "Tile-Size APE (above, lower is better) and Kendall's τ (below, higher is better) per test program. "
        "Filled bars are ours; hatched bars, where there are any, are printed in the paper. Numbers with an "
        "arrow lie beyond the axis."
    )
    figure = PageFigure(svg, alt, caption)
    tables = tuple(t for t in (tile_table(cell, paper), comparison_table(cell, seed)) if t.rows)
    title = f"Tile sizes, {SPLIT_NAMES.get(cell.split, cell.split)}, {cell.chip}"
    paragraphs = (_findings(cell), _leak_sentence(cell, audits))
    label = f"{cell.split.capitalize()} split, {cell.chip}"
    return Section(cell.name, title, label, tuple(p for p in paragraphs if p), (figure,), tables)


def _findings(cell: Cell) -> str:
    """What the numbers say, in words that follow from them."""
    parts = []
    for model in cell.models:
        found = averages(cell, model)
        if "ape_mean" in found and "tau_mean" in found:
            parts.append(f"{model}: APE {found['ape_mean']:.1f}%, τ {found['tau_mean']:.2f}")
    over = f"Geometric mean of the APE and mean of τ over {len(cell.programs)} test programs."
    return f"{over} {'; '.join(parts)}."


def _leak_sentence(cell: Cell, audits: Sequence[Audit]) -> str:
    for audit in audits:
        if (audit.split, audit.chip) == (cell.split, cell.chip):
            shares = (100 * audit.test.share_of_kernels, 100 * audit.test.share_of_runtime)
            return (
                f"{shares[0]:.1f}% of the test kernels, with {shares[1]:.1f}% of the test runtime, occur "
                "in training programs too."
            )
    return ""


def _data_section(tables: tuple[Table, ...]) -> Section:
    text = (
        "Real XLA programs, compiled by the project's own compiler and measured on simulated chips: each "
        "tile size three times, with noise, the minimum kept. A test kernel that also occurs in training "
        "makes the test easier, so these are counted."
    )
    return Section("data", "Data set and leakage audit", "Data set", (text,), (), tables)


def _training_section(inputs: ReportInputs, figures: Path) -> Section | None:
    curves = {name: read_history(path, inputs.curve) for name, path in sorted(inputs.histories.items())}
    curves = {name: points for name, points in curves.items() if points}
    if not curves:
        return None
    svg, _ = write_curve_figure("training", curves, inputs.curve.replace("_", " "), figures)
    alt = f"Curves of {inputs.curve} against the epoch, one line for each of {len(curves)} training runs."
    figure = PageFigure(
        svg, alt, f"{inputs.curve} on the validation programs after each epoch, one line a run."
    )
    return Section("training", "Training", "Training", (), (figure,))


def _provenance_section(results: Results, more: Mapping[str, str]) -> Section:
    names = {"params_digest": "parameters", "data_digest": "samples", "git_revision": "code"}
    found = tuple((label, ", ".join(results.identities(field))) for field, label in names.items())
    text = "The same parameters and the same code give the same numbers, byte for byte."
    return Section(
        "provenance", "Where the numbers come from", "Provenance", (text,), facts=found + tuple(more.items())
    )


def _lead(results: Results) -> str:
    chips = results.identities("chip")
    programs = {program for cell in results.cells for _, program in cell.programs}
    return (
        f"A learned and a hand-written cost model rank the tile sizes of {len(programs)} unseen XLA programs "
        f"on {' and '.join(chips)} (simulated), beside baselines and the paper that posed the task."
    )
