"""Digests of the parameters, data and code that a result depends on.

Results that are kept between runs (shards, training cells, trials) carry the digest of the code that made
them, so results of an older version of the code are never taken for those of the current one.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from costbench.artifacts import digest_bytes, read_json, seal, write_json
from costbench.errors import DataError, ParamsError
from costbench.execution.closure import Closure, find_closure, installed_sources
from costbench.execution.dotted import is_dotted, source_digest
from costbench.params import digest, parse

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# Modules whose code no result depends on. Tracking and progress only receive results; workers, cluster and
# store pass on unchanged what functions return, so results are equal whichever of them is used.
EXCLUDED = (
    "costbench.experiments.tracking",
    "costbench.experiments.progress",
    "costbench.execution.cluster",
    "costbench.execution.workers",
    "costbench.store",
)
# Files that results depend on; reports and notes may differ.
_CODE = ("src", "pipelines", "data/programs/manifest.json")
UNKNOWN_REVISION = "unknown"
IDENTITY_FILE = "identity.json"
_EACH_EXPERIMENT = ("train", "evaluate")
_DIGEST_LENGTH = 16


def git_revision(root: Path) -> str:
    """Returns the commit checked out in `root`, with the suffix `+changes` where code differs from it.

    Returns `unknown` outside of a repository (an unpacked archive) or without git.
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
    """Returns the code that functions (or classes) run, as it is on disk; read once per process."""
    return _of_modules(tuple(sorted({function.__module__ for function in work})))


def module_closure(name: str, without: tuple[str, ...] = EXCLUDED) -> Closure:
    """Returns the code that a module runs, as `closure` does, without the modules and packages `without`."""
    return _of_modules((name,), without)


@cache
def _of_modules(names: tuple[str, ...], without: tuple[str, ...] = EXCLUDED) -> Closure:
    return find_closure(names, installed_sources(), without)


def code_digest(*work: Callable[..., object]) -> str:
    """Returns the digest of all code that functions (or classes) run, 16 hexadecimal digits.

    It includes the minor version of Python, since Numba compiles its byte code.
    """
    return digest_bytes(f"{closure(*work).digest()} {_python()}".encode())[:_DIGEST_LENGTH]


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True)
class StageIdentity:
    """What a stage's folder depends on, stored in it as `identity.json`.

    Attributes:
        params_digest: digest of the stage's parameters and those of all stages before it.
        data_digest: digest of the samples that it made or read.
        code_digest: digest of the code of the stage and of all before it, without the version of Python.
    """

    params_digest: str
    data_digest: str
    code_digest: str


def identify(
    module: str, params: DataclassInstance, data_digest: str, *before: StageIdentity
) -> StageIdentity:
    """Returns the identity of a stage.

    Digests are chained from stage to stage instead of taken from the parameter file and the package as they
    are now, so they name what the folders were made with even if files were edited since.

    Args:
        module: name of the stage's module.
        params: parameters of the stage.
        data_digest: digest of the samples that it made or read.
        before: identities of the stages that it depends on.
    """
    return StageIdentity(
        _chained(digest(params), [stage.params_digest for stage in before]),
        data_digest,
        _chained(module_closure(module).digest(), [stage.code_digest for stage in before]),
    )


def source_identities(names: Iterable[str]) -> tuple[StageIdentity, ...]:
    """Returns the identities of the files that dotted paths among `names` are defined in.

    Raises:
        DataError: if a file is not there.
    """
    return tuple(StageIdentity("", "", source_digest(name)) for name in names if is_dotted(name))


def with_sources(code: str, parts: Mapping[str, str]) -> str:
    """Returns the digest of code together with the sources of a user's own parts, which it runs.

    Args:
        code: digest of the code; the result if there are no parts.
        parts: dotted paths by the names of the fields that hold them.

    Raises:
        ParamsError: naming the field, if a source is not there.
    """
    if not parts:
        return code
    sources = [f"{name}={text}:{part_digest(text, name)}" for name, text in sorted(parts.items())]
    return digest_bytes("/".join([code, *sources]).encode())[:_DIGEST_LENGTH]


def part_digest(text: str, field: str) -> str:
    """Returns the digest of the source of a user's own part, as `source_digest` does.

    Args:
        text: dotted path, maybe with arguments.
        field: name of the field that holds it.

    Raises:
        ParamsError: naming the field, if there is no such module, or its file cannot be read or parsed.
    """
    try:
        return source_digest(text)
    except DataError as error:
        raise ParamsError(error.message(), field=field) from error


def _chained(digest_of_stage: str, before: list[str]) -> str:
    return digest_bytes("/".join([digest_of_stage, *sorted(before)]).encode())[:_DIGEST_LENGTH]


def write_identity(folder: Path, identity: StageIdentity) -> None:
    """Writes `identity.json`, and seals the folder, whose other files are complete.

    Args:
        folder: folder of the stage, or of an experiment in it.
        identity: what the folder depends on.

    Raises:
        DataError: if that is impossible.
    """
    write_json(folder / IDENTITY_FILE, asdict(identity))
    stage, name = folder.parent.name, folder.name
    of_experiment = stage in _EACH_EXPERIMENT
    seal(folder, f"`costbench {stage} --experiment {name}`" if of_experiment else f"`costbench {name}`")


def read_identity(folder: Path) -> StageIdentity:
    """Reads `identity.json`.

    Raises:
        DataError: if it is missing (the stage has not finished) or broken.
    """
    path = folder / IDENTITY_FILE
    if not path.exists():
        raise DataError("not there", where=path, expected=f"the finished stage {folder.name!r}")
    return parse(StageIdentity, read_json(path), where=path, error=DataError)
