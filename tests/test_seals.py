"""Checksums of finished folders: each bit counts, those of the list too; writing breaks the seal."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from costbench.artifacts import (
    CHECKSUMS_FILE,
    check_sealed,
    digest_file,
    read_bytes,
    read_json,
    seal,
    stamp_of,
    unseal,
    with_checksum,
    without_checksum,
    write_json,
)
from costbench.errors import CostbenchError, DataError
from costbench.params import load_yaml

AGAIN = "`costbench generate`"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sealed folder."""
    for name, text in {"a.json": "{}\n", "inner/b.yaml": "x: 1\n", "c.bin": "1234", "notes.md": "x"}.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    seal(tmp_path, AGAIN)
    return tmp_path


def flip(path: Path, bit: int) -> None:
    """Changes one bit, and nothing else about the file: its time stays as it was."""
    times, data = path.stat(), bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_the_list_is_one_that_sha256sum_reads(folder: Path) -> None:
    done = subprocess.run(
        ["sha256sum", "-c", CHECKSUMS_FILE], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split("\n")) == (
        0,
        ["a.json: OK", "c.bin: OK", "inner/b.yaml: OK", ""],
    )


@pytest.mark.parametrize("name", ["a.json", "inner/b.yaml", "c.bin"])
def test_each_bit_of_a_file_counts(folder: Path, name: str) -> None:
    path = folder / name
    read = {".json": read_json, ".yaml": load_yaml, ".bin": read_bytes}[path.suffix]
    before = read(path)
    for bit in range(8 * path.stat().st_size):
        flip(path, bit)
        with pytest.raises(CostbenchError, match=f"damaged .*made again by {AGAIN}") as raised:
            read(path)
        assert str(raised.value).startswith(str(path))
        flip(path, bit)
    assert read(path) == before


def test_each_bit_of_the_list_counts(folder: Path) -> None:
    listing = folder / CHECKSUMS_FILE
    for bit in range(8 * listing.stat().st_size):
        flip(listing, bit)
        with pytest.raises(DataError, match=f"{CHECKSUMS_FILE}: damaged"):
            read_bytes(folder / "c.bin")
        flip(listing, bit)
    assert check_sealed(folder / "c.bin")


def test_what_is_not_listed_is_not_compared(folder: Path) -> None:
    (folder / "notes.md").write_text("y")
    (folder / "new.json").write_text("[]")
    assert read_bytes(folder / "notes.md") == b"y"
    assert read_json(folder / "new.json") == []
    assert not check_sealed(folder / "new.json")


def test_the_nearest_list_counts(folder: Path) -> None:
    seal(folder / "inner", "another command")
    (folder / "inner" / "b.yaml").write_text("x: 2\n")
    with pytest.raises(CostbenchError, match="another command"):
        load_yaml(folder / "inner" / "b.yaml")
    seal(folder, AGAIN)
    assert "b.yaml" not in (folder / CHECKSUMS_FILE).read_text()


def test_writing_breaks_the_seal_and_nothing_else_does(folder: Path) -> None:
    read_json(folder / "a.json")
    assert (folder / CHECKSUMS_FILE).exists()
    write_json(folder / "inner" / "new.json", [])
    assert not (folder / CHECKSUMS_FILE).exists()
    unseal(folder)


def test_writing_breaks_no_seal_of_other_folders(folder: Path) -> None:
    """As reports of a profile in a folder of the default's, whose own seal goes with its first new file."""
    seal(folder / "inner", "another command")
    seal(folder, AGAIN)
    for name in ("b.yaml", "new.json"):
        write_json(folder / "inner" / name, [])
    assert not (folder / "inner" / CHECKSUMS_FILE).exists()
    assert check_sealed(folder / "a.json")
    (folder / CHECKSUMS_FILE).write_text("damaged")
    write_json(folder / "inner" / "new.json", [1])
    assert not (folder / CHECKSUMS_FILE).exists()


def test_a_file_is_read_once_until_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"1")
    assert stamp_of(path) is None  # so new that the next change could have the same time
    old = path.stat().st_mtime_ns - 10**10
    os.utime(path, ns=(old, old))
    first = digest_file(path)
    flip(path, 0)
    assert digest_file(path) != first


def test_a_file_that_travels_alone_has_a_checksum_of_its_own(tmp_path: Path) -> None:
    content = {"a": [1, 2.5], "b": "text"}
    checked = with_checksum(content)
    assert without_checksum(checked, tmp_path) == content
    with pytest.raises(DataError, match="sha256: damaged"):
        without_checksum({**checked, "a": [1, 2.6]}, tmp_path)
    assert without_checksum(content, tmp_path) == content


def test_all_data_of_the_repository_is_sealed(repository: Path) -> None:
    """After a change of one of these files, the command in the first line of the list seals them again."""
    files = [path for path in (repository / "data").rglob("*") if path.is_file() and "user" not in path.parts]
    for path in files:
        if path.name not in (CHECKSUMS_FILE, "dvc.yaml", "dvc.lock", "README.md") and path.name[0] != ".":
            assert check_sealed(path), path
