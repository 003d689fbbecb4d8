"""Groups the rows of the stage `autotune`: a place is a task, split and chip; a bar is a way of searching.

Rows have the type of those of evaluation with other meanings: `model` is the way of searching, `variant` its
budget, `seed` the repeat. They are kept separate from evaluation results, whose variants are trained models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike

import numpy as np
import pandas as pd

from costbench.metrics.measures import geometric_mean
from costbench.metrics.rows import MAIN, read_rows
from costbench.reports.figures.programs import COLOURS
from costbench.reports.frame import frame_of, split_by
from costbench.reports.papers.numbers import table_of_paper
from costbench.reports.results import BEST
from costbench.tasks import task_order

GAINS = "gains"
"""In place of a split: test programs of other splits that gain most from exhaustive search."""
SPEEDUP, SLOWDOWN = "speedup", "slowdown"
MEASURED, SECONDS, PREDICTED = "num_measured", "hardware_seconds", "num_predicted"
_SPLITS = ("random", GAINS, "manual")
_TOP = re.compile(r"top(\d+)")
_MINUTES = re.compile(r"(default|random)-(\d+(?:\.\d+)?)m")


@dataclass(frozen=True, order=True)
class Bar:
    """A way of searching and its budget (`top10`, `default-1m`)."""

    model: str
    budget: str

    @property
    def top_k(self) -> int | None:
        """Tile sizes measured per kernel, where the budget is that."""
        match = _TOP.fullmatch(self.budget)
        return None if match is None else int(match[1])

    @property
    def start(self) -> str | None:
        """Where a fusion search sets out from."""
        match = _MINUTES.fullmatch(self.budget)
        return None if match is None else match[1]

    @property
    def minutes(self) -> float | None:
        """Of hardware, of a fusion search."""
        match = _MINUTES.fullmatch(self.budget)
        return None if match is None else float(match[2])


@dataclass(frozen=True)
class Place:
    """All searches of one task, split and chip.

    Attributes:
        task: the compiler's decision.
        split: how programs were chosen; `gains` for those that gain most.
        chip: what was measured on.
        programs: (application, program), in the order of the paper's tables.
        bars: all that have speed-ups, sorted.
        values: (bar, metric, program) -> one a repeat, in order of repeats.
    """

    task: str
    split: str
    chip: str
    programs: tuple[tuple[str, str], ...]
    bars: tuple[Bar, ...]
    values: Mapping[tuple[Bar, str, str], tuple[float, ...]] = field(repr=False)

    @property
    def name(self) -> str:
        """`random_tpu_v2`: names files."""
        return f"{self.split}_{self.chip}"

    def repeats(self, bar: Bar, metric: str, program: str) -> tuple[float, ...]:
        """One value a repeat; empty where it was not run."""
        return self.values.get((bar, metric, program), ())

    def score(self, bar: Bar, metric: str, program: str) -> float | None:
        """Median over repeats, or None where it was not run."""
        found = self.repeats(bar, metric, program)
        return float(np.median(found)) if found else None

    def fact(self, name: str, program: str) -> float | None:
        """A number that depends on no search, such as the number of tile sizes; None where it is missing."""
        return self.score(Bar(BEST, MAIN), name, program)

    def over_programs(self, bar: Bar, metric: str) -> list[float]:
        """Scores in order of programs, those without left out."""
        found = (self.score(bar, metric, program) for _, program in self.programs)
        return [value for value in found if value is not None]

    def mean(self, bar: Bar, metric: str) -> float | None:
        """Over programs: geometric of speed-ups, arithmetic of everything else; None where it was not run."""
        found = self.over_programs(bar, metric)
        if not found:
            return None
        return geometric_mean(found) if metric == SPEEDUP else float(np.mean(found))

    def complete(self, *bars: Bar) -> bool:
        """Whether all of them were run on the same programs, so that their averages can be compared."""
        ran = [
            {program for _, program in self.programs if self.repeats(bar, SPEEDUP, program)} for bar in bars
        ]
        return bool(ran) and bool(ran[0]) and all(one == ran[0] for one in ran)

    def fewer_seconds(self, bar: Bar, than: Bar) -> float | None:
        """How many times fewer hardware seconds a bar was charged, all programs together; None if unknown."""
        if not self.complete(bar, than):
            return None
        own, other = (sum(self.over_programs(one, SECONDS)) for one in (bar, than))
        return other / own if own > 0.0 else None


@dataclass(frozen=True)
class Searches:
    """All places of the stage `autotune`, tile before fusion.

    Attributes:
        frame: their rows.
    """

    frame: pd.DataFrame = field(default_factory=lambda: frame_of(()))

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """By task; the random split first."""
        groups = split_by(self.frame, ("task", "split", "chip"))
        ordered = sorted(groups, key=lambda key: (task_order(key[0]), _by_split(key[1]), *key))
        return tuple(_place(key, groups[key]) for key in ordered)

    def of(self, task: str) -> tuple[Place, ...]:
        """The places of a task."""
        return tuple(place for place in self.places if place.task == task)

    def beside(self, place: Place) -> Place | None:
        """The programs that gain most, beside the random split of the same task and chip."""
        if place.split != "random":
            return None
        places = (other for other in self.of(place.task) if (other.split, other.chip) == (GAINS, place.chip))
        return next(places, None)


def load_searches(path: str | PathLike[str] | None) -> Searches:
    """The searches in a file of rows; none without a file.

    Raises:
        DataError: for a file that is missing or malformed (see `read_rows`).
    """
    if path is None:
        return Searches()
    frame = frame_of(read_rows(path), "autotune")
    return Searches(frame.assign(budget=frame["variant"], variant=MAIN))


def _by_split(split: str) -> int:
    return _SPLITS.index(split) if split in _SPLITS else len(_SPLITS)


def _place(key: tuple[str, ...], frame: pd.DataFrame) -> Place:
    task, split, chip = key
    programs = tuple(sorted(set(frame[["application", "program"]].itertuples(index=False, name=None))))
    paper = table_of_paper(task, split)
    # Rows are sorted, and rows that differ only in their seed lie side by side.
    values = frame.groupby(["model", "budget", "metric", "program"])["value"].agg(tuple)
    bars = frame.loc[frame["metric"] == SPEEDUP, ["model", "budget"]].drop_duplicates()
    return Place(
        task,
        split,
        chip,
        programs=programs if paper is None else paper.ordered(programs),
        bars=tuple(sorted(Bar(*pair) for pair in bars.itertuples(index=False))),
        values={
            (Bar(model, budget), metric, program): several
            for model, budget, metric, program, several in values.reset_index().itertuples(
                index=False, name=None
            )
        },
    )


TOP_K = 10
"""Tile sizes per kernel that lpm2021's figure 4 measures."""
EXHAUSTIVE = Bar("exhaustive", "all")
IN_COMPILER = Bar("learned", "compiler")
BEST_KNOWN = "best known"
BEST_OF_ALL = Bar(BEST_KNOWN, "all")
"""Fastest fusion config of all searches of a program, and of one more that is free of charge."""
CANDIDATES = Bar("sample", "all")
"""All tile sizes that models rank."""
TILE_MODELS = ("learned", "tuned", "hybrid", "alternating", "analytical", "random")
TILE_TITLES: Mapping[str, str] = {"tuned": "best of sweep", CANDIDATES.model: "all candidates"}
FIGURE_4: tuple[Bar, ...] = (
    EXHAUSTIVE,
    IN_COMPILER,
    *(Bar(model, f"top{TOP_K}") for model in ("learned", "hybrid", "alternating", "analytical", "random")),
)
"""Bars of lpm2021's figure 4; it has neither hybrid ones nor random."""
FUSION_MODELS: Mapping[str, str] = {
    "hardware": "hardware",
    "model and hardware": "model, then hardware",
    "hybrid and hardware": "hybrid, then hardware",
    "analytical and hardware": "analytical, then hardware",
    BEST_KNOWN: "best known",
}
MINUTES: Mapping[str, tuple[float, ...]] = {"lpm2021": (1.0, 10.0), "lpm2020": (5.0,)}
"""Of hardware, in figure 5 of lpm2021 and figure 4 of lpm2020."""
STARTS: Mapping[str, str] = {"default": "the compiler's default", "random": "a random configuration"}
_BAR_COLOURS: Mapping[str, str] = {
    **COLOURS,
    "exhaustive": "#222222",
    "alternating": "#009E73",
    "hardware": "#D55E00",
    "model and hardware": COLOURS["learned"],
    "hybrid and hardware": COLOURS["hybrid"],
    "analytical and hardware": COLOURS["analytical"],
    BEST_KNOWN: "#222222",
}


def colour(model: str) -> str:
    """Of everything that a model, or a search with it, is drawn with."""
    return _BAR_COLOURS.get(model, "#777777")


def title(bar: Bar) -> str:
    """`learned 10`, `model, then hardware 1 min`."""
    if bar.minutes is not None:
        return f"{FUSION_MODELS.get(bar.model, bar.model)} {bar.minutes:g} min"
    name = TILE_TITLES.get(bar.model, bar.model)
    if bar.budget == "compiler":
        return f"{name} 1, in the compiler"
    return name if bar.top_k is None else f"{name} {bar.top_k}"


def key(bar: Bar) -> str:
    """The bar as part of names of columns: `learned_top10`, `model_and_hardware_1m`."""
    budget = bar.budget if bar.start is None else bar.budget.removeprefix(f"{bar.start}-")
    return f"{bar.model}_{budget}".replace(" ", "_")


def figure_5(start: str, paper: str) -> tuple[Bar, ...]:
    """Bars of the papers' figures of fusion searches from one start, best known left out.

    Args:
        start: `default` or `random`.
        paper: whose minutes of hardware.
    """
    names = [name for name in FUSION_MODELS if name != BEST_KNOWN]
    return tuple(Bar(name, f"{start}-{number:g}m") for name in names for number in MINUTES[paper])


def best_known(place: Place) -> tuple[Bar, ...]:
    """The best of all fusion searches; nothing where there were none."""
    return there((BEST_OF_ALL,), place)


def there(bars: Sequence[Bar], *places: Place) -> tuple[Bar, ...]:
    """Those of the bars that were run anywhere in the places."""
    ran = {bar for place in places for bar in place.bars}
    return tuple(bar for bar in bars if bar in ran)


def absent(bars: Sequence[Bar], *places: Place) -> str:
    """A sentence that names those which were not run; empty if all were."""
    lacking = [title(bar) for bar in bars if bar not in there(bars, *places)]
    return f"Not run here: {'; '.join(lacking)}." if lacking else ""
