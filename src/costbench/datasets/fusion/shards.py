"""Fusion shards on disk: a program's kernels are stored in parts, so that memory never holds all of them.

A part covers consecutive configs and holds the kernels that first occur in them, one shard per chip. Parts
are written in order, and the last one is marked as the last. The parts on disk are therefore always a prefix
of the data set, from which a run can continue.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from costbench.arrays import AnyArray
from costbench.datasets.record_types import FUSION
from costbench.datasets.storage import Shard, write_shard
from costbench.errors import DataError


def fusion_part_path(folder: Path, chip: str, program: str, part: int) -> Path:
    """Returns the path of a part of a program's fusion samples on a chip."""
    return folder / "fusion" / chip / f"{program}.part{part:04d}.arrow"


@dataclass(frozen=True)
class Progress:
    """What the parts on disk cover.

    Attributes:
        parts: finished parts.
        num_configs: configs that they cover.
        complete: whether they include the last part.
        fingerprints: of all their kernels, 16 bytes each.
    """

    parts: int
    num_configs: int
    complete: bool
    fingerprints: frozenset[bytes]


def finished_parts(folder: Path, chip: str, program: str, key: str) -> list[Shard]:
    """Returns the parts of a program on a chip that were made from the same inputs, in order."""
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
    """Returns what the parts that exist on all of the chips cover."""
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
    """Writes a part from the columns of its batches of kernels.

    Raises:
        DataError: if it cannot be written.
    """
    write_shard(path, joined(batches), metadata, FUSION)


def joined(batches: Sequence[dict[str, AnyArray]]) -> dict[str, AnyArray]:
    """Concatenates the columns of several batches of kernels."""
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
