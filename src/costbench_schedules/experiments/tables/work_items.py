"""Lists the searches for schedules, runs those that are missing, and writes what reports read."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from costbench.artifacts import digest_bytes, read_bytes, write_json, write_text
from costbench.experiments.identity import code_digest, git_revision
from costbench.experiments.workspace import Workspace
from costbench.metrics.rows import write_rows
from costbench.params import digest
from costbench.store import KeyedResult, Progress, WorkItem, compute, remove_outdated
from costbench_schedules.experiments.tables.arms import ARMS
from costbench_schedules.experiments.tables.model_items import rows_of_tests, run_tests
from costbench_schedules.experiments.tables.params import NATIVE, ScheduleTuning
from costbench_schedules.experiments.tables.results import (
    Searched,
    curve_of,
    facts_of,
    progress,
    rows_of,
)
from costbench_schedules.experiments.tables.search import ScheduleSearch, searched
from costbench_schedules.experiments.tables.tables import TableFile, Tables, complete_tables
from costbench_schedules.experiments.tables.times import model_times
from costbench_schedules.models.spec import READS_TREES

_log = logging.getLogger(__name__)
_ITEMS, _TESTS = "searches", "models"
_ROWS, _CURVES, _TABLES, _TIMES = "rows.jsonl", "curves.json", "tables.json", "wall_times.json"


@dataclass(frozen=True)
class SearchFile(KeyedResult):
    """The result of a search as stored in its file.

    Attributes:
        decisions: numbers of the configurations, in the order of their measurement.
    """

    decisions: tuple[int, ...]


def tune_schedules(section: ScheduleTuning | None, workspace: Workspace, folder: Path) -> str:
    """Runs the searches that are missing and writes rows, curves, facts of the tables and wall times.

    Args:
        section: what is asked for; None for nothing.
        workspace: folders of the profile, and where work items run.
        folder: folder that the results are written to; left empty without a section or tables.

    Returns:
        the digest of the tables; empty without tables.

    Raises:
        DataError: for a damaged table, or a file that cannot be written.
    """
    tables = {} if section is None else complete_tables(workspace.root / section.tables)
    if section is None or not tables:
        if section is not None:
            _log.info("no schedules are recorded in %s", workspace.root / section.tables)
        remove_outdated(folder, set())
        return ""
    place, title = folder / _ITEMS, "searches for schedules"
    items = _work_items(section, tables, place)
    made = compute(search_schedules, SearchFile, items, workspace.backend, title, _log_tenths, folder=place)
    found = _gathered(items, made)
    data = digest_bytes("\0".join(sorted(one.digest for one in tables.values())).encode())[:16]
    tests = run_tests(section, tables, workspace, folder / _TESTS)
    origin = (digest(section), data), git_revision(workspace.root)
    write_rows(folder / _ROWS, [*rows_of(found, *origin), *rows_of_tests(tests, *origin)])
    write_json(folder / _CURVES, [curve_of(one) for one in found])
    write_json(folder / _TABLES, [facts_of(tables[key]) for key in sorted(tables)])
    _write_times(section, tables, folder / _TIMES)
    return data


def search_schedules(item: WorkItem[ScheduleSearch]) -> SearchFile:
    """Runs one search and keeps its result.

    Raises:
        DataError: for a damaged table, or a file that cannot be written.
    """
    return item.keep(SearchFile(item.key, tuple(searched(item.task).tolist())))


def listed(section: ScheduleTuning, tables: Tables) -> list[ScheduleSearch]:
    """Returns the searches that a section asks for, each once; workloads without a table are logged.

    Those that have the same model of the same sources are neighbours, so that a process fits it once.
    """
    found: dict[str, ScheduleSearch] = {}
    missing: dict[str, None] = {}
    for group in section.searches.values():
        for target in group.targets:
            for workload in group.workloads:
                table = tables.get((target, workload))
                if table is None:
                    missing[f"{workload} for {target}"] = None
                    continue
                for arm in group.arms:
                    for search in _repeats(section, table, arm, tables):
                        found[search.name] = search
    for name in missing:
        _log.info("%s is left out: no complete table", name)
    return list(found.values())


def _repeats(section: ScheduleTuning, table: TableFile, arm: str, tables: Tables) -> list[ScheduleSearch]:
    sources = _sources(section, table, arm, tables)
    if ARMS[arm].earlier and not sources:
        _log.info("%s of %s is left out: none of its sources is recorded", arm, table.workload)
        return []
    search = ScheduleSearch(table, arm, 0, section.trials, section.guided, seed=section.seed)
    if sources:
        search = replace(search, sources=sources, samples=section.transfer.samples)
    return [replace(search, repeat=repeat) for repeat in range(section.repeats)]


def _sources(section: ScheduleTuning, table: TableFile, arm: str, tables: Tables) -> tuple[TableFile, ...]:
    """Returns the tables that the arm's earlier model is fitted to, never that which is searched."""
    earlier = ARMS[arm].earlier
    if not earlier:
        return ()
    target = section.transfer.target if earlier == "target" else table.target
    keys = [(target, workload) for workload in section.transfer.sources]
    return tuple(tables[key] for key in keys if key in tables and tables[key] != table)


def _work_items(section: ScheduleTuning, tables: Tables, folder: Path) -> list[WorkItem[ScheduleSearch]]:
    code = code_digest(searched)
    found = []
    for search in sorted(listed(section, tables), key=_effort, reverse=True):
        parts = [code, search.name, str(search.trials), str(search.samples), str(search.seed)]
        parts += [digest(search.guided), *(one.digest for one in (search.table, *search.sources))]
        found.append(WorkItem.of(search.name, search, folder, parts))
    return found


def _effort(search: ScheduleSearch) -> tuple[bool, bool, int]:
    """Estimates the relative duration: networks take longest, then trees, by their number."""
    arm = ARMS[search.arm]
    return arm.model.model in READS_TREES and not arm.strategy, not arm.strategy, arm.model.models


def _log_tenths(one: Progress[SearchFile]) -> None:
    """Logs every tenth of the searches."""
    if one.done * 10 // one.total > (one.done - 1) * 10 // one.total:
        _log.info("[%d/%d] %s", one.done, one.total, one.name)


def _gathered(items: Sequence[WorkItem[ScheduleSearch]], made: dict[str, SearchFile]) -> list[Searched]:
    """Returns the searches by table and arm, repeats together."""
    groups: dict[tuple[TableFile, str], list[ScheduleSearch]] = {}
    for one in items:
        groups.setdefault((one.task.table, one.task.arm), []).append(one.task)
    found = []
    for (table, arm), several in sorted(groups.items()):
        trials = several[0].trials
        lines = [progress(table, arm, made[one.name].decisions, trials) for one in several]
        found.append(Searched(table, arm, trials, np.stack(lines)))
    return found


def _write_times(section: ScheduleTuning, tables: Tables, path: Path) -> None:
    """Writes wall times of models; those of an earlier run on the same tables are kept."""
    timed = [tables[NATIVE, name] for name in section.times.workloads if (NATIVE, name) in tables]
    parts = [code_digest(model_times), digest(section.times), *(one.digest for one in timed)]
    key, note = digest_bytes("\0".join(parts).encode()), path.with_suffix(".key")
    if path.exists() and note.exists() and read_bytes(note) == key.encode():
        return
    write_json(path, [asdict(one) for one in model_times(timed, section.times.samples, section.seed)])
    write_text(note, key)
