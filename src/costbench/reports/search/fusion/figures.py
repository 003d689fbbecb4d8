"""Fusion searches with and without a model: lpm2021's figure 5 and lpm2020's figure 4, ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from costbench.reports.figures.canvas import save, styled
from costbench.reports.search.axes import Groups, draw_speedups
from costbench.reports.search.bars import MINUTES, STARTS, best_known, figure_5, there
from costbench.reports.search.results import Place

FIGURES = {"lpm2021": "figure5", "lpm2020": "figure4"}
_HEADERS = {"random": "test programs", "manual": "test programs", "gains": "programs that gain most"}


def write_fusion_figure(places: Sequence[Place], paper: str, folder: Path) -> tuple[Path, ...]:
    """Bars of the speed-up over the default configuration, per program, from either start.

    Bars are medians over repeats, whiskers go from the lowest to the highest. Writes
    `lpm2021_figure5_<split>_<chip>.svg` (`lpm2020_figure4_...`) and `.png`; the paths, or none where neither
    start was run with the paper's minutes.

    Args:
        places: side by side; the first names the files.
        paper: `lpm2021` or `lpm2020`.
        folder: where to.

    Raises:
        DataError: if a file cannot be written.
    """
    bars = {start: there(figure_5(start, paper), *places) for start in STARTS}
    starts = [start for start in STARTS if bars[start]]
    if not starts:
        return ()
    groups = Groups(tuple(places), tuple(_HEADERS.get(place.split, place.split) for place in places))
    plain = Groups(groups.places, tuple("" for _ in places))
    known = tuple(dict.fromkeys(bar for place in places for bar in best_known(place)))
    least = min(MINUTES[paper])
    with styled():
        size = (max(9.5, 0.95 * len(groups.ticks) + 0.8), 2.9 * len(starts) + 0.9)
        figure = Figure(figsize=size, layout="constrained")
        panels = figure.subplots(len(starts), 1, squeeze=False, sharex=True)[:, 0]
        for number, (axes, start) in enumerate(zip(panels, starts, strict=True)):
            shown = (*bars[start], *known)
            empty = [b for b in bars[start] if b.minutes == least and len(MINUTES[paper]) > 1]
            draw_speedups(axes, plain if number else groups, shown, empty)
            axes.set_ylabel(f"from {STARTS[start]}\nspeed-up over the default")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=min(3, len(labels)), frameon=False)
        return save(figure, folder / f"{paper}_{FIGURES[paper]}_{places[0].name}")
