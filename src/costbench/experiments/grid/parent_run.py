"""Tracks an experiment's grid as one parent run in MLflow with one finished child run for each of its cells.

A grid is identified by its profile, name, parameters and data: training it again, or continuing it after a
kill, adds to the same parent run. Cells that an earlier grid has trained are moved below the new parent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from costbench.experiments.grid.experiment import Experiment
from costbench.experiments.grid.training_run import CellResult, CellTask, Tracking, track_finished
from costbench.experiments.tracking.queries import search_runs
from costbench.experiments.tracking.runs import (
    FOLDER,
    KEY,
    KIND,
    OFF,
    PARENT,
    WORK,
    Provenance,
    TrackedRun,
    tracked_run,
    work_of,
)
from costbench.training.spec import monitored_metric

if TYPE_CHECKING:
    import pandas as pd

_KEY, _PARENT, _FOLDER = (f"tags.{tag}" for tag in (KEY, PARENT, FOLDER))


@contextmanager
def tracked_grid(
    tracking: Tracking, experiment: Experiment, provenance: Provenance
) -> Iterator[tuple[TrackedRun, Tracking]]:
    """Opens the parent run of a grid; yields it and where its cells are tracked.

    Args:
        tracking: where the grid is tracked; cells get its tags, `profile` among them, as well.
        experiment: the grid.
        provenance: provenance of the grid.

    Raises:
        DataError: if the store cannot be used.
    """
    grid = experiment.grid
    run_tags = {
        **tracking.tags,
        "task": grid.task,
        "split": ",".join(grid.splits),
        "chip": ",".join(grid.chips),
        "seed": ",".join(map(str, grid.seeds)),
        "variant": ",".join(experiment.variants),
        "experiment": experiment.name,
        KIND: "grid",
        WORK: work_of(tracking.run_name, provenance.params_digest, provenance.data_digest),
    }
    with tracked_run(
        tracking.uri, tracking.experiment, tracking.run_name, provenance, run_tags, goes_on=True
    ) as run:
        settings = {"splits": grid.splits, "chips": grid.chips, "seeds": grid.seeds}
        run.log_params(settings | {"variants": tuple(experiment.variants), "cells": len(experiment.cells)})
        tags = {**tracking.tags, "experiment": experiment.name, KIND: "cell", PARENT: run.run_id}
        yield run, replace(tracking, tags=tags)


def cell_tracking(grid: Tracking, cell: str, folder: str, machine: str) -> Tracking:
    """Returns where a cell is tracked; a new attempt in the same folder ends the runs of killed attempts."""
    tags = {**grid.tags, WORK: work_of(machine, folder)}
    return replace(grid, run_name=f"{grid.run_name}/{cell}", tags=tags)


def nest_cells(grid: TrackedRun, tasks: Mapping[str, CellTask], results: Mapping[str, CellResult]) -> None:
    """Moves the runs of cells below the grid's run, adds missing runs, and logs the best metrics.

    Args:
        grid: run that `tracked_grid` yields.
        tasks: tasks of all cells, by name.
        results: results of all cells, by name.

    Raises:
        DataError: if the store cannot be used.
    """
    if grid.uri == OFF:
        return
    runs = _finished_runs(grid, next(iter(tasks.values())).tracking.tags)
    by_key = runs.drop_duplicates(_KEY, keep="last").set_index(_KEY)
    current = by_key["run_id"][by_key.index.isin([result.key for result in results.values()])]
    replaced = runs[(runs[_PARENT] == grid.run_id) & ~runs["run_id"].isin(current)]
    for run_id in replaced["run_id"]:
        replace(grid, run_id=run_id).set_tags({KIND: "replaced"})
    for name, task in tasks.items():
        if results[name].key not in by_key.index:
            track_finished(task, results[name])
            continue
        run = by_key.loc[results[name].key]
        if (run[_PARENT], run[_FOLDER]) != (grid.run_id, str(task.folder)):
            moved = {PARENT: grid.run_id, FOLDER: str(task.folder)}
            replace(grid, run_id=str(run["run_id"])).set_tags(moved)
    grid.log_metrics(_best(tasks, results))


def _finished_runs(grid: TrackedRun, tags: Mapping[str, str]) -> pd.DataFrame:
    """Returns the finished cells of the same experiment, the newest last: run, key, parent and folder."""
    conditions = [f"tags.`{tag}` = '{tags[tag]}'" for tag in ("profile", "experiment", KIND)]
    query = " and ".join([*conditions, "attributes.status = 'FINISHED'"])
    runs = search_runs(grid.uri, grid.experiment, query, "attributes.start_time ASC")
    return runs.reindex(columns=["run_id", _KEY, _PARENT, _FOLDER]).fillna("")


def _best(tasks: Mapping[str, CellTask], results: Mapping[str, CellResult]) -> dict[str, float]:
    """Returns the best value of each split, chip and monitored metric."""
    best: dict[str, float] = {}
    for name, task in tasks.items():
        metric, larger_is_better = monitored_metric(task.spec.monitor)
        key, value = f"best/{task.cell.split}/{task.cell.chip}/{metric}", results[name].best_metric
        if key not in best or (value > best[key]) == larger_is_better:
            best[key] = value
    return best
