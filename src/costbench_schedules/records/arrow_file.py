"""Arrow files of one record batch, with facts about it as JSON in the metadata of the schema."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from costbench.artifacts import atomic_path, parse_json, read_bytes
from costbench.datasets.arrow_files import UNREADABLE, open_arrow
from costbench.errors import DataError, one_line


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
        DataError: naming the file, if it is missing, damaged, another one, or expands to too much.
    """
    content = pa.py_buffer(read_bytes(path))
    try:
        opened = open_arrow(content)
        facts = parse_json((opened.schema.metadata or {})[key], path)
        if not isinstance(facts, dict) or not all(map(_is_plain, opened.schema.types)):
            raise ValueError("it holds something else")
        return facts, pa.Table.from_batches([opened.read()])
    except DataError as error:
        raise error.recast(DataError, where=path) from error
    except UNREADABLE as error:
        problem = f"cannot be read: {one_line(error)}"
        raise DataError(problem, where=path, expected="a file of recorded schedules") from error


def _is_plain(kind: pa.DataType) -> bool:
    """Returns whether values of a type take memory in the file, which repetitions and nulls do not."""
    if pa.types.is_fixed_size_list(kind):
        return _is_plain(kind.value_type)
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_string)
    return any(test(kind) for test in (*tests, pa.types.is_binary))


def as_json(value: Any) -> Any:
    """Returns what a value of mappings and sequences becomes when it is written as JSON and read again."""
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, (tuple, list)) else value
