"""Lists the searches of programs with estimates, runs those that are missing, writes what reports read."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from costbench.artifacts import digest_bytes, digest_file, write_json
from costbench.experiments.identity import code_digest, git_revision
from costbench.experiments.workspace import Workspace
from costbench.metrics.rows import write_rows
from costbench.params import digest
from costbench.store import WorkItem, compute, remove_outdated
from costbench_schedules.experiments.estimated.params import EstimatedTuning
from costbench_schedules.experiments.estimated.programs import TablePrograms, programs_of
from costbench_schedules.experiments.estimated.results import Found, curve_of, rows_of, shares_of
from costbench_schedules.experiments.estimated.search import EstimatedSearch, searched
from costbench_schedules.experiments.networks.estimating import check_folder
from costbench_schedules.experiments.tables.params import NATIVE
from costbench_schedules.experiments.tables.tables import TableFile, complete_tables
from costbench_schedules.experiments.tables.work_items import SearchFile
from costbench_schedules.records.networks.estimated import PROGRAMS

_log = logging.getLogger(__name__)
_ITEMS, _ROWS, _CURVES = "searches", "rows.jsonl", "curves.json"


def search_estimated(section: EstimatedTuning | None, workspace: Workspace, folder: Path) -> str:
    """Runs the searches that are missing and writes rows and curves.

    Args:
        section: what is asked for; None for nothing.
        workspace: folders of the profile, and where work items run.
        folder: folder that the results are written to; left empty without estimates.

    Returns:
        the digest of tables and estimates; empty without them.

    Raises:
        DataError: for a damaged table or damaged estimates, or a file that cannot be written.
    """
    data = None if section is None else workspace.root / section.estimates
    if section is None or data is None or not (data / PROGRAMS).is_file():
        if section is not None:
            _log.info("no programs of tables are estimated in %s", data)
        remove_outdated(folder, set())
        return ""
    check_folder(data)
    estimates = digest_file(data / PROGRAMS)
    programs = _programs(section, workspace.root / section.tables, data, estimates)
    place = folder / _ITEMS
    items = _work_items(section, sorted(programs), data, estimates, place)
    made = compute(run_search, SearchFile, items, workspace.backend, "searches with estimates", folder=place)
    found = _gathered(items, made, programs)
    origin = (digest(section), estimates[:16], git_revision(workspace.root))
    write_rows(folder / _ROWS, [*rows_of(found, programs, origin)])
    write_json(folder / _CURVES, [curve_of(one) for one in found])
    return digest_bytes("\0".join([estimates, *(one.digest for one in sorted(programs))]).encode())[:16]


def run_search(item: WorkItem[EstimatedSearch]) -> SearchFile:
    """Runs one search and keeps its result.

    Raises:
        DataError: for a damaged table or damaged estimates, or a file that cannot be written.
    """
    return item.keep(SearchFile(item.key, tuple(searched(item.task).tolist())))


def _programs(
    section: EstimatedTuning, tables: Path, data: Path, digest: str
) -> dict[TableFile, TablePrograms]:
    """Returns the programs of each native table that has enough of them with estimates."""
    found = {
        file: programs_of(file, data, digest)
        for (target, _), file in complete_tables(tables).items()
        if target == NATIVE
    }
    for file, programs in found.items():
        if len(programs.places) < section.fewest:
            _log.info("%s is left out: %d programs with estimates", file.workload, len(programs.places))
    return {file: own for file, own in found.items() if len(own.places) >= section.fewest}


def _work_items(
    section: EstimatedTuning, tables: Sequence[TableFile], data: Path, estimates: str, folder: Path
) -> list[WorkItem[EstimatedSearch]]:
    code, settings = code_digest(searched), digest(section)
    found = []
    for table in tables:
        for arm in section.arms:
            for repeat in range(section.repeats):
                search = EstimatedSearch(
                    *(table, arm, repeat, section.trials, section.draft, section.guided),
                    *(data, estimates, section.seed),
                )
                parts = (code, settings, search.name, table.digest, estimates)
                found.append(WorkItem.of(search.name, search, folder, parts))
    return found


def _gathered(
    items: Sequence[WorkItem[EstimatedSearch]],
    made: dict[str, SearchFile],
    programs: dict[TableFile, TablePrograms],
) -> list[Found]:
    """Returns the searches by table and arm, repeats together."""
    lines: dict[tuple[TableFile, str], list[np.ndarray[tuple[int], np.dtype[np.float64]]]] = {}
    for one in items:
        search = one.task
        line = shares_of(programs[search.table], made[search.name].decisions, search.trials)
        lines.setdefault((search.table, search.arm), []).append(line)
    return [Found(table, arm, np.stack(own)) for (table, arm), own in lines.items()]
