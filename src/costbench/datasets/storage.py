"""Shards: files of columns that are either whole or refused, read by memory map.

One shard is one file:

    8 bytes   magic
    8 bytes   length of the header, little-endian
    32 bytes  SHA-256 of the header
    header    JSON: record type, metadata, and for each column its type, shape, offset, size and SHA-256
    columns   raw little-endian values, each beginning at a multiple of 64 bytes; gaps are zeros

It is written under a temporary name and renamed when it is complete, so a killed writer leaves no shard.
Opening reads the header alone and checks it against its digest, the file's size and the record type, which
finds truncated files and damaged headers without touching the data; columns are checked for impossible values
when they are first used, and `verify_shard` compares every byte with the digests.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from costbench.artifacts import atomic_path
from costbench.datasets.record_types import RECORD_TYPES, TILE
from costbench.datasets.records import (
    AnyArray,
    RecordType,
    check_columns,
    check_dtype,
    check_offsets,
    check_shapes,
    check_values,
)
from costbench.errors import DataError

SUFFIX = ".shard"
_MAGIC = b"CBSHARD\x01"
_PREFIX_BYTES = 48
_ALIGNMENT = 64
_MAX_HEADER_BYTES = 1 << 26
_PIECE_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class _Header:
    """What a header says, and where the first column begins."""

    record: RecordType
    metadata: Mapping[str, Any]
    places: Mapping[str, _Place]
    first: int


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a column lies: bytes from the start of the first column."""

    dtype: str
    shape: tuple[int, ...]
    offset: int
    num_bytes: int
    sha256: str


def write_shard(
    path: Path, columns: Mapping[str, AnyArray], metadata: Mapping[str, object], record: RecordType = TILE
) -> None:
    """Writes a shard atomically; equal columns and metadata give equal bytes.

    Columns are written from where they are, without a copy if they are contiguous.

    Args:
        path: destination, overwritten if it is there.
        columns: all columns of `record` by key.
        metadata: JSON values; what the shard was made from.
        record: the kind of shard.

    Raises:
        DataError: naming the column, if columns are incomplete, misshapen or hold values that cannot be data
            (a NaN, zero or negative runtime), or if metadata are no JSON.
    """
    check_columns(record, columns, path)
    arrays = {column.key: np.ascontiguousarray(columns[column.key]) for column in record.columns}
    places: dict[str, dict[str, object]] = {}
    end = 0
    for column in record.columns:
        array = arrays[column.key]
        start = _aligned(end)
        end = start + array.nbytes
        places[column.key] = {
            "dtype": column.dtype,
            "shape": list(array.shape),
            "offset": start,
            "num_bytes": array.nbytes,
            "sha256": hashlib.sha256(_bytes_of(array)).hexdigest(),
        }
    header = _encode(record, metadata, places, path)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        file.write(_MAGIC + len(header).to_bytes(8, "little") + hashlib.sha256(header).digest() + header)
        first = _aligned(file.tell())
        for column in record.columns:
            file.write(bytes(first + _offset(places[column.key]) - file.tell()))
            file.write(_bytes_of(arrays[column.key]))


def _offset(place: Mapping[str, object]) -> int:
    return int(str(place["offset"]))


def _aligned(position: int) -> int:
    return -(-position // _ALIGNMENT) * _ALIGNMENT


def _bytes_of(array: AnyArray) -> memoryview:
    return array.reshape(-1).view(np.uint8).data


def _encode(
    record: RecordType, metadata: Mapping[str, object], places: Mapping[str, object], path: Path
) -> bytes:
    header = {
        "record": record.name,
        "version": record.version,
        "metadata": dict(metadata),
        "columns": dict(places),
    }
    try:
        return json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise DataError(f"cannot be stored: {error}", where=path, field="metadata") from error


class Shard:
    """A shard opened for reading: `shard["config_runtime_ns"]` is a read-only view of the file.

    Columns are mapped, not loaded, and come and go with the operating system's page cache. A shard travels to
    another process as its path.
    """

    def __init__(
        self, path: Path, record: RecordType, metadata: Mapping[str, Any], mapped: Mapping[str, AnyArray]
    ) -> None:
        self.path = path
        self.record = record
        self.metadata = metadata
        self._mapped = mapped
        self._checked: dict[str, AnyArray] = {}

    @staticmethod
    def open(path: Path | str) -> Shard:
        """Opens a shard, reading its header alone.

        Raises:
            DataError: naming the file and the column, if it is missing, truncated, damaged in its header, of
                another version or no shard at all.
        """
        path = Path(path)
        with _opened(path) as file:
            header = _read_header(file, path)
            buffer = np.asarray(np.memmap(file, np.uint8, "r"))
        mapped = {key: _view(buffer, place, header.first) for key, place in header.places.items()}
        return Shard(path, header.record, header.metadata, mapped)

    def __getitem__(self, key: str) -> npt.NDArray[Any]:
        """A column.

        Raises:
            DataError: if there is none of that name, or if it holds values that cannot be data.
        """
        known = self._checked.get(key)
        if known is None:
            column = self.record.column(key)
            known = self._mapped[key]
            check_values(column, known, self.path)
            if column.offsets_into is not None:
                check_offsets(column, known, len(self._mapped[column.offsets_into]), self.path)
            self._checked[key] = known
        return known

    @property
    def keys(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.key for column in self.record.columns)

    @property
    def num_kernels(self) -> int:
        """Kernels in the shard; 0 for records of whole programs."""
        return len(self._mapped.get("kernel_fingerprint", ()))

    @property
    def num_configs(self) -> int:
        """Measured decisions in the shard, of all kernels together."""
        return len(self._mapped[self.record.runtime])

    def __reduce__(self) -> tuple[object, ...]:
        return (Shard.open, (self.path,))


def verify_shard(path: Path | str) -> Shard:
    """Opens a shard and compares all of it with its digests; returns it.

    Raises:
        DataError: naming the file and the column, at the first difference.
    """
    path = Path(path)
    shard = Shard.open(path)
    with _opened(path) as file:
        header = _read_header(file, path)
        end = file.tell()
        for key in shard.keys:
            place = header.places[key]
            start = header.first + place.offset
            file.seek(end)
            if any(file.read(start - end)):
                raise DataError("bytes before it are damaged", where=path, field=key, expected="zeros")
            end = start + place.num_bytes
            if _digest(file, place.num_bytes) != place.sha256:
                raise DataError("damaged", where=path, field=key, expected=f"SHA-256 {place.sha256}")
    for key in shard.keys:
        shard[key]
    return shard


def _digest(file: BinaryIO, num_bytes: int) -> str:
    found = hashlib.sha256()
    while num_bytes > 0:
        piece = file.read(min(num_bytes, _PIECE_BYTES))
        if not piece:
            break
        found.update(piece)
        num_bytes -= len(piece)
    return found.hexdigest()


def list_shards(folder: Path | str) -> tuple[Path, ...]:
    """Shards in a folder and below, sorted by path; files still being written are not among them.

    Raises:
        DataError: if the folder does not exist.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise DataError("no such folder", where=folder, expected="a folder of shards")
    return tuple(
        sorted(path for path in folder.rglob(f"*{SUFFIX}") if path.is_file() and path.name[0] != ".")
    )


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise DataError(f"cannot read: {error.strerror}", where=path, expected="a shard") from error


def _read_header(file: BinaryIO, path: Path) -> _Header:
    """Reads and checks the header; leaves the file right behind it."""
    prefix = file.read(_PREFIX_BYTES)
    if prefix[: len(_MAGIC)] != _MAGIC[: len(prefix)]:
        raise DataError("is no shard", where=path, expected=f"a file that begins with {_MAGIC!r}")
    length = int.from_bytes(prefix[8:16], "little")
    content = file.read(length) if length <= _MAX_HEADER_BYTES else b""
    if len(prefix) < _PREFIX_BYTES or hashlib.sha256(content).digest() != prefix[16:]:
        raise DataError("truncated or damaged", where=path, field="header", expected="its SHA-256")
    fields = json.loads(content)
    record = RECORD_TYPES.get(fields["record"])
    if record is None or fields["version"] != record.version:
        known = ", ".join(f"{r.name} {r.version}" for r in RECORD_TYPES.values())
        raise DataError(
            f"{fields['record']} records of version {fields['version']}",
            where=path,
            expected=f"{known}; generate again",
        )
    places = {
        key: _Place(p["dtype"], tuple(p["shape"]), p["offset"], p["num_bytes"], p["sha256"])
        for key, p in fields["columns"].items()
    }
    header = _Header(record, fields["metadata"], places, _aligned(_PREFIX_BYTES + length))
    _check_places(header, path)
    return header


def _check_places(header: _Header, path: Path) -> None:
    """Raises DataError unless the columns are the record type's and lie end to end in the whole file."""
    file_bytes = path.stat().st_size
    end = 0
    for column in header.record.columns:
        place = header.places.get(column.key)
        if place is None:
            raise DataError("missing", where=path, field=column.key, expected=column.meaning)
        check_dtype(column, np.empty(0, place.dtype), path)
        wanted = _aligned(end), math.prod(place.shape) * np.dtype(place.dtype).itemsize
        if (place.offset, place.num_bytes) != wanted:
            raise DataError("lies in the wrong place", where=path, field=column.key)
        end = place.offset + place.num_bytes
        if header.first + end > file_bytes:
            raise DataError(
                f"truncated: the file ends after {file_bytes} bytes",
                where=path,
                field=column.key,
                expected=f"{header.first + end} bytes or more",
            )
    if header.first + end != file_bytes:
        raise DataError(f"{file_bytes} bytes long", where=path, expected=f"{header.first + end} bytes")
    check_shapes(header.record, {key: place.shape for key, place in header.places.items()}, path)


def _view(buffer: npt.NDArray[np.uint8], place: _Place, first: int) -> AnyArray:
    start = first + place.offset
    raw = buffer[start : start + place.num_bytes]
    return raw.view(place.dtype).reshape(place.shape)
