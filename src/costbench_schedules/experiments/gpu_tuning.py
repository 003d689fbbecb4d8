"""Section `schedules.gpus`: searches of tuning tables of kernels on GPUs, compared by second measurements.

Lists the searches that the section asks for, runs those that are missing, and writes what reports read.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from costbench.artifacts import digest_bytes, digest_file, write_json
from costbench.errors import DataError
from costbench.execution.dotted import is_part, source_digest
from costbench.experiments.identity import code_digest, git_revision
from costbench.experiments.workspace import Workspace
from costbench.metrics.ranking import kendall_tau
from costbench.metrics.rows import MAIN, MetricRow, write_rows
from costbench.params import digest
from costbench.store import KeyedResult, Progress, WorkItem, compute, remove_outdated
from costbench_schedules.experiments.repeats import BEST, Provenance
from costbench_schedules.experiments.replayed_tables import related, repeat_search
from costbench_schedules.experiments.search_archive import ARCHIVE_FILE, archived_searches
from costbench_schedules.experiments.table_scores import SHARES, TableSearches, area_end, score
from costbench_schedules.metrics import GpuFacts
from costbench_schedules.records.card import CARD, check_card
from costbench_schedules.records.imported.parquet import PARQUET, read_parquet
from costbench_schedules.records.tuning_table import TuningTable, random_trials
from costbench_schedules.search.table_strategies import TRANSFER, check_strategy

SPLIT, BETWEEN = "gpu", "between-gpus"
"""Splits of rows: searches of tables, and the choice of one GPU on another."""
SOURCE_CHOICE = "source-choice"
"""In place of a strategy: the configuration that is fastest on another GPU, `variant`."""
DEFAULT_GPU_TABLES, DEFAULT_ARCHIVE = "data/gpu_tuning", "data/results/gpu_tuning"
_CACHED_TABLES = 64
_SEARCHES, _ROWS, _CURVES, _TABLES = "searches", "rows.jsonl", "curves.json", "tables.json"
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GpuTuning:
    """Section `schedules.gpus`: searches of tuning tables of kernels on GPUs (docs/your_gpu.md).

    Attributes:
        strategies: names of strategies, keys of `table_strategies.TABLE_STRATEGIES`, or dotted paths.
        trials: number of configurations that a search may measure.
        repeats: number of searches by a strategy; repeat r of all strategies draws from the same stream.
        development: names KERNEL-DEVICE of the tables that strategies were made on; reports mark them.
        tables: folder of the tables, relative to the repository's root.
        seed: seed of all searches.
        archive: folder of packed searches, relative to the repository's root; where tables, trials and seed
            are the same, what it has with as many repeats is not searched again, and other strategies join.
    """

    strategies: tuple[str, ...]
    trials: int = 500
    repeats: int = 30
    development: tuple[str, ...] = ()
    tables: str = DEFAULT_GPU_TABLES
    seed: int = 0
    archive: str = DEFAULT_ARCHIVE

    def __post_init__(self) -> None:
        for name in self.strategies:
            check_strategy(name)
        if not self.strategies or len(set(self.strategies)) != len(self.strategies):
            raise ValueError(f"strategies are {list(self.strategies)}, must be one or more different ones")
        if self.trials < 1 or self.repeats < 1:
            raise ValueError("trials, repeats: at least 1")


@dataclass(frozen=True, order=True)
class TuningFile:
    """A tuning table on disk.

    Attributes:
        kernel: name of the kernel.
        device: name of the device.
        path: path of the file.
        digest: digest of the file.
    """

    kernel: str
    device: str
    path: Path
    digest: str

    @property
    def name(self) -> str:
        """Returns KERNEL-DEVICE."""
        return f"{self.kernel}-{self.device}"


@dataclass(frozen=True)
class TableTask:
    """All repeats of a strategy on a table, a work item.

    Attributes:
        table: table that is searched.
        strategy: name of the strategy.
        trials: number of trials of a search.
        repeats: number of searches.
        sources: tables of the same kernel on other devices, which the strategy may learn from.
        seed: seed of the section.
    """

    table: TuningFile
    strategy: str
    trials: int
    repeats: int
    sources: tuple[TuningFile, ...]
    seed: int


@dataclass(frozen=True)
class OrdersFile(KeyedResult):
    """The searches of a table by a strategy as stored in their file.

    Attributes:
        orders: numbers of the measured configurations in order, for each repeat.
    """

    orders: tuple[tuple[int, ...], ...]


def search_gpus(section: GpuTuning | None, workspace: Workspace, folder: Path) -> str:
    """Runs the searches that are missing and writes rows, curves and facts of the tables.

    Args:
        section: parameters; None for nothing.
        workspace: folders of the profile, and where work items run.
        folder: folder that the results are written to; left empty without a section or tables.

    Returns:
        the digest of the tables; empty without tables.

    Raises:
        DataError: for a damaged table, or a file that cannot be written.
    """
    files = [] if section is None else tuning_files(workspace.root / section.tables)
    if section is None or not files:
        if section is not None:
            _log.info("no tuning tables in %s", workspace.root / section.tables)
        remove_outdated(folder, set())
        return ""
    archived = archived_searches(
        workspace.root / section.archive / ARCHIVE_FILE,
        {file.digest: tuning_table(file) for file in files},
        section.trials,
        section.seed,
    )
    searches = _run_searches(section, files, archived, workspace, folder / _SEARCHES)
    data = digest_bytes("\0".join(file.digest for file in files).encode())[:16]
    provenance = Provenance(digest(section), data, git_revision(workspace.root))
    between = rows_between([tuning_table(file) for file in files], provenance)
    write_rows(folder / _ROWS, [*rows_of_gpus(searches, provenance), *between])
    write_json(folder / _CURVES, [search.curve_points() for search in searches])
    write_json(folder / _TABLES, [facts_of_gpu(tuning_table(file), section) for file in files])
    return data


def tuning_files(folder: Path) -> list[TuningFile]:
    """Returns the tuning tables of a folder in order of kernel and device, compared with its card.

    Raises:
        DataError: naming the file, if one is damaged or differs from the card, or two are of the same kernel
            and device.
    """
    if not folder.is_dir():
        return []
    if (folder / CARD).is_file():
        check_card(folder)
    files: dict[str, TuningFile] = {}
    for path in sorted(folder.glob(f"*{PARQUET}")):
        table = read_parquet(path)
        if table.name in files:
            expected = f"only {files[table.name].path}"
            raise DataError(f"{table.name} again", where=path, expected=expected)
        files[table.name] = TuningFile(table.kernel, table.device, path, digest_file(path))
    return sorted(files.values())


@lru_cache(_CACHED_TABLES)
def tuning_table(file: TuningFile) -> TuningTable:
    """Returns the table in a file.

    Raises:
        DataError: if it is damaged.
    """
    return read_parquet(file.path)


def _run_searches(
    section: GpuTuning,
    files: Sequence[TuningFile],
    archived: Sequence[TableSearches],
    workspace: Workspace,
    folder: Path,
) -> list[TableSearches]:
    """Runs the searches that are neither kept nor archived; returns the section's, then the others."""
    code = code_digest(repeat_search)
    kept = {(search.table.name, search.strategy): search for search in archived}
    wanted = [(file.name, strategy) for strategy in section.strategies for file in files]
    items = []
    for strategy in section.strategies:
        for file in files:
            if (file.name, strategy) in kept and len(kept[file.name, strategy].orders) >= section.repeats:
                continue
            sources = tuple(other for other in files if other.kernel == file.kernel and other != file)
            if strategy in TRANSFER and not sources:
                _log.info("%s of %s is left out: no table of another device", strategy, file.name)
                continue
            task = TableTask(file, strategy, section.trials, section.repeats, sources, section.seed)
            name = re.sub(r"[^A-Za-z0-9_.-]+", "_", f"{file.name}-{strategy}")
            user_code = source_digest(strategy) if is_part(strategy) else ""
            parts = [
                code,
                f"{file.name}-{strategy}",
                user_code,
                str(task.trials),
                str(task.repeats),
                str(task.seed),
            ]
            parts += [table.digest for table in (file, *sources)]
            items.append(WorkItem.of(name, task, folder, parts))
    title = "strategies on tuning tables"

    def log(progress: Progress[OrdersFile]) -> None:
        _log.info("[%d/%d] %s", progress.done, progress.total, progress.name)

    results = compute(run_table_task, OrdersFile, items, workspace.backend, title, log, folder=folder)
    kept |= {
        (item.task.table.name, item.task.strategy): TableSearches(
            tuning_table(item.task.table),
            item.task.strategy,
            item.task.trials,
            [np.array(order, dtype=np.int64) for order in results[item.name].orders],
        )
        for item in items
    }
    return [kept[key] for key in dict.fromkeys([*wanted, *kept]) if key in kept]


def run_table_task(item: WorkItem[TableTask]) -> OrdersFile:
    """Runs all repeats of a strategy on a table and keeps what they measured.

    Raises:
        DataError: for a damaged table, a file that cannot be written, or a package that is not installed.
    """
    task = item.task
    sources = [tuning_table(file) for file in task.sources]
    orders = tuple(
        tuple(
            repeat_search(
                tuning_table(task.table), task.strategy, task.trials, repeat, sources, task.seed
            ).tolist()
        )
        for repeat in range(task.repeats)
    )
    return item.keep(OrdersFile(item.key, orders))


def rows_of_gpus(searches: Iterable[TableSearches], provenance: Provenance) -> Iterator[MetricRow]:
    """Yields the rows of all searches: metrics of each repeat, see `table_scores`.

    `chip` is the device, `application` the kernel, `program` KERNEL-DEVICE, `model` the strategy, `seed` the
    repeat. Of the table itself, under the name `best`: `configs`, `failed`, and after how many draws random
    search is expected to have 95% and 99% of the best speed, `random_trials_to_95` and `_99`.
    """
    entries: dict[str, dict[tuple[str, str, int], Mapping[str, float]]] = {}
    tables: dict[str, TuningTable] = {}
    for search in searches:
        table = tables.setdefault(search.table.name, search.table)
        facts = {"configs": float(len(table)), "failed": float(np.count_nonzero(table.failed))}
        facts |= {f"random_trials_to_{end}": random_trials(table, share) for end, share in SHARES.items()}
        of_table = entries.setdefault(table.name, {(BEST, MAIN, 0): facts})
        for repeat, order in enumerate(search.orders):
            of_table[search.strategy, MAIN, repeat] = score(table, order, search.trials)
    for name, metrics in entries.items():
        origin = provenance.origin(SPLIT, tables[name].device, tables[name].kernel, name)
        yield from origin.rows("all", metrics)


def rows_between(tables: Sequence[TuningTable], provenance: Provenance) -> Iterator[MetricRow]:
    """Yields the rows of the split `between-gpus`: what one GPU's measurements say about another.

    The program is a table, `variant` the device of another table of the same kernel, the model
    `SOURCE_CHOICE`. Of configurations that ran on both: `share_of_best`, the speed here of the one that was
    measured fastest there, as a share of the best; `kendall_tau` between the runtimes on both.
    """
    for table in tables:
        entries: dict[tuple[str, str, int], dict[str, float]] = {}
        for other in related(table, tables):
            numbers = table.space.indices_of(other.space)
            here = np.where(numbers >= 0, table.second_ns[numbers], np.inf)
            both = np.isfinite(here) & np.isfinite(other.first_ns)
            if not both.any():
                continue
            there, here = other.first_ns[both], here[both]
            entries[SOURCE_CHOICE, other.device, 0] = {
                "share_of_best": float(table.best_ns / here[np.argmin(there)]),
                "kendall_tau": float(np.nan_to_num(kendall_tau(there, here))),
            }
        if entries:
            yield from provenance.origin(BETWEEN, table.device, table.kernel, table.name).rows("all", entries)


def facts_of_gpu(table: TuningTable, section: GpuTuning) -> dict[str, object]:
    """Returns the fields of `GpuFacts` of a table."""
    return asdict(
        GpuFacts(
            table.kernel,
            table.device,
            len(table),
            int(np.count_nonzero(table.failed)),
            table.best_ns,
            random_trials(table, SHARES["95"]),
            area_end(table, section.trials),
            table.name in section.development,
        )
    )
