"""Atomic writing of files, which are either complete or absent, and digests to compare them.

Everything costbench leaves on disk is written to a temporary file in the destination's own folder,
flushed to the device and renamed over the destination, so a reader (or the next `dvc repro` after a
kill) never meets half a file. A temporary's name carries the host and process that wrote it, so
leftovers of ended processes can be distinguished from files still being written. JSON has one form
(sorted keys, no NaN), which makes equal contents equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from os import PathLike
from pathlib import Path
from typing import NoReturn

from costbench.errors import DataError
from costbench.limits import MAX_DIGITS, MAX_FILE_BYTES, MAX_JSON_BYTES

_TEMPORARY = re.compile(r"^\.tmp-(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{8}-")
_DAY_S = 24 * 3600.0
# A prefix keeps the suffix, by which np.save and friends choose a format; 120 characters of the
# name stay far below the 255 bytes that file systems allow.
_MAX_NAME_LENGTH = 120


def _host_tag() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _temporary_for(path: Path) -> Path:
    tag = f".tmp-{_host_tag()}-{os.getpid()}-{secrets.token_hex(4)}-"
    return path.with_name(tag + path.name[-_MAX_NAME_LENGTH:])


@contextmanager
def atomic_path(path: str | PathLike[str]) -> Iterator[Path]:
    """Yields a temporary path beside `path`; what is written there becomes `path` on success.

    Folders are made as needed. The temporary keeps the suffix of `path` and does not exist yet. When
    the block raises, the temporary is removed and `path` is left as it was.

    Raises:
        DataError: naming `path`, if it cannot be written (no space, no permission, a folder in the
            way) or the block wrote nothing. An OSError about another file passes through.
    """
    destination = Path(path)
    temporary = _temporary_for(destination)
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        _flush(temporary, destination)
        temporary.replace(destination)
        _flush_folder(destination.parent)
    except OSError as error:
        _discard(temporary)
        if error.filename is None or _concerns(error.filename, temporary, destination):
            _refuse(destination, "write", error)
        raise
    except BaseException:
        _discard(temporary)
        raise


def _discard(temporary: Path) -> None:
    # The first error is the one to report, so a second one must not take its place.
    with suppress(OSError):
        temporary.unlink(missing_ok=True)


def _concerns(filename: object, temporary: Path, destination: Path) -> bool:
    # mkdir names the first folder that could not be made, which is any of the parents.
    named = Path(os.fsdecode(filename)) if isinstance(filename, str | bytes | PathLike) else None
    return named in (temporary, destination, *destination.parents)


def _flush(temporary: Path, destination: Path) -> None:
    if not temporary.exists():
        raise DataError("nothing was written", where=destination)
    with temporary.open("rb") as handle:
        os.fsync(handle.fileno())


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _refuse(path: Path, action: str, error: OSError) -> NoReturn:
    raise DataError(f"cannot {action}: {error.strerror or error}", where=path) from error


def write_bytes(path: str | PathLike[str], data: bytes) -> None:
    """Writes `data` to `path` atomically. Raises: DataError naming `path` if that is impossible."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_text(path: str | PathLike[str], text: str) -> None:
    r"""Writes `text` as UTF-8 with `\n` line ends. Raises: DataError naming `path`."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: str | PathLike[str], obj: object) -> None:
    """Writes `obj` as JSON: sorted keys, indent 1, trailing newline; equal objects, equal bytes.

    Raises:
        DataError: naming `path` and the field, if a number is NaN or infinite, or if `path` cannot
            be written.
    """
    non_finite = _first_non_finite(obj, "")
    if non_finite is not None:
        field, value = non_finite
        raise DataError(f"{value!r} cannot be stored", where=path, field=field, expected="a finite number")
    text = json.dumps(obj, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False)
    write_text(path, text + "\n")


def _first_non_finite(obj: object, field: str) -> tuple[str, float] | None:
    if isinstance(obj, float):
        return None if math.isfinite(obj) else (field, obj)
    if isinstance(obj, dict):
        children = [(f"{field}.{key}" if field else str(key), value) for key, value in obj.items()]
    elif isinstance(obj, list | tuple):
        children = [(f"{field}[{index}]", value) for index, value in enumerate(obj)]
    else:
        return None
    non_finite = (_first_non_finite(value, name) for name, value in children)
    return next((child for child in non_finite if child is not None), None)


@contextmanager
def open_file(path: str | PathLike[str]) -> Iterator[BufferedReader]:
    """Opens a file for reading.

    Raises:
        DataError: naming `path`, if it is missing, unreadable or no regular file: a device or a pipe may have
            no end. Likewise for an OSError while it is read.
    """
    source = Path(path)
    try:
        # Before it is opened: a pipe would wait for its writer.
        mode = source.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise DataError("no regular file", where=source, expected="a file with an end")
        with source.open("rb") as stream:
            yield stream
    except FileNotFoundError as error:
        raise DataError("no such file", where=source) from error
    except OSError as error:
        _refuse(source, "read", error)


def read_bytes(path: str | PathLike[str], max_bytes: int = MAX_FILE_BYTES) -> bytes:
    """Returns the contents of `path`.

    Raises:
        DataError: naming `path`, if it is missing, unreadable, no regular file or larger than `max_bytes`.
    """
    with open_file(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size > max_bytes:
            raise DataError(f"{size} bytes", where=path, expected=f"at most {max_bytes}")
        return stream.read()


def read_json(path: str | PathLike[str]) -> object:
    """Returns the value in a JSON file.

    Raises:
        DataError: naming `path`, if it is missing, or as `parse_json`.
    """
    return parse_json(read_bytes(path, MAX_JSON_BYTES), path)


def parse_json(data: bytes, where: str | PathLike[str]) -> object:
    """Returns the value of a JSON text.

    Args:
        data: the text.
        where: file that it is from, for errors.

    Raises:
        DataError: naming `where`, if it is no UTF-8, no JSON (with line and column), nested 1,000 deep, or
            holds NaN, an infinity or an integer of too many digits.
    """

    def refuse_constant(name: str) -> NoReturn:
        raise DataError(f"{name} is no JSON number", where=where, expected="a finite number")

    def integer(digits: str) -> int:
        if len(digits) > MAX_DIGITS:
            problem = f"an integer of {len(digits)} digits"
            raise DataError(problem, where=where, expected=f"at most {MAX_DIGITS}")
        return int(digits)

    def finite(digits: str) -> float:
        number = float(digits)
        return number if math.isfinite(number) else refuse_constant(digits)

    try:
        value: object = json.loads(
            data.decode("utf-8"), parse_constant=refuse_constant, parse_float=finite, parse_int=integer
        )
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 at byte {error.start}", where=where, expected="JSON") from error
    except json.JSONDecodeError as error:
        problem = f"malformed JSON at line {error.lineno} column {error.colno}: {error.msg}"
        raise DataError(problem, where=where) from error
    except RecursionError as error:
        raise DataError("nested too deep", where=where, expected="JSON of fewer levels") from error
    return value


def digest_bytes(data: bytes) -> str:
    """Returns the SHA-256 of `data`, 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def digest_file(path: str | PathLike[str]) -> str:
    """Returns the SHA-256 of a file's contents, read in chunks. Raises: DataError naming `path`."""
    with open_file(path) as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def digest_files(paths: Iterable[str | PathLike[str]], root: str | PathLike[str]) -> str:
    """Returns one SHA-256 over the names (relative to `root`) and contents of files, whatever their order.

    SHA-256 over the lines `sha256(contents) name` in order of name; a file given twice counts once.

    Raises:
        DataError: naming the file, if one is missing or lies outside `root`.
    """
    base = Path(root).resolve()
    names: dict[str, Path] = {}
    for path in paths:
        source = Path(path)
        # The folder is resolved and the file is not: DVC may link files to its cache.
        resolved = source.parent.resolve() / source.name
        if not resolved.is_relative_to(base):
            raise DataError("outside the folder that is digested", where=source, expected=f"a file in {base}")
        names[resolved.relative_to(base).as_posix()] = source
    lines = (f"{digest_file(names[name])} {json.dumps(name)}\n" for name in sorted(names))
    return digest_bytes("".join(lines).encode())


def remove_stale_temporaries(folder: str | PathLike[str]) -> tuple[str, ...]:
    """Removes temporaries in `folder` that a killed process left; returns their names, sorted.

    A temporary is stale when its process is gone from this host, or after a day: another host's
    processes cannot be seen from here, and a process number may have been given away again.
    Temporaries of live processes stay. A folder that does not exist has none.

    Raises:
        DataError: naming the file, if a stale temporary cannot be removed.
    """
    if not Path(folder).is_dir():
        return ()
    removed = []
    for entry in sorted(Path(folder).iterdir()):
        match = _TEMPORARY.match(entry.name)
        if match is None or not _is_stale(entry, match["host"], int(match["pid"])):
            continue
        try:
            entry.unlink(missing_ok=True)
        except OSError as error:
            _refuse(entry, "remove", error)
        removed.append(entry.name)
    return tuple(removed)


def _is_stale(entry: Path, host: str, pid: int) -> bool:
    if host == _host_tag() and not is_alive(pid):
        return True
    try:
        return time.time() - entry.stat().st_mtime > _DAY_S
    except FileNotFoundError:  # its process renamed it just now
        return False


def is_alive(pid: int) -> bool:
    """Returns whether a process of this host is running."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
