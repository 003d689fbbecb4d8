"""Tracks an experiment's grid as one parent run in MLflow with one finished child run for each of its cells.

A grid is identified by its profile, name, parameters and data: training it again, or continuing it after a
kill, adds to the same parent run. Kept cells that an earlier grid has trained are moved below the new parent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from costbench.experiments.grid.experiment import Experiment
from costbench.experiments.grid.training_run import CellResult, CellTask, Tracking, track_finished
from costbench.experiments.tracking.record import OFF, TrackedRun, client_of
from costbench.experiments.tracking.runs import (
    FOLDER,
    KEY,
    KIND,
    PARENT,
    WORK,
    Provenance,
    store_errors,
    tracked_run,
    work_of,
)
from costbench.training.spec import monitored


@contextmanager
def tracked_grid(
    tracking: Tracking, experiment: Experiment, provenance: Provenance
) -> Iterator[tuple[TrackedRun, Tracking]]:
    """Open the parent run of a grid; yield it and where its cells are tracked.

    Args:
        tracking: where to; its tags (among them `profile`) become those of the cells as well.
        experiment: the grid.
        provenance: of the grid.

    Raises:
        DataError: if the store cannot be used.
    """
    grid = experiment.grid
    own = {
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
    where = tracking.uri, tracking.experiment, tracking.run_name
    with tracked_run(*where, provenance, own, goes_on=True) as run:
        settings = {"splits": grid.splits, "chips": grid.chips, "seeds": grid.seeds}
        run.log_params(settings | {"variants": tuple(experiment.variants), "cells": len(experiment.cells)})
        tags = {**tracking.tags, "experiment": experiment.name, KIND: "cell", PARENT: run.run_id}
        yield run, replace(tracking, tags=tags)


def cell_tracking(grid: Tracking, cell: str, folder: str, machine: str) -> Tracking:
    """Return where a cell is tracked; a new attempt in the same folder ends the runs of killed attempts."""
    tags = {**grid.tags, WORK: work_of(machine, folder)}
    return replace(grid, run_name=f"{grid.run_name}/{cell}", tags=tags)


def nest_cells(grid: TrackedRun, tasks: Mapping[str, CellTask], results: Mapping[str, CellResult]) -> None:
    """Move the runs of kept cells below the grid's run, add runs that are missing, and log the best metrics.

    Args:
        grid: as yielded by `tracked_grid`.
        tasks: of all cells, by name.
        results: of all cells, by name.

    Raises:
        DataError: if the store cannot be used.
    """
    if grid.uri == OFF:
        return
    with store_errors(grid.uri):
        found = _finished_runs(grid, next(iter(tasks.values())).tracking.tags)
    by_key = {tags.get(KEY, ""): (run_id, tags) for run_id, tags in found.items()}
    kept = {by_key[result.key][0] for result in results.values() if result.key in by_key}
    for run_id, tags in found.items():
        if tags.get(PARENT) == grid.run_id and run_id not in kept:
            replace(grid, run_id=run_id).set_tags({KIND: "replaced"})
    for name, task in tasks.items():
        if results[name].key not in by_key:
            track_finished(task, results[name])
            continue
        run_id, tags = by_key[results[name].key]
        wanted = {PARENT: grid.run_id, FOLDER: str(task.folder)}
        if not wanted.items() <= tags.items():
            replace(grid, run_id=run_id).set_tags(wanted)
    grid.log_metrics(_best(tasks, results))


def _finished_runs(grid: TrackedRun, tags: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
    """Return the tags of finished cells of the same experiment by run, the newest last."""
    client = client_of(grid.uri)
    found = client.get_experiment_by_name(grid.experiment)
    same = [f"tags.`{tag}` = '{tags[tag]}'" for tag in ("profile", "experiment", KIND)]
    query = " and ".join([*same, "attributes.status = 'FINISHED'"])
    runs: dict[str, Mapping[str, str]] = {}
    token: str | None = None
    while found is not None:
        page = client.search_runs(
            [found.experiment_id], query, order_by=["attributes.start_time ASC"], page_token=token
        )
        runs |= {run.info.run_id: run.data.tags for run in page}
        token = page.token
        if not token:
            break
    return runs


def _best(tasks: Mapping[str, CellTask], results: Mapping[str, CellResult]) -> dict[str, float]:
    """Return the best value of each split, chip and monitored metric."""
    best: dict[str, float] = {}
    for name, task in tasks.items():
        metric, larger_is_better = monitored(task.spec.monitor)
        key, value = f"best/{task.cell.split}/{task.cell.chip}/{metric}", results[name].best_metric
        if key not in best or (value > best[key]) == larger_is_better:
            best[key] = value
    return best
