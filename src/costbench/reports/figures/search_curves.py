"""Draws the best-so-far speed-up of fusion searches against hardware time, averaged over programs.

A program's curve, from the stage `autotune`, is a step line: the median over repeats of the best so far. The
figure shows the geometric mean over programs at every time that occurs in one of the curves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from costbench.arrays import F64
from costbench.reports.dataset_files import read_list
from costbench.reports.figures.canvas import PALETTE, drawing, legend_above, save
from costbench.reports.searches import (
    BEST_KNOWN,
    FUSION_MODELS,
    SPEEDUP,
    STARTS,
    SearchResults,
    best_known,
    colour,
)

_STYLES = {
    "hardware": "solid",
    "model and hardware": "solid",
    "hybrid and hardware": "dashed",
    "analytical and hardware": "dashdot",
}


@dataclass(frozen=True)
class SearchPath:
    """Progress of the searches of one program, start and way of searching.

    `median`, `lowest` and `highest` are over repeats.

    Attributes:
        task: decision of the compiler.
        split: how the program was chosen.
        chip: what was measured on.
        program: by name.
        model: what searched.
        start: start of the searches: `default` or `random`.
        seconds: seconds of hardware charged, ascending from 0.
        median: speed-up of the best so far.
        lowest: lowest speed-up of the best so far.
        highest: highest speed-up of the best so far.
    """

    task: str
    split: str
    chip: str
    program: str
    model: str
    start: str
    seconds: tuple[float, ...]
    median: tuple[float, ...]
    lowest: tuple[float, ...]
    highest: tuple[float, ...]

    def __post_init__(self) -> None:
        lengths = {len(self.seconds), len(self.median), len(self.lowest), len(self.highest)}
        if len(lengths) != 1 or not self.seconds:
            raise ValueError("seconds, median, lowest and highest: equally many, at least one")
        if any(late < early for early, late in zip(self.seconds, self.seconds[1:], strict=False)):
            raise ValueError("seconds: ascending")
        if min(self.median) <= 0.0:
            raise ValueError("median: above 0")


def read_paths(path: Path | None) -> tuple[SearchPath, ...]:
    """Returns the curves in `search.json`; none without a file.

    Raises:
        DataError: naming the file and the entry, if it is something else.
    """
    return () if path is None else read_list(SearchPath, path)


def mean_path(paths: Sequence[SearchPath]) -> tuple[F64, F64]:
    """Returns seconds and geometric mean over programs, [n] and [n]."""
    seconds = np.unique(np.concatenate([np.asarray(path.seconds, dtype=np.float64) for path in paths]))
    logs = [np.log(np.asarray(path.median, dtype=np.float64))[_last(path, seconds)] for path in paths]
    return seconds, np.exp(np.mean(logs, axis=0))


def _last(path: SearchPath, seconds: F64) -> npt.NDArray[np.intp]:
    """Returns for each time the index of the last point that is not later."""
    return np.maximum(np.searchsorted(np.asarray(path.seconds), seconds, side="right") - 1, 0)


def seconds_to_reach(paths: Sequence[SearchPath], speedup: float) -> float | None:
    """Returns when the mean over programs first reaches `speedup`, up to rounding errors; None if never."""
    seconds, means = mean_path(paths)
    reached = means >= speedup * (1.0 - 1e-9)
    return float(seconds[np.argmax(reached)]) if reached.any() else None


def paths_from_start(
    paths: Sequence[SearchPath], results: SearchResults, start: str
) -> dict[str, list[SearchPath]]:
    """Returns the curves from one start by way of searching, in the order of figures."""
    key = (results.task, results.split, results.chip, start)
    from_start = [path for path in paths if (path.task, path.split, path.chip, path.start) == key]
    models = (model for model in FUSION_MODELS if model != BEST_KNOWN)
    by_model = {model: [path for path in from_start if path.model == model] for model in models}
    return {model: of_model for model, of_model in by_model.items() if of_model}


def write_path_figure(paths: Sequence[SearchPath], results: SearchResults, folder: Path) -> tuple[Path, ...]:
    """Draws the speed-up over the default against minutes of hardware, a panel for each start.

    Writes `fusion_search_<split>_<chip>.svg` and `.png`; the paths, or none without curves.

    Raises:
        DataError: if a file cannot be written.
    """
    by_start = {start: paths_from_start(paths, results, start) for start in STARTS}
    starts = [start for start in STARTS if by_start[start]]
    if not starts:
        return ()
    with drawing((4.3 * len(starts) + 0.4, 3.4), columns=len(starts)) as (figure, (panels,)):
        for axes, start in zip(panels, starts, strict=True):
            for model, of_model in by_start[start].items():
                seconds, means = mean_path(of_model)
                (line,) = axes.step(seconds / 60.0, means, where="post", label=FUSION_MODELS[model])
                line.set(color=colour(model), linestyle=_STYLES.get(model, "dotted"))
            for bar in best_known(results):
                mean = results.mean(bar, SPEEDUP)
                if mean is not None:
                    hue = colour(bar.model)
                    axes.axhline(mean, color=hue, linewidth=1.0, linestyle="dotted", label=BEST_KNOWN)
            axes.set_title(f"from {STARTS[start]}", fontsize=9.0)
            axes.set_xlabel("minutes of hardware")
        panels[0].set_ylabel("speed-up over the default,\ngeometric mean over programs")
        legend_above(figure, panels[0], 4)
        return save(figure, folder / f"fusion_search_{results.name}")


_NS_PER_MS = 1e6


def draw_search(
    stem: Path,
    title: str,
    default_ns: float,
    seconds: Sequence[float],
    best_ns: Sequence[float],
    measured_ns: Sequence[float] = (),
) -> tuple[Path, ...]:
    """Draws the best runtime over time; writes `<stem>.svg` and `<stem>.png`, and returns the paths.

    Args:
        stem: path of the files without ending.
        title: names of the program and the task.
        default_ns: runtime under the default decisions.
        seconds: hardware time charged up to each measurement, ascending.
        best_ns: runtime of the program with what was found by then.
        measured_ns: runtime of the program with what was measured just then, where that makes sense.

    Raises:
        DataError: if one cannot be written.
    """
    with drawing((6.0, 3.2)) as (figure, ((axes,),)):
        axes.axhline(default_ns / _NS_PER_MS, color=PALETTE[-1], linewidth=0.8, linestyle="--")
        if measured_ns:
            times = [time / _NS_PER_MS for time in measured_ns]
            axes.plot(seconds, times, ".", color=PALETTE[4], markersize=3, label="measured")
        times = [default_ns / _NS_PER_MS, *(time / _NS_PER_MS for time in best_ns)]
        axes.step([0.0, *seconds], times, where="post", color=PALETTE[0], label="best so far")
        axes.annotate(
            "default", (1.0, default_ns / _NS_PER_MS), xycoords=("axes fraction", "data"),
            ha="right", va="bottom", fontsize=8,
        )  # fmt: skip
        axes.set_xlabel("hardware time charged (s)")
        axes.set_ylabel("runtime of the program (ms)")
        axes.set_title(title, loc="left")
        figure.legend(frameon=False, loc="outside lower center", ncols=2)
        return save(figure, stem)
