"""The card of a folder: what was measured on which machine, how noisy it was, digests of the files.

Recorded tables of schedules and tuning tables of kernels have cards of the same form; that of programs of
networks is written by `records.estimation`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from costbench.artifacts import check_sealed, digest_file, read_json, seal, write_json
from costbench.errors import DataError
from costbench_schedules.records.agreement import (
    TRUSTED_TAU,
    agreement,
    agreement_afterwards,
    compare,
)
from costbench_schedules.records.imported.parquet import PARQUET, read_parquet
from costbench_schedules.records.table import (
    SUFFIX,
    WHILE_RECORDING,
    RecordedTable,
    read_table,
    table_paths,
)
from costbench_schedules.records.tuning_table import TuningTable, random_trials

CARD = "card.json"


def table_card(table: RecordedTable) -> dict[str, object]:
    """Returns what the card says of one table.

    Returns:
        operator, machine, timing, configs, measured, failed (by reason), best_gflops, median_gflops (of those
        that ran), uninterrupted (share of those that ran with at least one uninterrupted block), seconds of
        processor time, repeated measurements `while_recording`, `afterwards` of schedules drawn at random
        and of the `fastest` (see `Agreement`), and `trusted`: complete, and tau afterwards at least
        `TRUSTED_TAU`.
    """
    columns, ran = table.columns, table.columns["measured"] & ~table.failed
    codes = columns["reason"]
    after, fastest = agreement_afterwards(table)
    return {
        "operator": table.space.operator.text,
        "target": table.target,
        "host": dict(table.host),
        "timing": dict(table.timing),
        "configs": len(table),
        "measured": table.num_measured,
        "failed": {reason: int(np.sum(codes == 1 + i)) for i, reason in enumerate(table.reasons)},
        "best_gflops": round(float(table.gflops.max()), 2),
        "median_gflops": round(float(np.median(table.gflops[ran])), 2) if np.any(ran) else 0.0,
        "uninterrupted": round(float(np.mean(columns["clean"][ran] > 0)), 4) if np.any(ran) else 0.0,
        "seconds": round(float(columns["seconds"].sum()), 1),
        "while_recording": asdict(agreement(table, WHILE_RECORDING)),
        "afterwards": asdict(after),
        "fastest": asdict(fastest),
        "trusted": table.complete and after.tau is not None and after.tau >= TRUSTED_TAU,
    }


def tuning_card(table: TuningTable) -> dict[str, object]:
    """Returns what the card says of one tuning table.

    Returns:
        kernel, device, configs, failed (by reason), parameters (number of values that occur), best_ns and
        median_ns (second measurements of those that ran), repeats (least and most runs of those), `twice`:
        how both measurements agree (see `Agreement`), random_trials_to_95: see `random_trials`.
    """
    ran = ~table.failed
    counts = Counter(reason for reason in table.reasons if reason)
    repeats = table.repeats[ran]
    twice = compare(table.first_ns[ran], table.second_ns[ran])
    return {
        "kernel": table.kernel,
        "device": table.device,
        "configs": len(table),
        "failed": dict(sorted(counts.items())),
        "parameters": {name: len(values) for name, values in table.space.parameters.items()},
        "best_ns": round(table.best_ns, 1),
        "median_ns": round(float(np.median(table.second_ns[ran])), 1),
        "repeats": [int(repeats.min()), int(repeats.max())],
        "twice": asdict(twice),
        "random_trials_to_95": round(random_trials(table, 0.95), 1),
    }


_CARDS: Mapping[str, Callable[[Path], dict[str, object]]] = {
    SUFFIX: lambda path: table_card(read_table(path)),
    PARQUET: lambda path: tuning_card(read_parquet(path)),
}
"""What the card says of a file, by its suffix."""


def _paths(folder: Path) -> list[Path]:
    """Returns the files of all tables in a folder and its sub-folders, sorted."""
    parquet = (path for path in folder.rglob(f"*{PARQUET}") if path.name[0] != ".")
    return sorted([*table_paths(folder), *parquet])


def write_card(folder: Path, remarks: str = "") -> dict[str, object]:
    """Writes `card.json` about all tables below a folder, seals the folder, and returns the card.

    Args:
        folder: folder of the tables.
        remarks: remarks for users, such as what ran beside; those of the existing card if empty.

    Raises:
        DataError: if a table is damaged, or there is none.
    """
    paths = _paths(folder)
    if not paths:
        raise DataError("no tables", where=folder, expected=" or ".join(f"files *{end}" for end in _CARDS))
    path = folder / CARD
    if not remarks and path.exists():
        old = read_json(path)
        remarks = str(old.get("remarks", "")) if isinstance(old, dict) else ""
    tables = {}
    for source in paths:
        card = _CARDS[source.suffix](source)
        tables[source.relative_to(folder).as_posix()] = card | {"sha256": digest_file(source)}
    content: dict[str, object] = {"remarks": remarks, "tables": tables}
    write_json(path, content)
    seal(folder, "`git checkout`, or `costbench record-schedules` and `costbench schedule-card`")
    return content


def check_card(folder: Path) -> None:
    """Compares the tables of a folder with the digests in its card.

    Raises:
        DataError: naming the file that is missing, unknown or differs.
    """
    tables = _read_card(folder, "tables")
    names = {path.relative_to(folder).as_posix() for path in _paths(folder)}
    for name in sorted(names ^ tables.keys()):
        problem = "is not in the card" if name in names else "no such file"
        raise DataError(problem, where=folder / name, expected=f"the tables of {CARD}")
    digests = {name: facts.get("sha256") for name, facts in tables.items() if isinstance(facts, dict)}
    _check(folder, dict.fromkeys(tables) | digests)


def check_folder(folder: Path) -> None:
    """Compares the files of a folder of `costbench estimate-networks` with the digests in its card.

    Raises:
        DataError: naming the file that is missing or differs.
    """
    _check(folder, _read_card(folder, "sha256"))


def _read_card(folder: Path, key: str) -> dict[str, Any]:
    card = read_json(folder / CARD)
    content = card.get(key) if isinstance(card, dict) else None
    if not isinstance(content, dict):
        raise DataError("is no card", where=folder / CARD, expected=f"a key `{key}`")
    return content


def _check(folder: Path, digests: Mapping[str, object]) -> None:
    for name, digest in sorted(digests.items()):
        check_sealed(folder / name)
        if digest_file(folder / name) != digest:
            expected = f"SHA-256 {digest} of {CARD}, as git keeps both"
            raise DataError("damaged", where=folder / name, expected=expected)
