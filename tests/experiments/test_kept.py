"""Results of work items are kept until what they follow from changes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from costbench.execution.backend import Backend
from costbench.experiments.kept import KeptResults, KeyedResult, Progress, WorkItem


@dataclass(frozen=True)
class Squared(KeyedResult):
    """A result."""

    value: int


@dataclass(frozen=True)
class Number:
    """A task."""

    value: int

    @property
    def name(self) -> str:
        return f"n{self.value}"


def square(item: WorkItem[Number]) -> Squared:
    return item.keep(Squared(item.key, item.task.value**2))


def made(folder: Path, numbers: list[int], code: str) -> tuple[dict[str, int], list[str]]:
    """Returns the values by name, and what was computed rather than kept."""
    said: list[str] = []

    def log(one: Progress[Squared]) -> None:
        said.append(f"{one.done}/{one.total} {one.name} {one.result.value}")

    items = [WorkItem.of(Number(each), folder, (code, str(each))) for each in numbers]
    results = KeptResults(folder, Squared, "squares")
    found = results.completed(square, items, Backend(jobs=1), log)
    return {name: one.value for name, one in found.items()}, said


def test_what_is_kept_is_not_computed_again(tmp_path: Path) -> None:
    assert made(tmp_path, [2, 3], "a") == ({"n2": 4, "n3": 9}, ["1/2 n2 4", "2/2 n3 9"])
    assert made(tmp_path, [2, 3, 4], "a") == ({"n2": 4, "n3": 9, "n4": 16}, ["1/1 n4 16"])
    assert made(tmp_path, [2], "b") == ({"n2": 4}, ["1/1 n2 4"])
    assert [file.name for file in tmp_path.iterdir()] == ["n2.json"]


def test_a_damaged_file_is_computed_again(tmp_path: Path) -> None:
    made(tmp_path, [2], "a")
    (tmp_path / "n2.json").write_text("{")
    assert made(tmp_path, [2], "a") == ({"n2": 4}, ["1/1 n2 4"])


def test_the_key_is_a_digest_of_all_parts_in_order(tmp_path: Path) -> None:
    item = WorkItem.of(Number(2), tmp_path, ("a", "b"))
    assert item.key == hashlib.sha256(b"a\0b").hexdigest()[:32]
    assert item.path == tmp_path / "n2.json"
