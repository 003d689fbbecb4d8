"""Views of the result frame: cells of one task, split, chip and group of kernels, seeds averaged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from costbench.baselines import BASELINES as ROWS
from costbench.datasets.splits import RANDOM_FOLDS
from costbench.errors import DataError
from costbench.metrics.measures import Measure, error_measure
from costbench.metrics.rows import MAIN, read_rows
from costbench.reports.frame import ORDER, frame_of, means, select, split_by, split_user_programs, stack
from costbench.reports.scores import ScoreIndex, score_index
from costbench.tasks import LEARNED, Labels, Task, labels_of, task_order

TRAINED = ("learned", "tuned", "hybrid", "lpm2021")
"""Networks, with a seed for each training run."""
BASELINES = tuple(name for name, row in ROWS.items() if not row.is_ceiling)
"""Models without a network, fitted to training programs or not at all."""
MODELS = (*TRAINED, *BASELINES)
"""In the order in which tables and figures show them."""
CEILINGS = tuple(name for name, row in ROWS.items() if row.is_ceiling)
"""Marks of what a model can reach, no models: another measurement, the machine without irregular code."""
TITLES: Mapping[str, str] = {
    "tuned": "best of sweep",
    "lpm2021": "as in lpm2021",
    **{name: row.title for name, row in ROWS.items() if row.title},
}
"""Names of models in tables and figures, where they differ from those in rows."""
BEST = "best"
"""Model name of results that depend on no model: the number of kernels and their best runtime."""
ALL, UNSEEN = "all", "unseen"
KINDS = ("contraction", "reduction", "elementwise", "data movement")
"""Groups of a program's kernels: all, those that training has not seen, those of a kind."""

OWN = "own"
"""The split of an imported data set, which comes with it."""
FOLDS = "folds"
"""The split in which every program is tested once, by the model of the fold that holds it out."""
GAINS = "gains"
"""In place of a split: test programs of other splits that gain most from exhaustive search."""
PRIMARY_CHIP = "tpu_v3"
"""The chip whose timing was fitted to measurements; of the other one nothing was measured."""
SPLIT_NAMES: Mapping[str, str] = {
    "random": "random split",
    "manual": "manual split",
    FOLDS: "folds over applications",
    RANDOM_FOLDS: "folds over programs",
    OWN: "the data set's own split",
    GAINS: "programs that gain most",
}
"""What people call the splits, in the order in which reports show them."""


def split_order(split: str) -> int:
    """Returns the sort key of splits: those of `SPLIT_NAMES` in that order, others behind them."""
    names = list(SPLIT_NAMES)
    return names.index(split) if split in names else len(names)


def title_of(model: str) -> str:
    """Returns what people call a model; one of the user's own, `module:Class`, goes by its class."""
    return TITLES.get(model, model.rpartition(":")[2])


def is_user_model(model: str) -> bool:
    """Returns whether a model is one of the user's own, named by dotted path."""
    return ":" in model


def deviation_over_runs(
    frame: pd.DataFrame, measure: Measure, programs: Sequence[str] | None = None
) -> float | None:
    """Returns the standard deviation over training runs of their means over programs; None with one run.

    Only programs that every run has a value for count.

    Args:
        frame: results of one model.
        measure: metric of the results, which says how programs are averaged.
        programs: names of the programs, in order; sorted if left out.
    """
    rows = frame.drop_duplicates(["program", "seed"], keep="last")
    runs = rows.pivot(index="program", columns="seed", values="value")
    if programs is not None:
        runs = runs.reindex(index=list(programs))
    means_of_runs = [measure.mean(values.tolist()) for _, values in runs.dropna().items()]
    known = [mean for mean in means_of_runs if mean is not None]
    return float(np.std(known, ddof=1)) if len(known) > 1 else None


@dataclass(frozen=True, order=True)
class ChipSplit:
    """A split and a chip that models were tested on."""

    split: str
    chip: str

    @property
    def name(self) -> str:
        """`random_tpu_v3`: names files."""
        return f"{self.split}_{self.chip}"

    @property
    def title(self) -> str:
        """`random split, tpu_v3`."""
        return f"{SPLIT_NAMES.get(self.split, self.split)}, {self.chip}"


@dataclass(frozen=True)
class Division:
    """A task, split and chip that models were tested on.

    Attributes:
        task: decision of the compiler.
        split: how test programs were chosen.
        chip: what was measured.
    """

    task: str
    split: str
    chip: str

    @property
    def name(self) -> str:
        """`tile_random_tpu_v2`: names files."""
        return f"{self.task}_{self.split}_{self.chip}"

    @property
    def where(self) -> str:
        """`random split, tpu_v2`."""
        return ChipSplit(self.split, self.chip).title

    @property
    def described(self) -> Task:
        """Returns the task, with the measures that it has on this split."""
        return described(self.task, self.split)

    @property
    def labels(self) -> Labels:
        """Returns what reports call the task and its parts on this split."""
        assert self.described.labels is not None, f"{self.task} is learned, so it has labels"
        return self.described.labels

    @property
    def words(self) -> dict[str, Any]:
        """Returns the words of declared tables: its names, and titles of the task and its two measures."""
        error, tau = (measure.title for measure in self.described.measures)
        names = {"task": self.task, "split": self.split, "chip": self.chip, "where": self.where}
        titles = {"heading": self.labels.heading, "kernels": self.labels.kernels, "error": error, "tau": tau}
        return names | titles


@dataclass(frozen=True)
class Cell(Division):
    """All results of one task, split, chip and variant over one group of the programs' kernels.

    Attributes:
        programs: (application, program) of the test programs, sorted.
        frame: rows of these results.
        kernels: group of kernels: `all`, `unseen` or a kind.
        variant: `main`, or the ablation that the models are variants for.
    """

    programs: tuple[tuple[str, str], ...]
    frame: pd.DataFrame
    kernels: str = ALL
    variant: str = MAIN

    @cached_property
    def scores(self) -> Mapping[tuple[str, str, str], float]:
        """(model, metric, program) -> mean over seeds."""
        return means(self.frame, ("model", "metric", "program")).to_dict()  # type: ignore[return-value]

    @cached_property
    def seeds(self) -> Mapping[str, tuple[int, ...]]:
        """Returns the seeds of each model."""
        of_models = self.frame.groupby("model")["seed"].unique()
        return {str(model): tuple(sorted(map(int, seeds))) for model, seeds in of_models.items()}

    @property
    def models(self) -> tuple[str, ...]:
        """Returns the models with results, in the order of `MODELS`, others behind by name; no ceilings."""
        known = [model for model in MODELS if model in self.seeds]
        return (*known, *sorted(set(self.seeds) - {*known, BEST, *CEILINGS}))

    @property
    def ceilings(self) -> tuple[str, ...]:
        """Ceilings that have results here, in the order of `CEILINGS`."""
        return tuple(name for name in CEILINGS if name in self.seeds)

    @property
    def is_imported(self) -> bool:
        """Returns whether the results are of an imported data set."""
        return self.split == OWN

    def score(self, model: str, metric: str, program: str) -> float | None:
        """Returns a number, or None where the metric is not defined (or the model has no results)."""
        return self.scores.get((model, metric, program))

    def deviation(self, model: str, measure: Measure) -> float | None:
        """Returns the standard deviation over training runs of their means over programs.

        None with one run. Only programs that every run has a value for count.
        """
        rows = select(self.frame, model=model, metric=measure.metric)
        return deviation_over_runs(rows, measure, [name for _, name in self.programs])

    def over_programs(self, model: str, metric: str) -> list[float]:
        """Returns the defined values of a metric, in order of programs."""
        values = (self.score(model, metric, program) for _, program in self.programs)
        return [value for value in values if value is not None]

    def means(self, model: str) -> list[float | None]:
        """Returns the mean of each measure of the task over programs, None where there is none."""
        return [m.mean(self.over_programs(model, m.metric)) for m in self.described.measures]


def common_scores(
    cell: Cell, model: str, other: Cell, other_model: str, metric: str
) -> tuple[list[float], list[float]]:
    """Returns the values of two models, or over two groups of kernels, of the programs that have both.

    Args:
        cell: results of the first.
        model: its name.
        other: results of the second.
        other_model: its name.
        metric: metric of both.
    """
    pairs = [
        (left, right)
        for _, program in cell.programs
        if (left := cell.score(model, metric, program)) is not None
        and (right := other.score(other_model, metric, program)) is not None
    ]
    return [left for left, _ in pairs], [right for _, right in pairs]


@dataclass(frozen=True)
class Results:
    """The results of evaluation as a frame, and its cells.

    Attributes:
        frame: rows of the corpus (see `costbench.reports.frame`), sorted by `ORDER`.
        user_rows: rows of a user's programs, likewise; None for none.
    """

    frame: pd.DataFrame
    user_rows: pd.DataFrame | None = None

    @cached_property
    def of_user(self) -> Results:
        """Returns the results of a user's own programs."""
        return Results(self.frame.iloc[:0] if self.user_rows is None else self.user_rows)

    @cached_property
    def _by_key(self) -> Mapping[tuple[str, ...], Cell]:
        """Cells by task, split, chip, group and variant: by task, random split first."""
        groups = split_by(self.frame, ("task", "split", "chip", "group", "variant"))
        ordered = sorted(groups, key=lambda key: (task_order(key[0]), split_order(key[1]), *key))
        return {key: _cell(key, groups[key]) for key in ordered}

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """Main results over all kernels, sorted by task, split (random, manual, folds) and chip."""
        return tuple(cell for key, cell in self._by_key.items() if key[3:] == (ALL, MAIN))

    @cached_property
    def variants(self) -> tuple[Cell, ...]:
        """Variants of ablations, over all kernels, likewise."""
        return tuple(cell for key, cell in self._by_key.items() if key[3] == ALL and key[4] != MAIN)

    @cached_property
    def experiments(self) -> Mapping[str, str]:
        """Returns the experiment of each variant, by its name; the first of several."""
        trained = select(self.frame, model=TRAINED).sort_index()
        return dict(trained.drop_duplicates("variant")[["variant", "experiment"]].itertuples(index=False))

    def part(self, cell: Cell, kernels: str) -> Cell | None:
        """Returns the same results over another group of kernels, or None where there are none."""
        if kernels == cell.kernels:
            return cell
        return self._by_key.get((cell.task, cell.split, cell.chip, kernels, MAIN))

    def cell(self, task: str, split: str, chip: str, variant: str = MAIN) -> Cell | None:
        """Results of a variant over all kernels, or None where there are none."""
        return self._by_key.get((task, split, chip, ALL, variant))

    @cached_property
    def scores(self) -> ScoreIndex:
        """Returns the numbers over all kernels, seed by seed, for intervals."""
        return score_index(self.frame)

    def identities(self, column: str) -> tuple[str, ...]:
        """Returns the distinct values of a column such as `params_digest` or `data_digest`, sorted."""
        return tuple(sorted(map(str, self.frame[column].unique())))


def load_results(path: str | PathLike[str], *more: str | PathLike[str]) -> Results:
    """Returns the results in a file of rows, or in several, each in a folder named after its experiment.

    Raises:
        DataError: for a file that is missing or malformed (see `read_rows`), and as `results_of` does.
    """
    return results_of([frame_of(read_rows(file), Path(file).parent.name) for file in (path, *more)], path)


def results_of(frames: Sequence[pd.DataFrame], where: str | PathLike[str]) -> Results:
    """Returns the results of one or several experiments.

    Where an experiment trains a variant that an earlier one has trained for the same task, split and chip,
    its own is listed as `EXPERIMENT.VARIANT`.

    Args:
        frames: rows of each experiment.
        where: what they come from, for errors.

    Raises:
        DataError: if there are no rows, or for a program that is listed under two applications.
    """
    frame = stack(frames)
    if frame.empty:
        raise DataError("no result rows", where=where, expected="rows written by the stage `evaluate`")
    trained = frame["model"].isin(TRAINED)
    first = frame.groupby(["task", "split", "chip", "model", "variant"])["experiment"].transform("first")
    again = trained & (first != frame["experiment"])
    named = frame.loc[again, ["experiment", "model", "variant"]]
    frame.loc[again, "variant"] = [_apart(*row) for row in named.itertuples(index=False)]
    frame.loc[again, "model"] = TRAINED[0]
    # The index stays that of the experiments, so that what came first can be told.
    frame = frame.sort_values(list(ORDER), kind="stable")
    keys = ["task", "split", "chip", "group", "variant", "program"]
    families = frame[[*keys, "application"]].drop_duplicates()
    clash = families[families.duplicated(keys, keep=False)]
    if len(clash):
        names = " and ".join(map(repr, clash["application"].unique()))
        raise DataError(names, where=where, field=f"application of {clash['program'].iloc[0]}")
    return Results(*split_user_programs(frame))


def _apart(experiment: str, model: str, variant: str) -> str:
    """Returns the name of a variant with that of its experiment, and of its model where it has its own."""
    parts = (experiment, *((model,) if model != TRAINED[0] else ()), variant)
    return ".".join(parts if variant != MAIN or model == TRAINED[0] else parts[:2])


def _cell(key: tuple[str, ...], frame: pd.DataFrame) -> Cell:
    task, split, chip, kernels, variant = key
    programs = frame[["application", "program"]].drop_duplicates().itertuples(index=False, name=None)
    return Cell(task, split, chip, tuple(sorted(programs)), frame, kernels, variant)


_TILE = LEARNED["tile"]
_IMPORTED: Mapping[str, Task] = {
    _TILE.name: replace(
        _TILE,
        measures=(error_measure("kernel_top_1", "top1", "Top-1 slowdown (%)"), *_TILE.measures[1:]),
        labels=replace(
            labels_of(_TILE.name),
            error="Top-1 slowdown",
            short_error="Top-1 slowdown",
            definition="Top-1 slowdown: how much slower a kernel is at the tile size that a model ranks "
            "first than at the fastest of those measured (tpugraphs2023, section 5.1), mean over a program's "
            "kernels. Kendall's τ: tau-b between predicted and measured runtimes of a kernel's tile sizes, "
            "mean over kernels.",
        ),
    )
}
"""Those that differ over imported samples."""


def described(task: str, split: str) -> Task:
    """Returns a learned task with the measures and labels that it has on a split."""
    return _IMPORTED.get(task, LEARNED[task]) if split == OWN else LEARNED[task]
