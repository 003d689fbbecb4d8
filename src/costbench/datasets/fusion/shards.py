"""Fusion shards on disk: a program's kernels come in parts, so that none has to be held whole.

A part covers a stretch of configs and holds the kernels first met there, one shard per chip. Parts are
written in turn; the last one says that it is the last. What is there of a data set is therefore always a
beginning of it, from which a run can go on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from costbench.datasets.record_types import FUSION
from costbench.datasets.records import AnyArray
from costbench.datasets.storage import Shard, write_shard
from costbench.errors import DataError


def fusion_part_path(folder: Path, chip: str, program: str, part: int) -> Path:
    """Where a part of a program's fusion samples on a chip lies inside a data set."""
    return folder / "fusion" / chip / f"{program}.part{part:04d}.arrow"


@dataclass(frozen=True)
class Progress:
    """How far the parts that are there reach.

    Attributes:
        parts: finished parts.
        num_configs: configs that they cover.
        complete: whether the last of them is the last of all.
        fingerprints: of all kernels met there, 16 bytes each.
    """

    parts: int
    num_configs: int
    complete: bool
    fingerprints: frozenset[bytes]


def finished_parts(folder: Path, chip: str, program: str, key: str) -> list[Shard]:
    """The parts of a program on a chip that were made from the same inputs, in order."""
    parts: list[Shard] = []
    while True:
        try:
            shard = Shard.open(fusion_part_path(folder, chip, program, len(parts)))
        except DataError:
            return parts
        if shard.metadata.get("key") != key:
            return parts
        parts.append(shard)
        if shard.metadata["last"]:
            return parts


def progress_of(folder: Path, chips: Sequence[str], program: str, key: str) -> Progress:
    """What is there on all of the chips."""
    by_chip = [finished_parts(folder, chip, program, key) for chip in chips]
    parts = min(len(shards) for shards in by_chip)
    last: dict[str, Any] = dict(by_chip[0][parts - 1].metadata) if parts else {}
    known = {
        bytes(row)
        for shards in by_chip
        for shard in shards[:parts]
        for column in ("kernel_fingerprint", "dropped_fingerprint")
        for row in np.asarray(shard[column])
    }
    return Progress(parts, int(last.get("num_configs", 0)), bool(last.get("last", False)), frozenset(known))


def write_part(path: Path, batches: Sequence[dict[str, AnyArray]], metadata: dict[str, object]) -> None:
    """Writes a part, whose kernels come in batches of columns.

    Raises:
        DataError: if it cannot be written.
    """
    write_shard(path, joined(batches), metadata, FUSION)


def joined(batches: Sequence[dict[str, AnyArray]]) -> dict[str, AnyArray]:
    """Columns of several batches of kernels end to end."""
    columns: dict[str, AnyArray] = {}
    for column in FUSION.columns:
        pieces = [np.asarray(batch[column.key]) for batch in batches]
        if column.offsets_into is not None:
            ends = np.cumsum([0, *(int(piece[-1]) for piece in pieces)])
            shifted = [piece[1:] + end for piece, end in zip(pieces, ends[:-1], strict=True)]
            pieces = [np.zeros(1, dtype=column.dtype), *shifted]
        empty = np.zeros((0, *(int(size) for size in column.shape[1:])), dtype=column.dtype)
        columns[column.key] = np.concatenate([empty, *pieces]).astype(column.dtype, copy=False)
    return columns
