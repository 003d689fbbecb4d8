"""Results of the stage `autotune` by task, split and chip, and the ways of searching, bars of its figures.

Rows have the type of those of evaluation with other meanings: `model` is the way of searching, `variant` its
budget, `seed` the repeat; of tile sizes it is the network of the model, and networks count as repeats here.
They are kept separate from evaluation results, whose variants are trained models. A model has the same colour
as in other figures; a bar without filling had few or no measurements.
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
from costbench.reports.frame import frame_of, split_by, split_user_programs
from costbench.reports.papers.printed import main_table
from costbench.reports.results import BEST, FOLDS, GAINS, Division
from costbench.tasks import TASKS, task_order

SPEEDUP, SLOWDOWN = "speedup", "slowdown"
MEASURED, SECONDS, PREDICTED = "num_measured", "hardware_seconds", "num_predicted"
_ORDER = (FOLDS, "random", GAINS, "manual")
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
        """Returns where a fusion search sets out from."""
        match = _MINUTES.fullmatch(self.budget)
        return None if match is None else match[1]

    @property
    def minutes(self) -> float | None:
        """Minutes of hardware of a fusion search."""
        match = _MINUTES.fullmatch(self.budget)
        return None if match is None else float(match[2])


@dataclass(frozen=True)
class SearchResults(Division):
    """All searches of one task, split (`gains` for the programs that gain most) and chip.

    Attributes:
        programs: (application, program) pairs, in the order of the paper's tables.
        frame: their rows (see `costbench.reports.frame`).
    """

    programs: tuple[tuple[str, str], ...]
    frame: pd.DataFrame = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """`random_tpu_v2`: names files."""
        return f"{self.split}_{self.chip}"

    @cached_property
    def bars(self) -> tuple[Bar, ...]:
        """Returns all ways of searching that have speed-ups, sorted."""
        bars = self.frame.loc[self.frame["metric"] == SPEEDUP, ["model", "budget"]].drop_duplicates()
        return tuple(sorted(Bar(*pair) for pair in bars.itertuples(index=False)))

    @cached_property
    def _values(self) -> Mapping[tuple[str, str, str, str], tuple[float, ...]]:
        """Returns model, budget, metric and program -> a value for each repeat, in order of repeats."""
        # Rows are sorted, and rows that differ only in their seed lie side by side.
        groups = self.frame.groupby(["model", "budget", "metric", "program"])["value"]
        return groups.agg(tuple).to_dict()  # type: ignore[return-value]

    def repeats(self, bar: Bar, metric: str, program: str) -> tuple[float, ...]:
        """Returns a value for each repeat; none where it was not run."""
        return self._values.get((bar.model, bar.budget, metric, program), ())

    def score(self, bar: Bar, metric: str, program: str) -> float | None:
        """Returns the median over repeats of searches, or the mean over networks that choose tile sizes.

        It is None where it was not run. A median would hide what one network of three may cost a program.
        """
        values = self.repeats(bar, metric, program)
        if not values:
            return None
        return float(np.median(values) if TASKS[self.task].measures_programs else np.mean(values))

    def fact(self, name: str, program: str) -> float | None:
        """Returns a number that depends on no search, such as that of tile sizes, or None without it."""
        return self.score(Bar(BEST, MAIN), name, program)

    def over_programs(self, bar: Bar, metric: str) -> list[float]:
        """Returns the scores in order of programs, those without left out."""
        scores = (self.score(bar, metric, program) for _, program in self.programs)
        return [score for score in scores if score is not None]

    def mean(self, bar: Bar, metric: str) -> float | None:
        """Returns the mean over programs, None where it was not run.

        It is geometric of speed-ups, arithmetic of everything else.
        """
        scores = self.over_programs(bar, metric)
        if not scores:
            return None
        return geometric_mean(scores) if metric == SPEEDUP else float(np.mean(scores))

    def complete(self, *bars: Bar) -> bool:
        """Returns whether all were run on the same programs, so that their averages can be compared."""
        ran = [
            {program for _, program in self.programs if self.repeats(bar, SPEEDUP, program)} for bar in bars
        ]
        return bool(ran) and bool(ran[0]) and all(programs == ran[0] for programs in ran)

    def fewer_seconds(self, bar: Bar, than: Bar) -> float | None:
        """Returns how many times fewer hardware seconds a bar was charged, all programs together.

        None unless both were run on the same programs.
        """
        if not self.complete(bar, than):
            return None
        seconds, others = (sum(self.over_programs(one, SECONDS)) for one in (bar, than))
        return others / seconds if seconds > 0.0 else None


@dataclass(frozen=True)
class Searches:
    """All results of the stage `autotune`, tile before fusion.

    Attributes:
        frame: their rows on programs of the corpus.
        user_rows: rows of a user's programs.
    """

    frame: pd.DataFrame = field(default_factory=lambda: frame_of(()))
    user_rows: pd.DataFrame = field(default_factory=lambda: frame_of(()))

    @property
    def of_user(self) -> Searches:
        """Returns the searches that tuned a user's own programs."""
        return Searches(self.user_rows)

    @cached_property
    def results(self) -> tuple[SearchResults, ...]:
        """Results by task; those of folds first, then those of the random split."""

        def rank(key: tuple[str, ...]) -> tuple[object, ...]:
            return task_order(key[0]), (*_ORDER, key[1]).index(key[1]), *key

        groups, all_results = split_by(self.frame, ("task", "split", "chip")), []
        for key in sorted(groups, key=rank):
            task, split, chip = key
            pairs = groups[key][["application", "program"]].itertuples(index=False, name=None)
            programs, paper = tuple(sorted(set(pairs))), main_table(task, split)
            programs = programs if paper is None else paper.ordered(programs)
            all_results.append(SearchResults(task, split, chip, programs, groups[key]))
        return tuple(all_results)

    def of(self, task: str) -> tuple[SearchResults, ...]:
        """Returns the results of a task."""
        return tuple(results for results in self.results if results.task == task)

    def beside(self, results: SearchResults) -> SearchResults | None:
        """Returns those of programs that gain most, beside the first split of the same task and chip."""
        by_split = {one.split: one for one in self.of(results.task) if one.chip == results.chip}
        return by_split.get(GAINS) if results.split == next(iter(by_split)) != GAINS else None


def load_searches(path: str | PathLike[str] | None) -> Searches:
    """Returns the searches in a file of rows; none without a file.

    Raises:
        DataError: for a file that is missing or malformed (see `read_rows`).
    """
    return Searches() if path is None else searches_of(frame_of(read_rows(path), "autotune"))


def searches_of(frame: pd.DataFrame) -> Searches:
    """Returns the searches that sorted rows of the stage `autotune` are of, whose variants are budgets."""
    return Searches(*split_user_programs(frame.assign(budget=frame["variant"], variant=MAIN)))


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
"""Minutes of hardware in figure 5 of lpm2021 and figure 4 of lpm2020."""
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
    """Returns the colour that a model, or a search with it, is drawn in."""
    return _BAR_COLOURS.get(model, "#777777")


def title(bar: Bar) -> str:
    """Returns the bar in words: `learned 10`, `model, then hardware 1 min`."""
    if bar.minutes is not None:
        return f"{FUSION_MODELS.get(bar.model, bar.model)} {bar.minutes:g} min"
    name = TILE_TITLES.get(bar.model, bar.model)
    if bar.budget == "compiler":
        return f"{name} 1, in the compiler"
    return name if bar.top_k is None else f"{name} {bar.top_k}"


def bar_key(bar: Bar) -> str:
    """Returns the bar as part of names of columns: `learned_top10`, `model_and_hardware_1m`."""
    budget = bar.budget if bar.start is None else bar.budget.removeprefix(f"{bar.start}-")
    return f"{bar.model}_{budget}".replace(" ", "_")


def figure_5(start: str, paper: str) -> tuple[Bar, ...]:
    """Returns the bars of the papers' figures of fusion searches from one start, best known left out.

    Args:
        start: `default` or `random`.
        paper: paper whose minutes of hardware are shown.
    """
    names = [name for name in FUSION_MODELS if name != BEST_KNOWN]
    return tuple(Bar(name, f"{start}-{number:g}m") for name in names for number in MINUTES[paper])


def best_known(results: SearchResults) -> tuple[Bar, ...]:
    """Returns the best of all fusion searches; nothing where there were none."""
    return bars_with_results((BEST_OF_ALL,), results)


def bars_with_results(bars: Sequence[Bar], *all_results: SearchResults) -> tuple[Bar, ...]:
    """Returns those of the bars that were run in any of the results."""
    ran = {bar for results in all_results for bar in results.bars}
    return tuple(bar for bar in bars if bar in ran)


def absent(bars: Sequence[Bar], *all_results: SearchResults) -> str:
    """Returns a sentence that names the bars which were not run; an empty one if all were."""
    lacking = [title(bar) for bar in bars if bar not in bars_with_results(bars, *all_results)]
    return f"Not run here: {'; '.join(lacking)}." if lacking else ""
