"""The parts of the page about single predictions, and about where all numbers come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from costbench.reports.figures.programs import read_scatter, write_scatter_figures
from costbench.reports.page import FIRST, PageFigure, Section
from costbench.reports.results import Results
from costbench.reports.search.results import Searches


def scatter_section(files: Sequence[Path], figures: Path) -> Section | None:
    """Returns predicted against measured runtimes, a figure for each task, split and chip; None without any.

    Args:
        files: predicted and measured times, `scatter.json` of each experiment.
        figures: folder that figures go to.

    Raises:
        DataError: for a file that is something else, or a figure that cannot be written.
    """
    scatters = [scatter for path in files for scatter in read_scatter(path)]
    written = write_scatter_figures(scatters, figures)
    shown = []
    for name, path in written.items():
        where = ", ".join(name.removeprefix("predicted_").split("_", 2))
        alt = f"Predicted against measured runtimes of test kernels, a panel for each model; {where}."
        caption = f"{where}: each dot a test kernel; the line is where predictions are right; dotted: 5 µs."
        shown.append(PageFigure(path, alt, caption))
    title = "Predicted and measured runtimes"
    if not shown:
        return None
    return Section("predicted", title, title, figures=tuple(shown), folded_figures=True, page="models")


def provenance_section(results: Results, searches: Searches, more: Mapping[str, str]) -> Section:
    """Returns the digests of parameters, samples and code.

    Args:
        results: of evaluation.
        searches: of the stage `autotune`.
        more: what else says where the numbers come from, name -> value.
    """
    # Not the revision: a report that is committed would always name the commit before its own.
    names = {"params_digest": "parameters", "data_digest": "samples"}
    found = tuple((label, ", ".join(results.identities(field))) for field, label in names.items())
    if len(searches.frame):
        digests = sorted(searches.frame["params_digest"].unique())
        found += (("parameters, searches included", ", ".join(digests)),)
    text = "The same parameters and the same code give the same numbers, byte for byte."
    return Section(
        "provenance",
        "Where the numbers come from",
        "Provenance",
        (text,),
        facts=found + tuple(more.items()),
        page=FIRST,
    )
