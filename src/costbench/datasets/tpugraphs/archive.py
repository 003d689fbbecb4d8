"""Opens `.npz` archives without trusting them: headers first, arrays whole or in blocks of rows.

Shapes and types of all arrays are known before any is decompressed, so files that do not fit are refused at
once. Nothing is unpickled. An array is read whole only up to a limit; larger ones are read in blocks of rows,
through memory that does not depend on their size.
"""

from __future__ import annotations

import math
import struct
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import numpy as np

from costbench.arrays import AnyArray
from costbench.errors import DataError, one_line
from costbench.limits import MAX_WHOLE_ARRAY_BYTES

_SUFFIX = ".npy"
# Deflate shrinks constant data 1,029-fold and nothing further. Small files may be constant.
_BOMB_BYTES, _BOMB_RATIO = 1 << 30, 1000
_COPY_BYTES = 1 << 24
_MAX_EMPTY_AXIS = MAX_WHOLE_ARRAY_BYTES // 8
_ARRAY_MAGIC = b"\x93NUMPY"
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    RuntimeError,
    OverflowError,
    MemoryError,
    SyntaxError,
    struct.error,
    tokenize.TokenError,
    zlib.error,
    zipfile.BadZipFile,
)
"""What zipfile, zlib and NumPy's header parser, which is that of Python, raise on damaged files."""


@dataclass(frozen=True)
class Header:
    """What an array's header says.

    Attributes:
        shape: shape of the array.
        dtype: type of the values.
        fortran_order: whether the first axis varies fastest.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran_order: bool

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def num_bytes(self) -> int:
        """Bytes of the values."""
        return math.prod(self.shape) * self.dtype.itemsize


class NpzArchive:
    """An opened `.npz` file; see `open_npz`.

    Attributes:
        path: path of the file.
        headers: headers of its arrays, by key.
    """

    def __init__(self, path: Path, archive: zipfile.ZipFile, keys: tuple[str, ...]) -> None:
        self.path = path
        self._archive = archive
        self._members = _members(archive, keys, path)
        self.headers: Mapping[str, Header] = {key: self._header(key) for key in self._members}

    def __contains__(self, key: str) -> bool:
        return key in self._members

    def array(self, key: str) -> AnyArray:
        """Reads an array whole.

        Raises:
            DataError: naming the file and `key`, if it is damaged or larger than 512 MiB.
        """
        header = self.headers[key]
        if header.num_bytes > MAX_WHOLE_ARRAY_BYTES:
            problem = f"{header.num_bytes} bytes of shape {header.shape}"
            limit = f"at most {MAX_WHOLE_ARRAY_BYTES} bytes"
            raise DataError(problem, where=self.path, field=key, expected=limit)
        with self._values(key) as stream:
            content = stream.read(header.num_bytes)
            _at_end(stream)
        if not content:
            return np.zeros(header.shape, header.dtype)
        flat = np.frombuffer(content, header.dtype)
        return flat.reshape(header.shape, order="F" if header.fortran_order else "C")

    def blocks(self, key: str, block_bytes: int) -> Iterator[AnyArray]:
        """Yields an array of one or more axes in blocks of rows, in order, of `block_bytes` or one row.

        Raises:
            DataError: naming the file and `key`, if it is damaged.
        """
        header = self.headers[key]
        row_bytes = max(1, math.prod(header.shape[1:]) * header.dtype.itemsize)
        step, rows = max(1, block_bytes // row_bytes), header.shape[0]
        if header.num_bytes == 0:
            yield np.zeros(header.shape, header.dtype)
            return
        if header.fortran_order:
            yield from self._transposed_blocks(key, step)
            return
        with self._values(key) as stream:
            for start in range(0, rows, step):
                count = min(step, rows - start)
                content = stream.read(count * row_bytes)
                shape = (count, *header.shape[1:])
                yield np.frombuffer(content, header.dtype).reshape(shape)
            _at_end(stream)

    def _transposed_blocks(self, key: str, step: int) -> Iterator[AnyArray]:
        """Yields rows that are scattered over the file, through a copy on disk."""
        header = self.headers[key]
        with TemporaryFile() as copy:
            with self._values(key) as stream:
                while content := stream.read(_COPY_BYTES):
                    copy.write(content)
            copy.flush()
            values: AnyArray = np.memmap(copy, header.dtype, "r", 0, header.shape, "F")
            for start in range(0, header.shape[0], step):
                yield np.ascontiguousarray(values[start : start + step])

    def _header(self, key: str) -> Header:
        with self._values(key, skip_header=False) as stream:
            header = _read_header(stream)
            size = stream.tell() + header.num_bytes
        if header.dtype.hasobject:
            raise DataError("Python objects", where=self.path, field=key, expected="numbers")
        member = self._members[key]
        if size != member.file_size:
            problem = f"{member.file_size} bytes for shape {header.shape} of {header.dtype}"
            raise DataError(problem, where=self.path, field=key, expected=f"{size} bytes")
        # An axis says how long arrays beside this one are; without values nothing in the file limits it.
        if not header.num_bytes and max(header.shape, default=0) > _MAX_EMPTY_AXIS:
            expected = f"axes of at most {_MAX_EMPTY_AXIS}, as it has no values"
            raise DataError(f"shape {header.shape}", where=self.path, field=key, expected=expected)
        if size > _BOMB_BYTES and size > _BOMB_RATIO * member.compress_size:
            problem = f"{member.compress_size} bytes that expand to {size}"
            raise DataError(problem, where=self.path, field=key, expected="less than a thousandfold")
        return header

    @contextmanager
    def _values(self, key: str, *, skip_header: bool = True) -> Iterator[IO[bytes]]:
        try:
            with self._archive.open(self._members[key]) as stream:
                if skip_header:
                    _read_header(stream)
                yield stream
        except DAMAGE as error:
            raise DataError(
                f"cannot be read: {one_line(error)}", where=self.path, field=key, expected="an array"
            ) from error


@contextmanager
def open_npz(path: str | PathLike[str], keys: tuple[str, ...]) -> Iterator[NpzArchive]:
    """Opens an `.npz` file and reads the headers of those of its arrays that are among `keys`.

    Raises:
        DataError: naming the file and the key, if the file is missing, truncated or no archive, if a key
            occurs twice, or if its array is of Python objects, encrypted, compressed by another method than
            deflate, not as long as its shape says, of a huge shape without values, or above 1 GiB and a
            thousandfold its size in the file.
    """
    source = Path(path)
    if not source.is_file():
        problem = "a folder" if source.is_dir() else "no such file"
        raise DataError(problem, where=source, expected="an .npz file")
    with ExitStack() as stack:
        try:
            handle = stack.enter_context(source.open("rb"))
            if handle.read(len(_ARRAY_MAGIC)) == _ARRAY_MAGIC:
                raise DataError("a single array", where=source, expected="an .npz file")
            archive = stack.enter_context(zipfile.ZipFile(handle))
        except DAMAGE as error:
            raise DataError("truncated, or no .npz file", where=source, expected="an .npz file") from error
        yield NpzArchive(source, archive, keys)


def _members(archive: zipfile.ZipFile, keys: tuple[str, ...], path: Path) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        key = member.filename.removesuffix(_SUFFIX)
        if key not in keys:
            continue
        if key in members:
            raise DataError("occurs twice", where=path, field=key, expected="one array of this name")
        if member.flag_bits & _ENCRYPTED:
            raise DataError("encrypted", where=path, field=key, expected="an array")
        if member.compress_type not in _METHODS:
            problem = f"compressed by method {member.compress_type}"
            raise DataError(problem, where=path, field=key, expected="stored or deflated")
        members[key] = member
    return members


def _read_header(stream: IO[bytes]) -> Header:
    version = np.lib.format.read_magic(stream)
    if version not in _READ_HEADER:
        raise ValueError(f"version {version} of the header")
    shape, fortran_order, dtype = _READ_HEADER[version](stream)
    if any(not 0 <= size <= sys.maxsize for size in shape):
        raise ValueError(f"shape {str(shape)[:60]}")
    return Header(tuple(int(size) for size in shape), dtype, fortran_order)


_READ_HEADER = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def _at_end(stream: IO[bytes]) -> None:
    """Reads past the last value, by which the archive's checksum is compared."""
    if stream.read(1):
        raise ValueError("more values than its shape says")
