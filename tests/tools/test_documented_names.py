"""Every path and every module that the documentation names is there.

Decisions and notes are of their day, and may name what is gone.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tools.check_links import prose_lines

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted(
    page
    for page in [
        *(REPOSITORY / "docs").glob("*.md"),
        REPOSITORY / "README.md",
        REPOSITORY / "CONTRIBUTING.md",
    ]
)
FOLDERS = ("src", "tests", "benchmarks", "tools", "pipelines", "corpus", "profiles", "examples", "docs")
PACKAGES = ("costbench", "costbench_schedules", "costbench_kernels", "costbench_suite")
LABELS = {"costbench.kind", "costbench.dropped_fingerprint", "costbench.sha256"}
"""Keys of tags and metadata and a name of a file, which look like modules."""
_SPAN = re.compile(r"`([^`]+)`")
_PATH = re.compile(rf"(?<![\w./<-])(?:{'|'.join(FOLDERS)})/[\w./*-]*")
_SOURCE = re.compile(r"(?<![\w./*<-])[a-z_]\w*(?:/[\w*]+)+\.(?:py|yaml)\b")
_MODULE = re.compile(rf"(?<![\w./-])(?:{'|'.join(PACKAGES)})(?:\.\w+)+")


def named(page: Path, pattern: re.Pattern[str]) -> set[str]:
    """What the code spans of a page name, outside of fenced and indented code."""
    lines = page.read_text("utf-8").splitlines()
    prose = [lines[n - 1] for n, line in prose_lines("\n".join(lines)) if not line.startswith("    ")]
    spans = {span for line in prose for span in _SPAN.findall(line)}
    return {match[0].rstrip(".") for span in spans for match in pattern.finditer(span)}


def defines(module: str) -> bool:
    """Whether a dotted name is a module, or something at the top level of one."""
    parts = module.split(".")
    for end in range(len(parts), 0, -1):
        base = REPOSITORY.joinpath("src", *parts[:end])
        if (base / "__init__.py").exists() and end == len(parts):
            return True
        if base.with_suffix(".py").exists():
            tree = ast.parse(base.with_suffix(".py").read_text("utf-8"))
            names = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)}
            names |= {
                node.id
                for node in ast.walk(tree)
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            }
            return set(parts[end:]) <= names
    return False


def exists(path: str) -> bool:
    """Whether a path, or a pattern, is there: below the repository, `src` or a package."""
    roots = (REPOSITORY, REPOSITORY / "src", *(REPOSITORY / "src" / name for name in PACKAGES))
    return any(any(root.glob(path.rstrip("/"))) for root in roots)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_and_modules_are_there(page: Path) -> None:
    gone = {path for path in named(page, _PATH) | named(page, _SOURCE) if not exists(path)}
    gone |= {module for module in named(page, _MODULE) - LABELS if not defines(module)}
    assert gone == set()


SCRIPTS = [
    REPOSITORY / "Makefile",
    REPOSITORY / ".ci" / "run",
    *sorted((REPOSITORY / "tools").glob("*.sh")),
]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_paths_in_scripts_are_there(script: Path) -> None:
    paths = set(
        re.findall(r"(?<![\w./$-])(?:tests|tools|profiles|src|data)/[\w./-]*\w", script.read_text("utf-8"))
    )
    assert {path for path in paths if not exists(path)} == set()
