"""Result rows, grouped: one cell is a task, split and chip; seeds of one model are averaged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from os import PathLike

import numpy as np

from costbench.errors import DataError
from costbench.metrics.rows import MetricRow, read_rows

MODELS = ("learned", "analytical", "iterations", "random", "best")
"""In the order in which tables and figures show them."""

Scores = Mapping[tuple[str, str, str], float]
"""(model, metric, program) -> mean over seeds."""


@dataclass(frozen=True)
class Cell:
    """All results of one task, split and chip.

    Attributes:
        task: the compiler's decision.
        split: how test programs were chosen.
        chip: what was measured.
        programs: (application, program) of the test programs, sorted.
        scores: mean over seeds by model, metric and program.
        seeds: seeds of each model.
    """

    task: str
    split: str
    chip: str
    programs: tuple[tuple[str, str], ...]
    scores: Scores
    seeds: Mapping[str, tuple[int, ...]]

    @property
    def name(self) -> str:
        """`tile_random_tpu_v2`: names files."""
        return f"{self.task}_{self.split}_{self.chip}"

    @property
    def models(self) -> tuple[str, ...]:
        """Models that have results here, in the order of `MODELS`, others behind by name."""
        known = [model for model in MODELS if model in self.seeds]
        return (*known, *sorted(set(self.seeds) - set(known)))

    def score(self, model: str, metric: str, program: str) -> float | None:
        """A number, or None where the metric is not defined (or the model has no results)."""
        return self.scores.get((model, metric, program))

    def over_programs(self, model: str, metric: str) -> list[float]:
        """The defined values of a metric, in order of programs."""
        values = (self.score(model, metric, program) for _, program in self.programs)
        return [value for value in values if value is not None]


@dataclass(frozen=True)
class Results:
    """All cells of a file of rows, and the identities that the rows agree on.

    Attributes:
        cells: sorted by task, split (random before manual) and chip.
        rows: the rows themselves, sorted.
    """

    cells: tuple[Cell, ...]
    rows: tuple[MetricRow, ...]

    def identities(self, field: str) -> tuple[str, ...]:
        """Distinct values of `params_digest`, `data_digest` or `git_revision`, sorted."""
        return tuple(sorted({str(getattr(row, field)) for row in self.rows}))


def load_results(path: str | PathLike[str]) -> Results:
    """The results in a file of rows.

    Raises:
        DataError: for a file that is missing, malformed (see `read_rows`) or empty, or a program that is
            listed under two applications.
    """
    rows = read_rows(path)
    if not rows:
        raise DataError("no result rows", where=path, expected="rows written by the stage `evaluate`")
    keys = {(row.task, row.split, row.chip) for row in rows}
    ordered = sorted(keys, key=lambda key: (key[0], key[1] != "random", *key[1:]))
    return Results(tuple(_cell(rows, *key, path) for key in ordered), rows)


def _cell(rows: Iterable[MetricRow], task: str, split: str, chip: str, path: str | PathLike[str]) -> Cell:
    own = [row for row in rows if (row.task, row.split, row.chip) == (task, split, chip)]
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
    for row in own:
        values.setdefault((row.model, row.metric, row.program), []).append(row.value)
        seeds.setdefault(row.model, set()).add(row.seed)
    return Cell(
        task=task,
        split=split,
        chip=chip,
        programs=tuple(sorted((application, program) for program, application in applications.items())),
        scores={key: float(np.mean(several)) for key, several in values.items()},
        seeds={model: tuple(sorted(several)) for model, several in seeds.items()},
    )
