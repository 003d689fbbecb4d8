"""Section `schedules.estimated`: searches of recorded tables with estimates of the analytical model.

Lists the searches that the section asks for, runs those that are missing, and writes what reports read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from costbench.arrays import F64
from costbench.artifacts import digest_bytes, digest_file, write_json
from costbench.errors import choose
from costbench.experiments.identity import code_digest, git_revision
from costbench.experiments.workspace import Workspace
from costbench.metrics.rows import MAIN, MetricRow, write_rows
from costbench.params import digest
from costbench.store import WorkItem, compute, remove_outdated
from costbench_schedules.experiments.estimated_search import (
    ARMS,
    EstimatedSearch,
    TablePrograms,
    programs_of,
    replay_search,
)
from costbench_schedules.experiments.recorded_tables import TableFile, complete_tables
from costbench_schedules.experiments.repeats import (
    BEST,
    Provenance,
    RepeatedSearch,
    SearchFile,
    best_by_trial,
)
from costbench_schedules.experiments.table_tuning import NATIVE
from costbench_schedules.records.card import check_folder
from costbench_schedules.records.programs import PROGRAMS
from costbench_schedules.search.guided import GuidedSpec

SPLIT = "estimated"
ENOUGH = (90, 95, 99)
"""Percent of the fastest program's speed that rows count trials to."""
_log = logging.getLogger(__name__)
_SEARCHES, _ROWS, _CURVES = "searches", "rows.jsonl", "curves.json"


@dataclass(frozen=True)
class EstimatedTuning:
    """Section `schedules.estimated`: searches of those tables whose programs have estimates (docs/crop.md).

    Attributes:
        arms: names of the ways of searching, keys of `estimated_search.ARMS`.
        trials: number of trials of a search.
        repeats: number of repeats of a search; repeat r of every arm that begins at random begins alike.
        draft: number of programs that the analytical model proposes for a batch, of arms with a draft.
        guided: settings of the arms with trees; chains are not used, every program is asked about.
        fewest: smallest number of programs with estimates of a table that is searched.
        tables: folder of the recorded tables, relative to the repository's root.
        estimates: folder of `costbench estimate-networks` about their programs.
        seed: seed of all searches.
    """

    arms: tuple[str, ...] = tuple(ARMS)
    trials: int = 128
    repeats: int = 10
    draft: int = 64
    guided: GuidedSpec = field(default_factory=lambda: GuidedSpec(batch=16))
    fewest: int = 200
    tables: str = "data/schedules"
    estimates: str = "data/schedules/estimates"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in self.arms:
            choose(ARMS, name, "arm")
        if not self.arms or len(set(self.arms)) != len(self.arms):
            raise ValueError(f"arms are {list(self.arms)}, must be one or more different ones")
        if min(self.trials, self.repeats, self.draft) < 1:
            raise ValueError("trials, repeats, draft: at least 1")
        if self.fewest < self.trials:
            raise ValueError(f"fewest is {self.fewest}, expected at least the {self.trials} trials")


def search_estimated(section: EstimatedTuning | None, workspace: Workspace, folder: Path) -> str:
    """Runs the searches that are missing and writes rows and curves.

    Args:
        section: parameters; None for nothing.
        workspace: folders of the profile, and where work items run.
        folder: folder that the results are written to; left empty without estimates.

    Returns:
        the digest of tables and estimates; empty without them.

    Raises:
        DataError: for a damaged table or damaged estimates, or a file that cannot be written.
    """
    if section is None or not (workspace.root / section.estimates / PROGRAMS).is_file():
        if section is not None:
            _log.info("no programs of tables are estimated in %s", workspace.root / section.estimates)
        remove_outdated(folder, set())
        return ""
    data = workspace.root / section.estimates
    check_folder(data)
    estimates = digest_file(data / PROGRAMS)
    programs = _programs_of_tables(section, workspace.root / section.tables, data, estimates)
    searches = _run_searches(section, programs, workspace, data, estimates, folder / _SEARCHES)
    provenance = Provenance(digest(section), estimates[:16], git_revision(workspace.root))
    write_rows(folder / _ROWS, [*rows_of_searches(searches, programs, provenance)])
    write_json(folder / _CURVES, [search.curve() for search in searches])
    return digest_bytes("\0".join([estimates, *(table.digest for table in sorted(programs))]).encode())[:16]


def _programs_of_tables(
    section: EstimatedTuning, tables: Path, data: Path, estimates: str
) -> dict[TableFile, TablePrograms]:
    """Returns the programs of native tables that have enough of them with estimates, measured again."""
    programs = {
        file: programs_of(file, data, estimates)
        for (target, _), file in complete_tables(tables).items()
        if target == NATIVE
    }
    searched = {}
    for file, of_table in programs.items():
        if len(of_table.indices) < section.fewest:
            _log.info("%s is left out: %d programs with estimates", file.workload, len(of_table.indices))
        elif of_table.twice is None or not of_table.twice.confirmed:
            _log.info("%s is left out: its fastest program was not as fast again", file.workload)
        else:
            searched[file] = of_table
    return searched


def _run_searches(
    section: EstimatedTuning,
    programs: dict[TableFile, TablePrograms],
    workspace: Workspace,
    data: Path,
    estimates: str,
    folder: Path,
) -> list[RepeatedSearch]:
    """Runs the searches that are missing; returns all of them by table and arm, repeats together."""
    code, settings = code_digest(replay_search), digest(section)
    items = []
    for table in sorted(programs):
        for arm in section.arms:
            for repeat in range(section.repeats):
                search = EstimatedSearch(
                    table=table,
                    arm=arm,
                    repeat=repeat,
                    trials=section.trials,
                    draft=section.draft,
                    guided=section.guided,
                    estimates=data,
                    digest=estimates,
                    seed=section.seed,
                )
                parts = (code, settings, search.name, table.digest, estimates)
                items.append(WorkItem.of(search.name, search, folder, parts))
    title = "searches with estimates"
    files = compute(run_search, SearchFile, items, workspace.backend, title, folder=folder)
    shares: dict[tuple[TableFile, str], list[F64]] = {}
    for item in items:
        search = item.task
        measured = files[search.name].decisions
        share = share_by_trial(programs[search.table], measured, search.trials)
        shares.setdefault((search.table, search.arm), []).append(share)
    return [RepeatedSearch(table, arm, np.stack(repeats)) for (table, arm), repeats in shares.items()]


def run_search(item: WorkItem[EstimatedSearch]) -> SearchFile:
    """Runs one search and keeps its result.

    Raises:
        DataError: for a damaged table or damaged estimates, or a file that cannot be written.
    """
    return item.keep(SearchFile(item.key, tuple(replay_search(item.task).tolist())))


def share_by_trial(programs: TablePrograms, decisions: Sequence[int], trials: int) -> F64:
    """Returns the speed of the fastest program so far in percent of the best with an estimate, [trials].

    The fastest is that of first measurements, its speed that of the second (`TwiceMeasured`).

    Raises:
        ValueError: for a table without second measurements.
    """
    if programs.twice is None:
        raise ValueError("no second measurements")
    measured = programs.twice.select(np.searchsorted(programs.indices, decisions))
    best_ns = best_by_trial(measured.first_ns, trials, second_ns=measured.second_ns)
    return np.asarray(100.0 * programs.twice.best_ns / best_ns)


def rows_of_searches(
    searches: Iterable[RepeatedSearch], programs: dict[TableFile, TablePrograms], provenance: Provenance
) -> Iterator[MetricRow]:
    """Yields rows of the split `estimated`, of each repeat: `trials_to_90`, `_95`, `_99` and `share_end`.

    The program is a workload, the model an arm, the seed a repeat. Model `best` has `programs`, how many of
    the table have estimates, `configs`, how many it has, and `enough_95`, how many reach that share.
    """
    by_table: dict[TableFile, list[RepeatedSearch]] = {}
    for search in searches:
        by_table.setdefault(search.table, []).append(search)
    for table, of_table in by_table.items():
        twice = programs[table].twice
        speeds = np.zeros(0) if twice is None else twice.best_ns / twice.second_ns
        entries: dict[tuple[str, str, int], dict[str, float]] = {
            (BEST, MAIN, 0): {
                "programs": float(len(speeds)),
                "configs": float(len(programs[table].table)),
                "enough_95": float(np.count_nonzero(speeds >= 0.95)),
            }
        }
        for search in of_table:
            trials = {percent: search.trials_until(percent) for percent in ENOUGH}
            for repeat, shares in enumerate(search.speeds):
                entries[search.arm, MAIN, repeat] = {
                    f"trials_to_{percent}": float(counts[repeat]) for percent, counts in trials.items()
                } | {"share_end": float(shares[-1])}
        origin = provenance.origin(SPLIT, table.target, table.operator, table.workload)
        yield from origin.rows("all", entries)
