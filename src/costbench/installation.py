"""What comes with costbench besides its code: the files of a project, and how its extras are installed.

A checkout is a project itself: `params.yaml`, `dvc.yaml`, the corpus and so on lie in its root. A wheel has
the same files in a folder beside the package; the build (`hatch_build.py`) asks this module which ones, so it
imports nothing but the standard library.
"""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

FOLDER = "costbench_project"
"""Folder beside the installed package that has a project's files."""
_PACKAGE = Path(__file__).resolve().parent
_PATTERNS = (
    "params.yaml",
    "schedules.yaml",
    "dvc.yaml",
    ".dvcignore",
    ".gitignore",
    "profiles/*/*.yaml",
    "pipelines/*.py",
    "tools/with_workers.sh",
    "examples/*.py",
    "examples/*.ipynb",
    "data/programs/costbench.sha256",
    "data/programs/manifest.json",
    "data/programs/*.hlo.pb.zst",
    "data/programs/user/README.md",
    "data/networks/*.*",
    "data/schedules/*.*",
    "data/schedules/*/*.*",
    "data/schedules/*/*/*.*",
    "data/gpu_tuning/*",
    "data/results/gpu_tuning/*.*",
    "data/xla_cpu/*.*",
    "data/xla_cpu/*/*.*",
    "data/results/headline/*.*",
    "data/results/schedules/*.*",
    "data/results/xla_cpu/*.*",
    "data/results/xla_cpu_searches/*.*",
)
_LEFT_OUT = ("pipelines/collect.py",)
"""Files that need a checkout."""
_RENAMED = {"docs/project.md": "README.md"}


def project_files(root: Path) -> dict[str, Path]:
    """Returns the files that a project begins with, by their path in it, in order of name.

    Args:
        root: root of a checkout.
    """
    files = {path.relative_to(root).as_posix(): path for pattern in _PATTERNS for path in root.glob(pattern)}
    files |= {name: root / source for source, name in _RENAMED.items()}
    return {name: files[name] for name in sorted(files) if name not in _LEFT_OUT}


def installed_files() -> dict[str, Path]:
    """Returns the files that a project begins with, as they came with the installed package."""
    installed = _PACKAGE.parent / FOLDER
    if not installed.is_dir():
        return project_files(_PACKAGE.parents[1])
    files = (path for path in sorted(installed.rglob("*")) if path.is_file() and path.suffix != ".pyc")
    return {path.relative_to(installed).as_posix(): path for path in files}


def install_line(extra: str) -> str:
    """Returns the command that installs what an extra of costbench needs.

    It names the libraries and not costbench, which no index has: anybody could take the name there.
    """
    listed = (line.partition(";") for line in metadata.requires("costbench") or ())
    libraries = [name.strip() for name, _, marker in listed if f'"{extra}"' in marker.replace("'", '"')]
    if not libraries:
        return f"an installation of costbench with the extra {extra}"
    return "pip install " + " ".join(f"'{name}'" for name in libraries)
