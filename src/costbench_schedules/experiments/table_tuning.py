"""Section `schedules.tables`: searches of recorded tables and tests of models on them.

Lists the work items that the section asks for, runs those that are missing, and writes what reports read.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from costbench.arrays import I64
from costbench.artifacts import digest_bytes, read_bytes, write_json, write_text
from costbench.errors import choose
from costbench.experiments.identity import code_digest, git_revision
from costbench.experiments.workspace import Workspace
from costbench.metrics.rows import write_rows
from costbench.params import digest
from costbench.store import Progress, WorkItem, compute, remove_outdated
from costbench_schedules.experiments.model_tests import (
    BASELINES,
    FITTED,
    TRANSFER,
    ModelTest,
    evaluate_model,
    fixed_division,
    fold_divisions,
    time_models,
)
from costbench_schedules.experiments.recorded_tables import (
    TableFile,
    Tables,
    complete_tables,
    measured_twice,
    table_of,
)
from costbench_schedules.experiments.repeats import MetricsFile, Provenance, RepeatedSearch, SearchFile
from costbench_schedules.experiments.search_archive import (
    ARCHIVE_FILE,
    ArchiveFacts,
    archived_searches,
    write_archive,
)
from costbench_schedules.experiments.table_rows import (
    facts_of,
    gflops_by_trial,
    rows_of_searches,
    rows_of_tests,
)
from costbench_schedules.experiments.table_scores import TableSearches, choices
from costbench_schedules.experiments.table_search import ARMS, ScheduleSearch, replay_search
from costbench_schedules.models.spec import READS_TREES
from costbench_schedules.records.schedule_tuning import tuning_table
from costbench_schedules.records.tuning_table import TuningTable
from costbench_schedules.search.guided import GuidedSpec
from costbench_schedules.section_file import DEFAULT_TABLES

DEFAULT_ARCHIVE = "data/results/schedules"
NATIVE = "native"
"""Target of the processor itself."""
_log = logging.getLogger(__name__)
_SEARCHES, _TESTS = "searches", "models"
_ROWS, _CURVES, _TABLES, _TIMES = "rows.jsonl", "curves.json", "tables.json", "wall_times.json"


@dataclass(frozen=True)
class SearchGroup:
    """Searches of every arm for every workload on every target.

    Attributes:
        workloads: names of workloads; those without a complete table are left out.
        arms: names of the ways of searching, keys of `table_search.ARMS`.
        targets: targets that tables were recorded for.
    """

    workloads: tuple[str, ...]
    arms: tuple[str, ...]
    targets: tuple[str, ...] = (NATIVE,)

    def __post_init__(self) -> None:
        for name in ("workloads", "arms", "targets"):
            values = getattr(self, name)
            if not values or len(set(values)) != len(values):
                raise ValueError(f"{name} are {list(values)}, must be one or more different ones")
        for arm in self.arms:
            choose(ARMS, arm, "arm")


@dataclass(frozen=True)
class TransferParams:
    """Data that earlier models are fitted to (autotvm2018, section 6.2).

    Attributes:
        sources: workloads that are fitted to; the one that is tuned is left out on its own target.
        samples: number of schedules that are drawn at random from all of their configurations.
        target: target that the sources of the arm `transfer-target` were measured on.
    """

    sources: tuple[str, ...] = ("C1", "C2", "C3", "C4", "C5", "C6")
    samples: int = 4000
    target: str = NATIVE

    def __post_init__(self) -> None:
        if self.samples < 2:
            raise ValueError(f"samples is {self.samples}, expected at least 2")


@dataclass(frozen=True)
class TimedModels:
    """Models whose wall times are taken.

    Attributes:
        workloads: workloads whose tables on the target `native` are used; those without one are left out.
        samples: number of schedules that a model is fitted to; it predicts all.
    """

    workloads: tuple[str, ...] = ()
    samples: int = 128

    def __post_init__(self) -> None:
        if self.samples < 2:
            raise ValueError(f"samples is {self.samples}, expected at least 2")


@dataclass(frozen=True)
class ModelTests:
    """Models that are fitted once and tested on other workloads, without a search.

    Attributes:
        models: names of models, keys of `model_tests.FITTED`; baselines are tested beside them.
        tested: workloads of the fixed split, whose models are fitted to `transfer.sources`.
        folded: workloads that are divided into folds.
        folds: number of folds; 0 for none.
        seeds: seeds of a model, one fit each.
        targets: targets that tables were recorded for.
    """

    models: tuple[str, ...] = ()
    tested: tuple[str, ...] = ("C7", "C8", "C9", "matmul-1024")
    folded: tuple[str, ...] = ()
    folds: int = 0
    seeds: tuple[int, ...] = (0,)
    targets: tuple[str, ...] = (NATIVE,)

    def __post_init__(self) -> None:
        for name in self.models:
            choose(FITTED, name, "model")
        if self.folds < 0 or self.folds == 1:
            raise ValueError(f"folds is {self.folds}, expected 0 or at least 2")
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds are {list(self.seeds)}, must be one or more different ones")


@dataclass(frozen=True)
class ScheduleTuning:
    """Section `schedules.tables`: searches of the recorded tables in data/schedules, and models of them.

    Attributes:
        searches: groups of searches, by a name of the user's.
        trials: number of trials of a search.
        repeats: number of repeats of a search. Repeat r of every arm begins with the same random draws.
        guided: settings of the arms that a model guides.
        transfer: data that earlier models are fitted to.
        models: models that are tested without a search.
        times: models whose wall times are taken.
        tables: folder of the recorded tables, relative to the repository's root.
        seed: seed of all searches.
        archive: folder of packed searches, relative to the repository's root; where tables, trials, seed,
            `guided` and `transfer` are the same, what it has with as many repeats is not searched again, and
            other arms join.
    """

    searches: Mapping[str, SearchGroup]
    trials: int = 400
    repeats: int = 10
    guided: GuidedSpec = field(default_factory=GuidedSpec)
    transfer: TransferParams = field(default_factory=TransferParams)
    models: ModelTests = field(default_factory=ModelTests)
    times: TimedModels = field(default_factory=TimedModels)
    tables: str = DEFAULT_TABLES
    seed: int = 0
    archive: str = DEFAULT_ARCHIVE

    def __post_init__(self) -> None:
        if self.trials < 1 or self.repeats < 1:
            raise ValueError("trials, repeats: at least 1")


def tune_schedules(section: ScheduleTuning | None, workspace: Workspace, folder: Path) -> str:
    """Runs the searches that are missing and writes rows, curves, facts of the tables and wall times.

    Args:
        section: parameters; None for nothing.
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
    searches = run_searches(section, tables, workspace, folder / _SEARCHES)
    data = digest_bytes("\0".join(sorted(table.digest for table in tables.values())).encode())[:16]
    tests = run_tests(section, tables, workspace, folder / _TESTS)
    provenance = Provenance(digest(section), data, git_revision(workspace.root))
    rows = [*rows_of_searches(searches, provenance), *rows_of_tests(tests, provenance)]
    write_rows(folder / _ROWS, rows)
    write_json(folder / _CURVES, [search.curve() for search in searches])
    write_json(folder / _TABLES, [facts_of(tables[key]) for key in sorted(tables)])
    _write_times(section, tables, folder / _TIMES)
    return data


def list_searches(section: ScheduleTuning, tables: Tables) -> list[ScheduleSearch]:
    """Returns the searches that a section asks for, each once; what cannot be searched or scored is logged.

    Those that have the same model of the same sources are neighbours, so that a process fits it once.
    """
    searches: dict[str, ScheduleSearch] = {}
    missing: dict[str, None] = {}
    for group in section.searches.values():
        for target in group.targets:
            for workload in group.workloads:
                table = tables.get((target, workload))
                if table is None:
                    missing[f"{workload} for {target} is left out: no complete table"] = None
                    continue
                if not _is_confirmed(table):
                    missing[f"{table.path} is left out: its fastest schedule was not as fast again"] = None
                    continue
                for arm in group.arms:
                    searches |= {search.name: search for search in _repeats(section, table, arm, tables)}
    for name in missing:
        _log.info("%s", name)
    return list(searches.values())


def _repeats(section: ScheduleTuning, table: TableFile, arm: str, tables: Tables) -> list[ScheduleSearch]:
    """Returns the repeats of an arm; an earlier model is never fitted to the table that is searched."""
    search = ScheduleSearch(table, arm, 0, section.trials, section.guided, seed=section.seed)
    earlier = ARMS[arm].earlier
    if earlier:
        target = section.transfer.target if earlier == "target" else table.target
        keys = [(target, workload) for workload in section.transfer.sources]
        sources = tuple(tables[key] for key in keys if key in tables and tables[key] != table)
        if not sources:
            _log.info("%s of %s is left out: none of its sources is recorded", arm, table.workload)
            return []
        search = replace(search, sources=sources, samples=section.transfer.samples)
    return [replace(search, repeat=repeat) for repeat in range(section.repeats)]


def run_searches(
    section: ScheduleTuning, tables: Tables, workspace: Workspace, folder: Path
) -> list[RepeatedSearch]:
    """Runs the searches that are neither kept nor archived; returns all by table and arm, repeats together.

    Raises:
        DataError: for a damaged table or archive, or a file that cannot be written.
    """
    archived = _archived(section, tables, workspace.root / section.archive / ARCHIVE_FILE)
    searches = {
        (table, arm): _scored(table, arm, search.orders, section.trials, measurements=1)
        for (table, arm), search in archived.items()
    }
    for (table, arm), orders in _search_missing(section, tables, archived, workspace, folder).items():
        searches[table, arm] = _scored(table, arm, orders, section.trials, ARMS[arm].measurements)
    return [searches[key] for key in sorted(searches)]


def pack_searches(section: ScheduleTuning, workspace: Workspace, folder: Path) -> None:
    """Adds to the section's archive the searches that it lacks, which are run.

    Args:
        section: parameters.
        workspace: folders of the profile, and where work items run.
        folder: the stage's folder of these results, where searches are kept meanwhile.

    Raises:
        DataError: for a damaged table or archive, or a file that cannot be written.
    """
    tables = complete_tables(workspace.root / section.tables)
    path = workspace.root / section.archive / ARCHIVE_FILE
    searches = dict(_archived(section, tables, path))
    for (file, arm), orders in _search_missing(
        section, tables, searches, workspace, folder / _SEARCHES
    ).items():
        table = tuning_table(table_of(file))
        by_trial = [_choice_by_trial(table, np.array(order), ARMS[arm].measurements) for order in orders]
        searches[file, arm] = TableSearches(table, arm, section.trials, by_trial)
    digests = {search.table.name: _origin(section, tables, file) for (file, _), search in searches.items()}
    facts = ArchiveFacts(section.trials, section.seed, digests, _settings(section))
    write_archive(path, searches.values(), facts)


def _search_missing(
    section: ScheduleTuning,
    tables: Tables,
    archived: Mapping[tuple[TableFile, str], TableSearches],
    workspace: Workspace,
    folder: Path,
) -> dict[tuple[TableFile, str], list[tuple[int, ...]]]:
    """Returns what each repeat measured, of the section's tables and arms of which fewer are archived."""
    code = code_digest(replay_search)
    items = []
    for search in sorted(list_searches(section, tables), key=_effort, reverse=True):
        packed = archived.get((search.table, search.arm))
        if packed is not None and len(packed.orders) >= section.repeats:
            continue
        parts = [code, search.name, str(search.trials), str(search.samples), str(search.seed)]
        parts += [digest(search.guided), *(table.digest for table in (search.table, *search.sources))]
        items.append(WorkItem.of(search.name, search, folder, parts))
    title = "searches for schedules"
    files = compute(run_search, SearchFile, items, workspace.backend, title, _log_tenths, folder=folder)
    orders: dict[tuple[TableFile, str], list[tuple[int, ...]]] = {}
    for item in items:
        orders.setdefault((item.task.table, item.task.arm), []).append(files[item.name].decisions)
    return orders


def _scored(
    table: TableFile, arm: str, orders: Sequence[Sequence[int] | I64], trials: int, measurements: int
) -> RepeatedSearch:
    speeds = [gflops_by_trial(table, order, trials, measurements) for order in orders]
    return RepeatedSearch(table, arm, np.stack(speeds))


def _choice_by_trial(table: TuningTable, order: I64, measurements: int) -> I64:
    """Returns the configuration that is chosen after each trial; before any ran, one that failed."""
    chosen = choices(table, order)[measurements - 1 :: measurements]
    return np.where(chosen < 0, order[0], chosen)


def _archived(
    section: ScheduleTuning, tables: Tables, path: Path
) -> dict[tuple[TableFile, str], TableSearches]:
    """Returns the searches of an archive, whose orders hold the choice after each trial."""
    confirmed = {file: tuning_table(table_of(file)) for file in tables.values() if _is_confirmed(file)}
    files = {table.name: file for file, table in confirmed.items()}
    by_digest = {_origin(section, tables, file): table for file, table in confirmed.items()}
    packed = archived_searches(path, by_digest, section.trials, section.seed, _settings(section))
    return {
        (files[search.table.name], search.strategy): search for search in packed if search.strategy in ARMS
    }


def _settings(section: ScheduleTuning) -> str:
    """Returns a digest of what searches follow from besides tables, trials and seed."""
    return digest_bytes("\0".join([digest(section.guided), digest(section.transfer)]).encode())[:16]


def _origin(section: ScheduleTuning, tables: Tables, file: TableFile) -> str:
    """Returns a digest of a table and of those that earlier models of its searches are fitted to."""
    targets = (file.target, section.transfer.target)
    keys = [(target, workload) for target in targets for workload in section.transfer.sources]
    sources = [tables[key].digest for key in keys if key in tables]
    return digest_bytes("\0".join([file.digest, *sources]).encode())[:16]


def _is_confirmed(file: TableFile) -> bool:
    twice = measured_twice(file)
    return twice is not None and twice.confirmed


def run_search(item: WorkItem[ScheduleSearch]) -> SearchFile:
    """Runs one search and keeps its result.

    Raises:
        DataError: for a damaged table, or a file that cannot be written.
    """
    return item.keep(SearchFile(item.key, tuple(replay_search(item.task).tolist())))


def _effort(search: ScheduleSearch) -> tuple[bool, bool, int]:
    """Estimates the relative duration: networks take longest, then trees, by their number."""
    arm = ARMS[search.arm]
    return arm.model.model in READS_TREES and not arm.strategy, not arm.strategy, arm.model.models


def _log_tenths(progress: Progress[SearchFile]) -> None:
    """Logs every tenth of the searches."""
    if progress.done * 10 // progress.total > (progress.done - 1) * 10 // progress.total:
        _log.info("[%d/%d] %s", progress.done, progress.total, progress.name)


def list_tests(section: ScheduleTuning, tables: Tables) -> list[ModelTest]:
    """Returns the tests that a section asks for: of its models, and of the baselines beside them."""
    models = section.models
    tests: list[ModelTest] = []
    if not models.models:
        return tests
    samples = section.transfer.samples
    for target in models.targets:
        files = [file for _, file in sorted(tables.items()) if file.target == target]
        divisions = {TRANSFER: fixed_division(files, section.transfer.sources, models.tested)}
        folded = [file for file in files if file.workload in models.folded]
        divisions |= fold_divisions(folded, models.folds, section.seed)
        tests += [
            ModelTest(model, split, target, seed, sources, tested, samples)
            for split, (sources, tested) in divisions.items()
            if sources and tested
            for model in (*models.models, *BASELINES)
            for seed in models.seeds
        ]
    return tests


def run_tests(
    section: ScheduleTuning, tables: Tables, workspace: Workspace, folder: Path
) -> list[tuple[ModelTest, MetricsFile]]:
    """Runs the tests of models that are missing; returns all of them with their results.

    Raises:
        DataError: for a damaged table, or a file that cannot be written.
    """
    code = code_digest(evaluate_model)
    unique = {}
    for test in list_tests(section, tables):
        parts = [code, test.name, str(test.samples)]
        parts += [file.digest for file in (*test.sources, *test.tested)]
        unique[test.name] = WorkItem.of(test.name, test, folder, parts)
    items = [*unique.values()]
    title = "tests of models of schedules"
    files = compute(run_test, MetricsFile, items, workspace.backend, title, _log_test, folder=folder)
    return [(item.task, files[item.name]) for item in items]


def run_test(item: WorkItem[ModelTest]) -> MetricsFile:
    """Runs one test and keeps its result.

    Raises:
        DataError: for a damaged table, or a file that cannot be written.
    """
    return item.keep(MetricsFile(item.key, evaluate_model(item.task)))


def _log_test(progress: Progress[MetricsFile]) -> None:
    metrics = progress.result.metrics.items()
    taus = ", ".join(f"{workload} {values['kendall_tau']:.2f}" for workload, values in metrics)
    _log.info("%s: tau %s", progress.name, taus)


def _write_times(section: ScheduleTuning, tables: Tables, path: Path) -> None:
    """Writes wall times of models; those of an earlier run on the same tables are kept."""
    timed = [tables[NATIVE, name] for name in section.times.workloads if (NATIVE, name) in tables]
    parts = [code_digest(time_models), digest(section.times), *(table.digest for table in timed)]
    key, note = digest_bytes("\0".join(parts).encode()), path.with_suffix(".key")
    if path.exists() and note.exists() and read_bytes(note) == key.encode():
        return
    write_json(path, [asdict(times) for times in time_models(timed, section.times.samples, section.seed)])
    write_text(note, key)
