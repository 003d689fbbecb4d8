"""What a result follows from: parameters, data and code, each as a short name that changes with it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from costbench.artifacts import digest_bytes, digest_files, read_json, write_json
from costbench.errors import DataError, ParamsError
from costbench.params import digest, parse

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_PACKAGE = Path(__file__).resolve().parents[1]
_SOURCE_SUFFIXES = {".py", ".yaml", ".csv"}
# What decides about results; reports and notes may differ freely.
_CODE = ("src", "pipelines", "data/programs/manifest.json")
UNKNOWN_REVISION = "unknown"
_FILE = "identity.json"
_DIGEST_LENGTH = 16


def git_revision(root: Path) -> str:
    """The commit checked out in `root`, with `+changes` behind it where code differs from the commit.

    Outside of a repository (an unpacked archive), or without git: `unknown`.
    """
    head = _git(root, "rev-parse", "HEAD")
    if head is None:
        return UNKNOWN_REVISION
    changes = _git(root, "status", "--porcelain", "--", *_CODE)
    return head + ("+changes" if changes else "")


def _git(root: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def code_digest(packages: Iterable[str]) -> str:
    """Identity of the sources of some of costbench's packages (or modules), 16 hexadecimal digits.

    Work that outlives a run (shards, training cells) is kept under this name beside that of its parameters,
    so a change of the code is never hidden by what an older version left behind.
    """
    files: list[Path] = []
    for name in packages:
        place = _PACKAGE / name
        inside = place.rglob("*") if place.is_dir() else [place.with_suffix(".py")]
        files += [path for path in inside if path.suffix in _SOURCE_SUFFIXES]
    return digest_files(files, _PACKAGE)[:_DIGEST_LENGTH]


@dataclass(frozen=True)
class StageIdentity:
    """What a stage's folder follows from; lies in it as `identity.json`.

    Attributes:
        params_digest: of the stage's parameters and those of all stages before it.
        data_digest: of the samples that it made or read.
    """

    params_digest: str
    data_digest: str


def identify(params: DataclassInstance, data_digest: str, *before: StageIdentity) -> StageIdentity:
    """The identity of a stage with these parameters, after the stages `before` it.

    The digest is a chain rather than one over the parameter file, so that it says what the folders were
    made with, also where the file was edited since.
    """
    parts = [digest(params), *sorted(identity.params_digest for identity in before)]
    return StageIdentity(digest_bytes("/".join(parts).encode())[:_DIGEST_LENGTH], data_digest)


def write_identity(folder: Path, identity: StageIdentity) -> None:
    """Write `identity.json`. Raises: DataError, if that is impossible."""
    write_json(folder / _FILE, asdict(identity))


def read_identity(folder: Path) -> StageIdentity:
    """Read `identity.json`.

    Raises:
        DataError: if it is missing (the stage has not finished) or broken.
    """
    path = folder / _FILE
    if not path.exists():
        raise DataError("not there", where=path, expected=f"the finished stage {folder.name!r}")
    try:
        return parse(StageIdentity, read_json(path), where=path)
    except ParamsError as error:
        raise DataError(error.problem, where=path, field=error.field, expected=error.expected) from error
