"""What is kept, computed, computed again, continued, copied and removed."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from costbench.artifacts import read_json
from costbench.errors import DataError
from costbench.execution.workers import Backend
from costbench.store import Entry, KeyedResult, Progress, WorkItem, compute, key_of, remove_outdated


@dataclass(frozen=True)
class Squared(KeyedResult):
    """A result."""

    value: int


def square(item: WorkItem[int]) -> Squared:
    return item.keep(Squared(item.key, item.task**2))


def made(folder: Path, numbers: list[int], code: str, jobs: int = 1) -> tuple[dict[str, int], list[str]]:
    """Returns the values by name, and what was computed rather than kept."""
    said: list[str] = []

    def log(one: Progress[Squared]) -> None:
        said.append(f"{one.done}/{one.total} {one.name} {one.result.value}")

    items = [WorkItem.of(f"n{number}", number, folder, (code, str(number))) for number in numbers]
    results = compute(square, Squared, items, Backend(jobs=jobs), "squares", log, folder=folder)
    return {name: one.value for name, one in results.items()}, said


def test_what_is_kept_is_not_computed_again(tmp_path: Path) -> None:
    assert made(tmp_path, [2, 3], "a") == ({"n2": 4, "n3": 9}, ["1/2 n2 4", "2/2 n3 9"])
    assert made(tmp_path, [4, 2, 3], "a") == ({"n4": 16, "n2": 4, "n3": 9}, ["1/1 n4 16"])
    assert made(tmp_path, [2], "b") == ({"n2": 4}, ["1/1 n2 4"])
    assert [file.name for file in tmp_path.iterdir()] == ["n2.json"]


def test_processes_compute_the_same(tmp_path: Path) -> None:
    values, said = made(tmp_path, [2, 3, 4], "a", jobs=2)
    assert (values, len(said)) == ({"n2": 4, "n3": 9, "n4": 16}, 3)


@pytest.mark.parametrize("damage", ["{", "[]", '{"files": {}}', '{"files": {}, "key": "k", "value": "4"}'])
def test_a_damaged_note_is_as_good_as_none(tmp_path: Path, damage: str) -> None:
    made(tmp_path, [2], "a")
    (tmp_path / "n2.json").write_text(damage)
    assert made(tmp_path, [2], "a") == ({"n2": 4}, ["1/1 n2 4"])


def test_a_key_is_a_digest_of_all_parts_in_order() -> None:
    assert len({key_of("a", "b"), key_of("b", "a"), key_of("ab"), key_of("a", "b", "")}) == 4
    assert len(key_of("a")) == 32


def written(entry: Entry, text: str = "data") -> Squared:
    """What computes a result with a file."""
    path = entry.note.parent / "weights.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return Squared(entry.key, 4)


def cell(folder: Path, name: str, key: str, content: str = "") -> Entry:
    return Entry(folder / "experiment" / name / "done.json", key, None, content, folder if content else None)


def test_files_count_as_the_note_names_them(tmp_path: Path) -> None:
    entry = cell(tmp_path, "a", "k")
    assert entry.get(Squared, partial(written, entry)) == Squared("k", 4)
    folder = entry.note.parent
    assert sorted(path.name for path in folder.iterdir()) == ["done.json", "weights.bin"]
    # Equal results leave equal bytes.
    before = entry.note.read_bytes()
    shutil.rmtree(folder)
    entry.get(Squared, partial(written, entry))
    assert entry.note.read_bytes() == before
    (folder / "weights.bin").write_text("dat2")
    assert entry.read(Squared) is None
    (folder / "weights.bin").unlink()
    assert entry.read(Squared) is None
    assert entry.get(Squared, partial(written, entry)) == entry.read(Squared)
    assert replace(entry, key="other").read(Squared) is None


def killed(entry: Entry) -> Squared:
    written(entry, "half")
    raise DataError("killed")


def test_what_a_killed_process_leaves_is_for_the_same_key_alone(tmp_path: Path) -> None:
    entry = cell(tmp_path, "a", "k")
    left = entry.note.parent / "weights.bin"
    for _ in range(2):
        with pytest.raises(DataError, match="killed"):
            entry.get(Squared, partial(killed, entry))
    entry.begin()
    assert left.read_text() == "half"
    replace(entry, key="other").begin()
    assert not left.exists()
    # A complete result that no longer fits is removed as well.
    entry.get(Squared, partial(written, entry))
    replace(entry, key="other").begin()
    assert [path.name for path in entry.note.parent.iterdir()] == ["done.started"]


def test_files_in_other_folders_are_shared(tmp_path: Path) -> None:
    shared = tmp_path / "programs" / "p.bin"
    shared.parent.mkdir()
    shared.write_text("program")
    entry = Entry(tmp_path / "p.json", "k", (tmp_path / "weights.bin", shared))
    entry.get(Squared, partial(written, entry))
    assert set(read_json(entry.note)["files"]) == {"weights.bin", "programs/p.bin"}  # type: ignore[index]
    replace(entry, key="other").begin()
    assert shared.exists()
    assert not (tmp_path / "weights.bin").exists()
    shared.write_text("another")
    assert entry.read(Squared) is None


def test_files_of_the_same_content_are_copied(tmp_path: Path) -> None:
    first, second = cell(tmp_path, "a", "k", "same"), cell(tmp_path, "b", "l", "same")
    first.get(Squared, partial(written, first))
    assert second.get(Squared, partial(killed, second)) == Squared("l", 4)
    assert (second.note.parent / "weights.bin").read_text() == "data"
    # It stands for itself: the first one may go.
    shutil.rmtree(first.note.parent)
    assert second.read(Squared) == Squared("l", 4)


@pytest.mark.parametrize("change", ["weights.bin", "done.json", "content", "siblings"])
def test_otherwise_they_are_computed(tmp_path: Path, change: str) -> None:
    first, second = cell(tmp_path, "a", "k", "same"), cell(tmp_path, "b", "l", "same")
    first.get(Squared, partial(written, first))
    if change == "content":
        second = replace(second, content="another")
    elif change == "siblings":
        second = replace(second, siblings=None)
    else:
        (first.note.parent / change).write_text("{}")
    with pytest.raises(DataError, match="killed"):
        second.get(Squared, partial(killed, second))


def note_who(item: WorkItem[str]) -> Squared:
    return item.entry.get(Squared, partial(written, item.entry, item.task))


def test_of_equal_content_one_is_computed(tmp_path: Path) -> None:
    items = [WorkItem(name, name, cell(tmp_path, name, name, "same")) for name in "ab"]
    said: list[str] = []
    results = compute(
        note_who, Squared, items, Backend(), "cells", lambda one: said.append(f"{one.done} {one.name}")
    )
    assert results == {"a": Squared("a", 4), "b": Squared("b", 4)}
    assert said == ["1 a", "2 b"]
    assert {(item.entry.note.parent / "weights.bin").read_text() for item in items} == {"a"}


@dataclass(frozen=True)
class _Parts:
    """A task of which each part is kept."""

    parts: tuple[Entry, ...]


def sum_of_parts(item: WorkItem[_Parts]) -> Squared:
    results = [part.get(Squared, partial(Squared, part.key, 2)) for part in item.task.parts]
    return item.keep(Squared(item.key, sum(result.value for result in results)))


@pytest.mark.parametrize("name", ["a", "b", "whole"])
def test_a_damaged_part_is_made_again(tmp_path: Path, name: str) -> None:
    whole, *parts = (Entry(tmp_path / f"{name}.json", key_of(name)) for name in ("whole", "a", "b"))
    item = WorkItem("sum", _Parts(tuple(parts)), whole, tuple(parts))
    computed: list[str] = []
    for number in range(3):
        results = compute(
            sum_of_parts, Squared, [item], Backend(jobs=1), "sums", lambda p: computed.append(p.name)
        )
        assert results["sum"].value == 4
        assert len(computed) == min(number + 1, 2)
        notes = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
        if number == 0:
            before = notes
            (tmp_path / f"{name}.json").write_bytes(
                notes[f"{name}.json"].replace(b"2", b"3").replace(b"4", b"5")
            )
        assert notes == before


def test_what_nobody_asks_for_is_removed(tmp_path: Path) -> None:
    for name in ("kept.json", "gone.json", "cell/a/weights.bin", "old/a/weights.bin", ".tmp-live"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(name))
    remove_outdated(tmp_path, [tmp_path / "kept.json", tmp_path / "cell" / "a"])
    left = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert left == {"kept.json", "cell", "cell/a", "cell/a/weights.bin", ".tmp-live"}
    remove_outdated(tmp_path / "not there", [])
