"""Atomic writing of files, which are either complete or absent, and digests that damaged ones fail.

Everything costbench leaves on disk is written to a temporary file in the destination's own folder,
flushed to the device and renamed over the destination, so a reader (or the next `dvc repro` after a
kill) never meets half a file. A temporary's name carries the host and process that wrote it, so
leftovers of ended processes can be distinguished from files still being written. JSON has one form
(sorted keys, no NaN), which makes equal contents equal bytes.

A folder that is finished is sealed: `costbench.sha256` lists the SHA-256 of its files, as `sha256sum` does,
and the command that makes them again. What is read from a sealed folder is compared with its list first, once
in a process unless the file changes; what is written into it breaks the seal.
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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BufferedReader
from os import PathLike
from pathlib import Path
from typing import NoReturn

from costbench.errors import DataError
from costbench.limits import MAX_DIGITS, MAX_FILE_BYTES, MAX_JSON_BYTES

_TEMPORARY = re.compile(r"^\.tmp-(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{8}-")
_DAY_S = 24 * 3600.0
CHECKSUMS_FILE = "costbench.sha256"
_HEAD, _FOOT = "# made by: ", "# sha256 of the lines above: "
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
# Clocks of file systems tick every few milliseconds; a file that is older shows each change in its time.
_SETTLED_NS = 100_000_000
_MAX_COMMAND_LENGTH = 100
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
        _break_seal(destination)
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
        DataError: naming `path`, if it is missing, unreadable, no regular file, larger than `max_bytes`, or
            damaged in a sealed folder.
    """
    check_sealed(path)
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


_CHECKSUM = "sha256"


def with_checksum(content: Mapping[str, object]) -> dict[str, object]:
    """Returns the content of a JSON file that may travel alone, with `sha256` of all the rest in it."""
    return {**content, _CHECKSUM: _digest_json(content)}


def without_checksum(content: Mapping[str, object], path: str | PathLike[str]) -> dict[str, object]:
    """Returns what `with_checksum` was given; content without a checksum as it is.

    Args:
        content: content of a JSON file.
        path: path of the file, for the error.

    Raises:
        DataError: if the content has changed.
    """
    rest = {key: value for key, value in content.items() if key != _CHECKSUM}
    if _CHECKSUM in content and content[_CHECKSUM] != _digest_json(rest):
        raise DataError("damaged", where=path, field=_CHECKSUM, expected="that of the rest of the file")
    return rest


def _digest_json(content: Mapping[str, object]) -> str:
    return digest_bytes(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())


def digest_bytes(data: bytes) -> str:
    """Returns the SHA-256 of `data`, 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


Stamp = tuple[int, int, int, int]
_DIGESTS: dict[Path, tuple[Stamp, str]] = {}
"""SHA-256 of the files that this process has read, by path."""


def stamp_of(path: str | PathLike[str]) -> Stamp | None:
    """Returns numbers that differ once a file has changed; None if it is so new that they might not.

    Raises:
        OSError: if the file is missing or out of reach.
    """
    facts = Path(path).stat()
    if time.time_ns() - max(facts.st_mtime_ns, facts.st_ctime_ns) < _SETTLED_NS:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns


def digest_file(path: str | PathLike[str]) -> str:
    """Returns the SHA-256 of a file's contents, read once in a process unless the file changes.

    Raises:
        DataError: naming `path`, if it is missing or unreadable.
    """
    source = Path(path).absolute()
    with open_file(path) as handle:
        stamp, (old_stamp, digest) = stamp_of(source), _DIGESTS.get(source, (None, ""))
        if stamp is None or stamp != old_stamp:
            digest = hashlib.file_digest(handle, "sha256").hexdigest()
            if stamp is not None:
                _DIGESTS[source] = stamp, digest
    return digest


def digest_files(paths: Iterable[str | PathLike[str]], root: str | PathLike[str]) -> str:
    """Returns one SHA-256 over the names (relative to `root`) and contents of files, whatever their order.

    SHA-256 over the lines `sha256(contents) name` in order of name; a file given twice counts once.

    Raises:
        DataError: naming the file, if one is missing, damaged in a sealed folder, or lies outside `root`.
    """
    base = Path(root).resolve()
    names: dict[str, Path] = {}
    for path in paths:
        source = Path(path)
        # The folder is resolved and the file is not: DVC may link files to its cache.
        resolved = source.parent.resolve() / source.name
        if not resolved.is_relative_to(base):
            raise DataError("outside the folder that is digested", where=source, expected=f"a file in {base}")
        check_sealed(source)
        names[resolved.relative_to(base).as_posix()] = source
    lines = (f"{digest_file(names[name])} {json.dumps(name)}\n" for name in sorted(names))
    return digest_bytes("".join(lines).encode())


@dataclass(frozen=True)
class _Seal:
    """The checksums of a finished folder.

    Attributes:
        folder: the folder.
        made_by: command that makes it.
        digests: SHA-256 of each file by its path from the folder.
    """

    folder: Path
    made_by: str
    digests: dict[str, str]


_SEALS: dict[Path, tuple[Stamp, _Seal]] = {}
"""Lists of checksums that this process has read, by path."""


def seal(folder: str | PathLike[str], made_by: str, without: str = "") -> None:
    """Writes the checksums of all files in a folder and below, from when on they are compared where read.

    Hidden files, notes for readers (`.md`) and the files of folders that are sealed themselves are left out.
    A folder without any other file gets no list.

    Args:
        folder: folder whose files are complete.
        made_by: command that makes them again, for the messages about damaged ones.
        without: name of a folder whose files their owner may change.

    Raises:
        DataError: if a file cannot be read, or the list cannot be written.
    """
    root = Path(folder)
    lines = [f"{_HEAD}{made_by}\n"]
    for name in sorted(_names_to_seal(root, without)):
        lines.append(f"{digest_file(root / name)}  {name}\n")
    if len(lines) == 1:
        unseal(root)
        return
    text = "".join(lines)
    write_text(root / CHECKSUMS_FILE, f"{text}{_FOOT}{digest_bytes(text.encode())}\n")


def _names_to_seal(root: Path, without: str) -> Iterator[str]:
    sealed_below = {listing.parent for listing in root.rglob(CHECKSUMS_FILE)} - {root}
    for path in root.rglob("*"):
        name = path.relative_to(root)
        is_left_out = path.suffix == ".md" or path.name == CHECKSUMS_FILE or without in name.parts
        is_left_out |= any(part[0] == "." for part in name.parts) or not sealed_below.isdisjoint(path.parents)
        # A name that does not fit in a line of text, which only a user's own file can have, is left out.
        if not is_left_out and path.is_file() and str(name).isprintable():
            yield name.as_posix()


def unseal(folder: str | PathLike[str]) -> None:
    """Removes the checksums of a folder whose files are about to change."""
    Path(folder, CHECKSUMS_FILE).unlink(missing_ok=True)


def check_sealed(path: str | PathLike[str]) -> bool:
    """Compares a file with the checksums of the folder that it lies in; returns whether there are any.

    Raises:
        DataError: naming the file and the command that makes it again, if its bytes or those of the list have
            changed; naming the file, if it is in the list and missing.
    """
    source = Path(path).absolute()
    sealed = _seal_above(source)
    if sealed is None:
        return False
    expected = sealed.digests.get(source.relative_to(sealed.folder).as_posix())
    if expected is None:
        return False
    if digest_file(source) != expected:
        as_listed = f"SHA-256 {expected[:12]}... as in {CHECKSUMS_FILE}; made again by {sealed.made_by}"
        raise DataError("damaged", where=path, expected=as_listed)
    return True


def _seal_above(source: Path) -> _Seal | None:
    """Returns the seal of the nearest folder above a file that has one."""
    for folder in source.parents if source.name != CHECKSUMS_FILE else ():
        try:
            return _read_seal(folder / CHECKSUMS_FILE)
        except FileNotFoundError:
            continue
        except OSError as error:
            _refuse(folder / CHECKSUMS_FILE, "read", error)
    return None


def _break_seal(path: Path) -> None:
    """Removes the nearest seal above a file that is about to be replaced.

    It stays if it lists nothing of the folder in it that the file is in: that had a seal of its own.
    """
    for folder in path.absolute().parents if path.name != CHECKSUMS_FILE else ():
        if (folder / CHECKSUMS_FILE).exists():
            if _lists_beside(folder, path.absolute().relative_to(folder)):
                unseal(folder)
            return


def _lists_beside(folder: Path, name: Path) -> bool:
    try:
        listed = _read_seal(folder / CHECKSUMS_FILE).digests
    except DataError:  # A damaged seal says nothing of its files.
        return True
    return len(name.parts) == 1 or any(each.startswith(f"{name.parts[0]}/") for each in listed)


def _read_seal(path: Path) -> _Seal:
    stamp = stamp_of(path)
    old_stamp, known = _SEALS.get(path, (None, None))
    if known is not None and stamp is not None and stamp == old_stamp:
        return known
    with path.open("rb") as stream:
        text = stream.read(MAX_FILE_BYTES).decode("utf-8", errors="replace")
    above = text[: text.rfind(_FOOT)]
    head, *lines = above.splitlines() or [""]
    made_by = " ".join(head.removeprefix(_HEAD).split())[:_MAX_COMMAND_LENGTH]
    matches = [match for line in lines if (match := _LINE.fullmatch(line))]
    is_whole = text == f"{above}{_FOOT}{digest_bytes(above.encode())}\n" and head.startswith(_HEAD)
    if not is_whole or len(matches) < len(lines):
        expected = f"its own SHA-256 in the last line; made again by {made_by}"
        raise DataError("damaged", where=path, expected=expected)
    sealed = _Seal(path.parent, made_by, {match[2]: match[1] for match in matches})
    if stamp is not None:
        _SEALS[path] = stamp, sealed
    return sealed


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
    """Returns whether a process of this host is running; one that has ended and was not waited for is not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    try:
        # The name, in brackets, may have any characters; the state is what comes after it.
        state = Path("/proc", str(pid), "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):  # no Linux
        return True
    return state not in "ZX"
