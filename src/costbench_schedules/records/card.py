"""The card of recorded tables: what was measured on which machine, how noisy it was, digests of the files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import numpy as np

from costbench.artifacts import check_sealed, digest_file, read_json, seal, write_json
from costbench.errors import DataError
from costbench_schedules.records.agreement import TRUSTED_TAU, agreement, agreement_afterwards
from costbench_schedules.records.table import (
    SUFFIX,
    WHILE_RECORDING,
    RecordedTable,
    read_table,
    table_paths,
)

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


def write_card(folder: Path, remarks: str = "") -> dict[str, object]:
    """Writes `card.json` about all tables below a folder, seals the folder, and returns the card.

    Args:
        folder: folder of the tables.
        remarks: remarks for users, such as what ran beside; those of the existing card if empty.

    Raises:
        DataError: if a table is damaged, or there is none.
    """
    paths = table_paths(folder)
    if not paths:
        raise DataError("no tables", where=folder, expected=f"files *{SUFFIX}")
    path = folder / CARD
    if not remarks and path.exists():
        old = read_json(path)
        remarks = str(old.get("remarks", "")) if isinstance(old, dict) else ""
    tables = {}
    for source in paths:
        card = table_card(read_table(source))
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
    card = read_json(folder / CARD)
    tables = card.get("tables") if isinstance(card, dict) else None
    if not isinstance(tables, dict):
        raise DataError("is no card", where=folder / CARD, expected="a key `tables`")
    names = {path.relative_to(folder).as_posix() for path in table_paths(folder)}
    for name in sorted(names ^ tables.keys()):
        problem = "is not in the card" if name in names else "no such file"
        raise DataError(problem, where=folder / name, expected=f"the tables of {CARD}")
    for name, facts in sorted(tables.items()):
        check_sealed(folder / name)
        if digest_file(folder / name) != facts["sha256"]:
            raise DataError(
                "damaged",
                where=folder / name,
                expected=f"SHA-256 {facts['sha256']} of {CARD}, as git keeps both",
            )
