"""Groups result rows into cells of task, split, chip and group of kernels, averaging a model's seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np

from costbench.errors import DataError
from costbench.metrics.measures import Measure
from costbench.metrics.rows import MAIN, MetricRow, read_rows
from costbench.reports.described import OWN, described, labels_on
from costbench.reports.scores import ScoreIndex, score_index
from costbench.tasks import Labels, Task, task_order

TRAINED = ("learned", "tuned", "hybrid", "lpm2021")
"""Networks, with a seed for each training run."""
BASELINES = (
    *("analytical", "analytical_unscaled", "analytical_constant", "analytical_launch", "analytical_linear"),
    *("linear", "trees", "trees_analytical", "iterations", "default_first", "random"),
)
"""Models without a network, fitted to training programs or not at all."""
MODELS = (*TRAINED, *BASELINES)
"""In the order in which tables and figures show them."""
CEILINGS = ("measured_again", "regular_machine")
"""Marks of what a model can reach, no models: another measurement, the machine without irregular code."""
TITLES: Mapping[str, str] = {
    "tuned": "best of sweep",
    "lpm2021": "as in lpm2021",
    "analytical_unscaled": "analytical, unscaled",
    "analytical_constant": "analytical x constant",
    "analytical_launch": "launch + analytical",
    "analytical_linear": "linear in costs",
    "linear": "linear ranker",
    "trees": "boosted trees",
    "trees_analytical": "boosted trees, analytical",
    "default_first": "default first",
    "measured_again": "measured again",
    "regular_machine": "machine without irregular code",
}
"""Names of models in tables and figures, where they differ from those in rows."""
BEST = "best"
"""Model name of results that depend on no model: the number of kernels and their best runtime."""
ALL, UNSEEN = "all", "unseen"
KINDS = ("contraction", "reduction", "elementwise", "data movement")
"""Groups of a program's kernels: all, those that training has not seen, those of a kind."""

FOLDS = "folds"
"""The split in which every program is tested once, by the model of the fold that holds it out."""
PRIMARY_CHIP = "tpu_v3"
"""The chip whose timing was fitted to measurements; of the other one nothing was measured."""
SPLIT_NAMES: Mapping[str, str] = {
    "random": "random split",
    "manual": "manual split",
    FOLDS: "folds over applications",
    OWN: "the data set's own split",
}
"""What people call the splits, in the order in which reports show them."""

Scores = Mapping[tuple[str, str, str], float]
"""(model, metric, program) -> mean over seeds."""


def split_order(split: str) -> int:
    """Sort key of splits: those of `SPLIT_NAMES` in that order, others behind them."""
    names = list(SPLIT_NAMES)
    return names.index(split) if split in names else len(names)


def title_of(model: str) -> str:
    """What people call a model; one of the user's own, `module:Class`, goes by its class."""
    return TITLES.get(model, model.rpartition(":")[2])


def is_given(model: str) -> bool:
    """Whether a model is one of the user's own, named by dotted path."""
    return ":" in model


@dataclass(frozen=True)
class Cell:
    """All results of one task, split, chip and variant over one group of the programs' kernels.

    Attributes:
        task: the compiler's decision.
        split: how test programs were chosen.
        chip: what was measured.
        programs: (application, program) of the test programs, sorted.
        scores: mean over seeds by model, metric and program.
        seeds: seeds of each model.
        kernels: the group: `all`, `unseen` or a kind.
        variant: `main`, or the ablation that the models are variants for.
        runs: by model, metric and seed, the value of each program.
    """

    task: str
    split: str
    chip: str
    programs: tuple[tuple[str, str], ...]
    scores: Scores
    seeds: Mapping[str, tuple[int, ...]]
    kernels: str = ALL
    variant: str = MAIN
    runs: Mapping[tuple[str, str, int], Mapping[str, float]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """`tile_random_tpu_v2`: names files."""
        return f"{self.task}_{self.split}_{self.chip}"

    @property
    def models(self) -> tuple[str, ...]:
        """Models that have results here, in the order of `MODELS`, others behind by name; no ceilings."""
        known = [model for model in MODELS if model in self.seeds]
        return (*known, *sorted(set(self.seeds) - {*known, BEST, *CEILINGS}))

    @property
    def ceilings(self) -> tuple[str, ...]:
        """Ceilings that have results here, in the order of `CEILINGS`."""
        return tuple(name for name in CEILINGS if name in self.seeds)

    @property
    def described(self) -> Task:
        """The task, with the measures that it has on this split."""
        return described(self.task, self.split)

    @property
    def labels(self) -> Labels:
        """What reports call the task and its parts, likewise."""
        return labels_on(self.task, self.split)

    @property
    def is_imported(self) -> bool:
        """Whether the results are of an imported data set."""
        return self.split == OWN

    def score(self, model: str, metric: str, program: str) -> float | None:
        """A number, or None where the metric is not defined (or the model has no results)."""
        return self.scores.get((model, metric, program))

    def deviation(self, model: str, measure: Measure) -> float | None:
        """Returns the standard deviation over training runs of their means over programs.

        None with one run. Only programs that every run has a value for count.
        """
        runs = [self.runs.get((model, measure.metric, seed), {}) for seed in self.seeds.get(model, ())]
        shared = [name for _, name in self.programs if all(name in run for run in runs)]
        means = [measure.mean([run[name] for name in shared]) for run in runs] if shared else []
        known = [mean for mean in means if mean is not None]
        return float(np.std(known, ddof=1)) if len(known) > 1 else None

    def over_programs(self, model: str, metric: str) -> list[float]:
        """The defined values of a metric, in order of programs."""
        values = (self.score(model, metric, program) for _, program in self.programs)
        return [value for value in values if value is not None]


@dataclass(frozen=True)
class Results:
    """All cells of a file of rows, and the identities that the rows agree on.

    Attributes:
        cells: main results over all kernels, sorted by task, split (random, manual, folds) and chip.
        parts: over other groups of kernels.
        variants: of ablations, over all kernels, sorted likewise.
        rows: the rows themselves, sorted.
        experiments: the experiment that a variant is of, by name of the variant; the first of several.
    """

    cells: tuple[Cell, ...]
    parts: tuple[Cell, ...]
    variants: tuple[Cell, ...]
    rows: tuple[MetricRow, ...]
    experiments: Mapping[str, str] = field(default_factory=dict)

    def part(self, cell: Cell, kernels: str) -> Cell | None:
        """The same results over another group of kernels, or None where there are none."""
        key = (cell.task, cell.split, cell.chip, kernels)
        found = (part for part in self.parts if (part.task, part.split, part.chip, part.kernels) == key)
        return cell if kernels == cell.kernels else next(found, None)

    def cell(self, task: str, split: str, chip: str, variant: str = MAIN) -> Cell | None:
        """Results of a variant over all kernels, or None where there are none."""
        key = (task, split, chip, variant)
        found = (c for c in (*self.cells, *self.variants) if (c.task, c.split, c.chip, c.variant) == key)
        return next(found, None)

    @cached_property
    def scores(self) -> ScoreIndex:
        """The numbers over all kernels, seed by seed, for intervals."""
        return score_index(self.rows)

    def identities(self, field: str) -> tuple[str, ...]:
        """Distinct values of `params_digest` or `data_digest`, sorted."""
        return tuple(sorted({str(getattr(row, field)) for row in self.rows}))


def load_results(path: str | PathLike[str], *more: str | PathLike[str]) -> Results:
    """The results in a file of rows, or in several, each in a folder named after its experiment.

    Where an experiment trains a variant that an earlier one has trained for the same task, split and chip,
    its own is listed as `EXPERIMENT.VARIANT`.

    Raises:
        DataError: for a file that is missing or malformed (see `read_rows`), if there are no rows, or for a
            program that is listed under two applications.
    """
    taken: dict[tuple[str, ...], str] = {}
    experiments: dict[str, str] = {}
    found_rows: list[MetricRow] = []
    for one in (path, *more):
        experiment = Path(one).parent.name
        for row in read_rows(one):
            trained = row.model in TRAINED
            key = (row.task, row.split, row.chip, row.model, row.variant)
            if trained and taken.setdefault(key, experiment) != experiment:
                row = replace(row, model=TRAINED[0], variant=_named_apart(experiment, row))
            if trained:
                experiments.setdefault(row.variant, experiment)
            found_rows.append(row)
    rows = tuple(sorted(found_rows))
    if not rows:
        raise DataError("no result rows", where=path, expected="rows written by the stage `evaluate`")
    groups: dict[tuple[str, str, str, str, str], list[MetricRow]] = {}
    for row in rows:
        groups.setdefault((row.task, row.split, row.chip, row.kernels, row.variant), []).append(row)
    ordered = sorted(groups, key=lambda key: (task_order(key[0]), split_order(key[1]), *key))
    found = [_cell(groups[key], path) for key in ordered]
    return Results(
        tuple(cell for cell in found if cell.kernels == ALL and cell.variant == MAIN),
        tuple(cell for cell in found if cell.kernels != ALL and cell.variant == MAIN),
        tuple(cell for cell in found if cell.kernels == ALL and cell.variant != MAIN),
        rows,
        experiments,
    )


def _named_apart(experiment: str, row: MetricRow) -> str:
    """Returns the name of a variant with that of its experiment, and of its model where it has its own."""
    parts = (experiment, *((row.model,) if row.model != TRAINED[0] else ()), row.variant)
    return ".".join(parts if row.variant != MAIN or row.model == TRAINED[0] else parts[:2])


def _cell(own: Sequence[MetricRow], path: str | PathLike[str]) -> Cell:
    applications = {row.program: row.application for row in own}
    for row in own:
        if applications[row.program] != row.application:
            raise DataError(
                f"{row.application!r} and {applications[row.program]!r}",
                where=path,
                field=f"application of {row.program}",
            )
    values: dict[tuple[str, str, str], list[float]] = {}
    seeds: dict[str, set[int]] = {}
    runs: dict[tuple[str, str, int], dict[str, float]] = {}
    for row in own:
        runs.setdefault((row.model, row.metric, row.seed), {})[row.program] = row.value
        values.setdefault((row.model, row.metric, row.program), []).append(row.value)
        seeds.setdefault(row.model, set()).add(row.seed)
    return Cell(
        task=own[0].task,
        split=own[0].split,
        chip=own[0].chip,
        programs=tuple(sorted((application, program) for program, application in applications.items())),
        scores={key: float(np.mean(several)) for key, several in values.items()},
        seeds={model: tuple(sorted(several)) for model, several in seeds.items()},
        kernels=own[0].kernels,
        variant=own[0].variant,
        runs=runs,
    )
