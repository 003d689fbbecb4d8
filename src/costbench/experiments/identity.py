"""What a result follows from: parameters, data and code, each as a short name that changes with it.

Work that outlives a run (shards, training cells, trials) is kept under the digest of the code that made it,
so that a change of the code is never hidden by what an older version left behind.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from costbench.artifacts import digest_bytes, read_json, write_json
from costbench.errors import DataError, ParamsError
from costbench.execution.closure import Closure, Package, find_closure, read_package
from costbench.params import digest, parse

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_PACKAGE = Path(__file__).resolve().parents[1]
# No result follows from their code. Tracking and progress are told of results and give nothing back; workers
# and cluster hand on, unchanged, what functions return, and results are equal whichever of them does.
BYSTANDERS = (
    "costbench.experiments.tracking",
    "costbench.experiments.progress",
    "costbench.execution.backend",
    "costbench.execution.cluster",
    "costbench.execution.process",
    "costbench.execution.workers",
)
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


def closure(*work: Callable[..., object]) -> Closure:
    """The code that functions (or classes) run, as it lies on disk; read once in a process."""
    return _of_modules(tuple(sorted({one.__module__ for one in work})))


def module_closure(name: str, without: tuple[str, ...] = BYSTANDERS) -> Closure:
    """The code that a module runs, as `closure`; modules and packages that are left out can be chosen."""
    return _of_modules((name,), without)


@cache
def _of_modules(names: tuple[str, ...], without: tuple[str, ...] = BYSTANDERS) -> Closure:
    return find_closure(names, _package(), without)


@cache
def _package() -> Package:
    return read_package(_PACKAGE)


def code_digest(*work: Callable[..., object]) -> str:
    """Identity of all code that functions (or classes) run, 16 hexadecimal digits.

    The minor version of Python counts as well, since Numba compiles its byte code.
    """
    return digest_bytes(f"{closure(*work).digest()} {_python()}".encode())[:_DIGEST_LENGTH]


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class StageIdentity:
    """What a stage's folder follows from; lies in it as `identity.json`.

    Attributes:
        params_digest: of the stage's parameters and those of all stages before it.
        data_digest: of the samples that it made or read.
        code_digest: of the code of the stage and of all stages before it, whatever Python runs it.
    """

    params_digest: str
    data_digest: str
    code_digest: str


def identify(
    module: str, params: DataclassInstance, data_digest: str, *before: StageIdentity
) -> StageIdentity:
    """The identity of a stage.

    Its digests are chains rather than those of the parameter file and the package, so that they say what the
    folders were made with, also where files were edited since.

    Args:
        module: of the stage, by name.
        params: of the stage.
        data_digest: of the samples that it made or read.
        before: identities of stages that it follows.
    """
    return StageIdentity(
        _chained(digest(params), [one.params_digest for one in before]),
        data_digest,
        _chained(module_closure(module).digest(), [one.code_digest for one in before]),
    )


def _chained(own: str, before: list[str]) -> str:
    return digest_bytes("/".join([own, *sorted(before)]).encode())[:_DIGEST_LENGTH]


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
