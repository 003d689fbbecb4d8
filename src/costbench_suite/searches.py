"""Searches as entries: what a strategy measured in each table, from a file or by running the strategy."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pyarrow as pa

from costbench.arrays import I64
from costbench.errors import DataError
from costbench.execution.dotted import errors_of, load_dotted
from costbench.rng import stream
from costbench_schedules.search.replay import run_search
from costbench_suite.program_tables import ColumnKinds, is_text, read_columns, table_writer
from costbench_suite.task_data import TaskData
from costbench_suite.tuning_samples import table_of_rows

TRIALS, REPEATS = 500, 30
"""Configurations that a search may measure, and searches of each table."""
_KINDS: ColumnKinds = {"id": is_text, **dict.fromkeys(("seed", "trial", "decision"), pa.types.is_integer)}
_EXPECTED = "columns id (text), seed, trial and decision (whole numbers)"
_SEED = 0


@dataclass(frozen=True)
class Searches:
    """All searches of an entry.

    Attributes:
        orders: table -> seed -> numbers of the measured configurations in order, int64 [<= TRIALS].
        digest: digest of all of them, 64 hexadecimal digits.
    """

    orders: Mapping[str, Mapping[int, I64]]
    digest: str
    predict_s: ClassVar[None] = None

    @property
    def count(self) -> int:
        """Returns the number of trials."""
        return sum(len(order) for by_seed in self.orders.values() for order in by_seed.values())


def read_searches(path: Path, data: TaskData) -> Searches:
    """Returns the searches in a Parquet file: `id` (the table), `seed`, `trial` from 0, `decision`.

    Raises:
        DataError: in one line with counts, for another number of repeats than `REPEATS`, trials that are
            missing, double or too many, or unknown configurations.
    """
    frame = read_columns(path, _KINDS, _EXPECTED).to_pandas(ignore_metadata=True)
    tables = list(data.programs.index)
    if set(frame["id"]) != set(tables):
        missing, unknown = set(tables) - set(frame["id"]), set(frame["id"]) - set(tables)
        problem = f"{len(missing)} tables missing, {len(unknown)} unknown"
        raise DataError(problem, where=path, field="id", expected=f"the {len(tables)} tables of the task")
    orders: dict[str, dict[int, I64]] = {table: {} for table in tables}
    sizes = {table: len(data.table("decisions", table, ("decision",))) for table in tables}
    for (table, seed), rows in _by_search(frame):
        ordered = rows.sort_values("trial")
        order = ordered["decision"].to_numpy(np.int64)
        _check(order, ordered["trial"].to_numpy(), sizes[table], f"{path}: {table}, seed {seed}")
        orders[table][seed] = order
    for table, by_seed in orders.items():
        if len(by_seed) != REPEATS:
            raise DataError(f"{len(by_seed)} repeats", where=path, field=table, expected=f"{REPEATS} seeds")
    return Searches(orders, _digest(orders))


def _by_search(frame: pd.DataFrame) -> Iterator[tuple[tuple[str, int], pd.DataFrame]]:
    for table, of_table in frame.groupby("id"):
        for seed, rows in of_table.groupby("seed"):
            yield (str(table), int(str(seed))), rows


def _check(order: I64, trials: Any, size: int, where: str) -> None:
    if trials.tolist() != list(range(len(order))) or len(order) > TRIALS:
        expected = f"trials 0, 1, 2, ..., at most {TRIALS}"
        raise DataError(f"{len(order)} trials from {trials.min()}", where=where, expected=expected)
    num_unknown = int(((order < 0) | (order >= size)).sum())
    num_double = len(order) - len(np.unique(order))
    if num_unknown or num_double:
        problem = f"{num_unknown} unknown configurations, {num_double} measured twice"
        raise DataError(problem, where=where, expected=f"different numbers below {size}")


def run_strategy(name: str, data: TaskData) -> Searches:
    """Returns the searches of a strategy of Python: `REPEATS` of each table.

    It may learn from the tables of the same kernel on other devices: `Replay.sources`.

    Args:
        name: `module:Class` or `module:function`, a `costbench_schedules.search.replay.TableStrategy` or a
            builder of one without arguments.
        data: data of the task.

    Raises:
        DataError: if it cannot be loaded, or fails.
    """
    loaded = load_dotted(name)
    tables = {name: table_of_rows(data.decisions(name)) for name in data.programs.index}
    orders: dict[str, dict[int, I64]] = {}
    for table in tables.values():
        sources = [other for other in tables.values() if other.kernel == table.kernel and other is not table]
        orders[table.name] = {}
        for seed in range(REPEATS):
            with errors_of(name):
                strategy: Any = loaded() if isinstance(loaded, type) else loaded
                draws = stream(_SEED, "table search", table.name, seed)
                orders[table.name][seed] = run_search(strategy, table, TRIALS, draws, sources)
    return Searches(orders, _digest(orders))


def write_searches(path: Path, searches: Searches) -> None:
    """Writes searches as a file that `read_searches` reads.

    Raises:
        DataError: if it cannot be written.
    """
    with table_writer(path) as writer:
        for table, by_seed in searches.orders.items():
            parts = [
                pd.DataFrame({"id": table, "seed": seed, "trial": np.arange(len(order)), "decision": order})
                for seed, order in by_seed.items()
            ]
            writer.write(pa.Table.from_pandas(pd.concat(parts), preserve_index=False))


def _digest(orders: Mapping[str, Mapping[int, I64]]) -> str:
    digest = hashlib.sha256()
    for table, by_seed in orders.items():
        for seed, order in sorted(by_seed.items()):
            digest.update(f"{table} {seed} {len(order)}\n".encode())
            digest.update(order.astype(np.int64).tobytes())
    return digest.hexdigest()
