"""Arrow files of one record batch, with facts about it as JSON in the metadata of the schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from costbench.artifacts import atomic_path, check_sealed


def write_arrow(
    path: Path, key: bytes, facts: Mapping[str, Any], schema: pa.Schema, arrays: Sequence[pa.Array]
) -> None:
    """Writes the arrays atomically; equal arguments give equal bytes.

    Args:
        path: path of the file.
        key: key of the facts in the metadata of the schema.
        facts: facts about the arrays.
        schema: schema of the arrays.
        arrays: columns of the file.

    Raises:
        DataError: naming the file, if it cannot be written.
    """
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    described = schema.with_metadata({key: text})
    options = pa.ipc.IpcWriteOptions(compression="zstd", use_threads=False)
    with (
        atomic_path(path) as temporary,
        pa.OSFile(str(temporary), "wb") as file,
        pa.ipc.new_file(file, described, options=options) as writer,
    ):
        writer.write_batch(pa.record_batch(list(arrays), schema=described))


def read_arrow(path: Path, key: bytes) -> tuple[dict[str, Any], pa.Table]:
    """Returns the facts and the columns of a file of `write_arrow`.

    Raises:
        OSError, ValueError, KeyError: for a file that is missing or another one.
        DataError: if it is damaged in a sealed folder.
    """
    if path.exists():
        check_sealed(path)
    with pa.OSFile(str(path), "rb") as file:
        table = pa.ipc.open_file(file).read_all()
    facts = json.loads((table.schema.metadata or {})[key])
    if not isinstance(facts, dict):
        raise ValueError("its facts are no object")
    return facts, table


def as_json(value: Any) -> Any:
    """Returns what a value of mappings and sequences becomes when it is written as JSON and read again."""
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, (tuple, list)) else value
