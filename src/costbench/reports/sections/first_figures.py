"""Figures of the page's first section: the hybrid beside its parts, and what tuning with a model gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from costbench.reports.baseline_comparison import Standings
from costbench.reports.figures.programs import write_hybrid_figure
from costbench.reports.page import PageFigure
from costbench.reports.results import PRIMARY_CHIP, SPLIT_NAMES, Cell
from costbench.reports.search.figures import write_tune_figure
from costbench.reports.search.results import TOP_K, Place, Searches
from costbench.tasks import LEARNED

_SPLIT = "random"
"""Few enough programs to name them all."""


def overview_figures(
    cells: Sequence[Cell], found: Mapping[str, Standings], searches: Searches, folder: Path
) -> tuple[PageFigure, ...]:
    """Returns the figures whose results are there.

    Args:
        cells: main results of learned tasks.
        found: by name of cell, how its models stand to the strongest baseline.
        searches: of the stage `autotune`.
        folder: where figures go.

    Raises:
        DataError: if a figure cannot be written.
    """
    return (*_hybrid(cells, found, folder), *_tune(searches, folder))


def _hybrid(cells: Sequence[Cell], found: Mapping[str, Standings], folder: Path) -> tuple[PageFigure, ...]:
    shown = []
    for task in LEARNED:
        own = [c for c in cells if (c.task, c.split) == (task, _SPLIT) and "hybrid" in c.seeds]
        if own:
            cell = min(own, key=lambda c: (c.chip != PRIMARY_CHIP, c.chip))
            shown.append((cell, found[cell.name].strongest))
    paths = write_hybrid_figure(shown, folder)
    if not paths:
        return ()
    where = "; ".join(dict.fromkeys(f"{SPLIT_NAMES[_SPLIT]}, {cell.chip}" for cell, _ in shown))
    alt = f"Dots of the errors of analytical model, strongest baseline, network and hybrid; {where}."
    caption = (
        "The hybrid, a network that learns what the analytical model gets wrong, beside both and the "
        f"strongest baseline: error of each test program on a logarithmic axis, lower is better. {where}."
    )
    return (PageFigure(paths[0], alt, caption),)


def _tune(searches: Searches, folder: Path) -> tuple[PageFigure, ...]:
    shown: list[Place] = []
    for task in LEARNED:
        own = [place for place in searches.of(task) if place.split == _SPLIT]
        if own:
            shown.append(min(own, key=lambda place: (place.chip != PRIMARY_CHIP, place.chip)))
    paths = write_tune_figure(shown, folder)
    if not paths:
        return ()
    alt = "Dots of what tuning gains in each test program over the compiler's own choice."
    caption = (
        "What tuning with a model, as `costbench tune` does, gains over the compiler's own choice in each "
        "test program. Tile sizes: the learned model's first choice, nothing measured; the best of "
        f"{TOP_K} measured for each kernel, the analytical model's beside them; of all measured. Fusion: the "
        "best found with that many minutes of hardware, after a search on the model, on the analytical model "
        "or on none, and by any search."
    )
    return (PageFigure(paths[0], alt, caption),)
