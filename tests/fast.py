"""Which test files `--fast` collects: those that import nothing slow, found along their imports.

Nothing is listed by hand. A file is left out, before Python reads it, if it or a module that it reaches (in
a package of `src`, corpus, tests, benchmarks or examples; imports inside functions included) imports one of
`SLOW`.
Tests marked `slow`, `pipeline` or `corpus` are left out as well.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

SLOW = frozenset(
    {
        "distributed",
        "dvc",
        "jax",
        "keras",
        "matplotlib",
        "mlflow",
        "numba",
        "pytorch_lightning",
        "torch_geometric",
    }
)
"""Libraries that take seconds to import or to draw with, or (numba, after a change) minutes to compile."""
MARKS = ("corpus", "pipeline", "slow")

_ROOT = Path(__file__).resolve().parents[1]
_OURS = {
    **{package.name: _ROOT / "src" for package in (_ROOT / "src").glob("costbench*")},
    **dict.fromkeys(("tests", "benchmarks", "corpus", "examples", "tools"), _ROOT),
}
_IMPORT = re.compile(r"^[ \t]*(?:from ([\w.]+) import (\([^)]*\)|[^\n]*)|import ([\w., ]+))", re.MULTILINE)


def is_fast(file: Path) -> bool:
    """Whether a test file reaches none of `SLOW`."""
    reached, waiting = {file}, [file]
    while waiting:
        outside, ours = _imports(waiting.pop())
        if outside & SLOW:
            return False
        waiting += ours - reached
        reached |= ours
    return True


@cache
def _imports(file: Path) -> tuple[frozenset[str], frozenset[Path]]:
    """Packages outside and files of ours that a file imports."""
    outside, ours = set(), set()
    for module, members, plain in _IMPORT.findall(file.read_text("utf-8")):
        names = [name.split(" as ")[0].strip() for name in (plain or members.strip("()")).split(",")]
        for name in [module, *(f"{module}.{name}" for name in names)] if module else names:
            top = name.partition(".")[0]
            if top not in _OURS:
                outside.add(top)
            elif (found := (_OURS[top] / name.replace(".", "/")).with_suffix(".py")).is_file():
                ours.add(found)
    return frozenset(outside), frozenset(ours)
