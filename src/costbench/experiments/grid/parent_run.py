"""The run of an experiment's whole grid, with exactly one finished run below it for each of its cells.

A grid goes by its profile, name, parameters and data: who trains it again, or goes on after a kill, adds to
the same run. Cells that an earlier grid has trained and that are kept move below the new one.
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
    """The run of a grid, and where its cells are tracked.

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
    """Where a cell is tracked. A new try of it in the same folder ends the record of those that died."""
    tags = {**grid.tags, WORK: work_of(machine, folder)}
    return replace(grid, run_name=f"{grid.run_name}/{cell}", tags=tags)


def nest_cells(grid: TrackedRun, tasks: Mapping[str, CellTask], results: Mapping[str, CellResult]) -> None:
    """Move runs of kept cells below the grid's run, record those of which there is none, and log the best.

    Args:
        grid: as `tracked_grid` gave it.
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
    """Tags of finished cells of the same experiment by run, the newest last."""
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
    """The best of each split, chip and monitored metric."""
    best: dict[str, float] = {}
    for name, task in tasks.items():
        metric, larger_is_better = monitored(task.spec.monitor)
        key, value = f"best/{task.cell.split}/{task.cell.chip}/{metric}", results[name].best_metric
        if key not in best or (value > best[key]) == larger_is_better:
            best[key] = value
    return best
