"""All tables, figures and the page of a run, from what its stages left behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from costbench.artifacts import write_json
from costbench.reports.data_section import data_section
from costbench.reports.dataset_card import flat_counts, read_cards
from costbench.reports.evidence import flat_leaks, read_audits, read_counts, read_history
from costbench.reports.figures import write_curve_figure
from costbench.reports.page import PageFigure, Section, write_page
from costbench.reports.rendering import write_table
from costbench.reports.result_sections import Evidence, analytical_section, cell_section
from costbench.reports.results import Results, load_results
from costbench.reports.summary import headlines, summarise

_TITLE = "How well do cost models choose tile sizes?"


@dataclass(frozen=True)
class ReportInputs:
    """Files that a report is made of.

    Attributes:
        rows: result rows.
        audits: `leakage.json`.
        counts: `counts.json`.
        card: `card.json`.
        histories: name of a training run -> its curve as CSV.
        curve: column of the curves that is drawn.
        provenance: what else says where the numbers come from, name -> value.
    """

    rows: Path
    audits: Path
    counts: Path
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
    evidence = Evidence(audits, folder / "figures", seed)
    sections = [
        *(cell_section(results, cell, evidence) for cell in results.cells),
        analytical_section(results),
        data_section(cards, read_counts(inputs.counts), audits, folder / "figures"),
        _training_section(inputs, folder / "figures"),
        _provenance_section(results, inputs.provenance),
    ]
    shown = tuple(section for section in sections if section is not None)
    headline = summarise(results, flat_leaks(audits) | flat_counts(cards))
    write_json(folder / "summary.json", headline)
    write_json(folder / "metrics.json", headlines(results))
    tables = [table for section in shown for table in section.tables]
    written = tuple(path for table in tables for path in write_table(table, folder / "tables"))
    svgs = [figure.path for section in shown for figure in section.figures]
    figures = tuple(path for svg in svgs for path in (svg, svg.with_suffix(".png")))
    write_page(folder / "index.html", _TITLE, _lead(results), shown)
    page, summary, metrics = (folder / n for n in ("index.html", "summary.json", "metrics.json"))
    return ReportFiles(page, summary, metrics, written, figures, headline)


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
