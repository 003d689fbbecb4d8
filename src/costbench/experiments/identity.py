"""What a result follows from: parameters, data and code, each as a short name that changes with it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from costbench.artifacts import digest_files

_PACKAGE = Path(__file__).resolve().parents[1]
_SOURCE_SUFFIXES = {".py", ".yaml", ".csv"}
# What decides about results; reports and notes may differ freely.
_CODE = ("src", "pipelines", "data/programs/manifest.json")
UNKNOWN_REVISION = "unknown"


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
    return digest_files(files, _PACKAGE)[:16]
