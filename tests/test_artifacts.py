from __future__ import annotations

import errno
import hashlib
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench import artifacts
from costbench.errors import DataError

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=12,
)


def names_in(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def dead_process() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_atomic_path_makes_folders_and_leaves_only_the_destination(tmp_path: Path) -> None:
    with artifacts.atomic_path(tmp_path / "a" / "b.bin") as temporary:
        assert temporary.parent == tmp_path / "a"
        temporary.write_bytes(b"whole")
        assert names_in(tmp_path / "a") == [temporary.name]
    assert names_in(tmp_path / "a") == ["b.bin"]
    assert (tmp_path / "a" / "b.bin").read_bytes() == b"whole"


def test_atomic_path_keeps_the_suffix_for_writers_that_choose_by_it(tmp_path: Path) -> None:
    with artifacts.atomic_path(tmp_path / ("x" * 250 + ".npy")) as temporary:
        np.save(temporary, np.arange(3), allow_pickle=False)
    assert np.load(tmp_path / ("x" * 250 + ".npy"), allow_pickle=False).tolist() == [0, 1, 2]


@pytest.mark.parametrize("failure", [ValueError("bad"), KeyboardInterrupt()])
def test_a_failing_block_leaves_the_old_file_and_no_temporary(tmp_path: Path, failure: BaseException) -> None:
    path = tmp_path / "x.txt"
    path.write_text("old")
    with pytest.raises(type(failure)), artifacts.atomic_path(path) as temporary:
        temporary.write_text("half")
        raise failure
    assert names_in(tmp_path) == ["x.txt"]
    assert path.read_text() == "old"


def test_a_block_that_writes_nothing_is_an_error(tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match=r"x\.txt: nothing was written"),
        artifacts.atomic_path(tmp_path / "x.txt"),
    ):
        pass
    assert names_in(tmp_path) == []


def test_a_full_disk_names_the_destination_and_leaves_no_temporary(tmp_path: Path) -> None:
    with (
        pytest.raises(DataError, match=r"x\.txt: cannot write: No space left on device") as caught,
        artifacts.atomic_path(tmp_path / "x.txt") as temporary,
    ):
        temporary.write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.where == str(tmp_path / "x.txt")
    assert names_in(tmp_path) == []


def test_an_os_error_about_another_file_passes_through(tmp_path: Path) -> None:
    with (
        pytest.raises(FileNotFoundError, match="other"),
        artifacts.atomic_path(tmp_path / "x.txt") as temporary,
    ):
        temporary.write_text((tmp_path / "other").read_text())


def test_a_folder_or_a_file_in_the_way_is_a_data_error(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="folder: cannot write"):
        artifacts.write_bytes(tmp_path / "folder", b"")
    with pytest.raises(DataError, match="cannot write"):
        artifacts.write_bytes(tmp_path / "file" / "deep" / "x", b"")
    assert names_in(tmp_path) == ["file", "folder"]


def test_a_killed_writer_leaves_the_old_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    artifacts.write_text(path, "old")
    program = (
        "import os, sys, signal\n"
        "from costbench.artifacts import atomic_path\n"
        "with atomic_path(sys.argv[1]) as temporary:\n"
        "    temporary.write_text('half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    source = str(Path(artifacts.__file__).parents[1])
    killed = subprocess.run(
        [sys.executable, "-c", program, str(path)], env={**os.environ, "PYTHONPATH": source}, check=False
    )
    assert killed.returncode == -9
    assert path.read_text() == "old"
    left = [name for name in names_in(tmp_path) if name != "x.txt"]
    assert len(left) == 1
    assert artifacts.remove_stale_temporaries(tmp_path) == tuple(left)
    assert names_in(tmp_path) == ["x.txt"]


def test_writing_over_a_link_replaces_the_link_not_its_target(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("cached")
    (tmp_path / "x.txt").symlink_to(tmp_path / "cache")
    artifacts.write_text(tmp_path / "x.txt", "new")
    assert (tmp_path / "cache").read_text() == "cached"
    assert not (tmp_path / "x.txt").is_symlink()


def test_written_files_follow_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        artifacts.write_bytes(tmp_path / "x", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "x").stat().st_mode & 0o777 == 0o644


def test_json_has_one_form(tmp_path: Path) -> None:
    artifacts.write_json(tmp_path / "x.json", {"b": [1, 2.5], "a": "τ"})
    assert (tmp_path / "x.json").read_text("utf-8") == '{\n "a": "τ",\n "b": [\n  1,\n  2.5\n ]\n}\n'


@given(value=JSON_VALUES)
def test_json_round_trip(value: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("json") / "x.json"
    artifacts.write_json(path, value)
    assert artifacts.read_json(path) == value


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (float("nan"), "x.json: nan"),
        ({"a": {"b": [0.0, float("inf")]}}, r"x.json: a\.b\[1\]: inf"),
        ([{"a": -np.float64("inf")}], r"x.json: \[0\]\.a: .*-inf"),
    ],
)
def test_json_refuses_what_is_not_finite(tmp_path: Path, value: object, field: str) -> None:
    with pytest.raises(DataError, match=field):
        artifacts.write_json(tmp_path / "x.json", value)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"a": 1', "malformed JSON at line 1 column 8"),
        (b"", "malformed JSON at line 1 column 1"),
        (b'"\xff"', "not UTF-8 at byte 1"),
        (b"[NaN]", "NaN is no JSON number"),
        (b"[-Infinity]", "-Infinity is no JSON number"),
    ],
)
def test_reading_bad_json_names_the_file(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(DataError, match=rf"x\.json: {problem}"):
        artifacts.read_json(tmp_path / "x.json")


def test_reading_what_is_not_there_names_the_file(tmp_path: Path) -> None:
    for read in (artifacts.read_json, artifacts.read_bytes, artifacts.digest_file):
        with pytest.raises(DataError, match=r"absent\.json: no such file"):
            read(tmp_path / "absent.json")
        with pytest.raises(DataError, match="cannot read: Is a directory"):
            read(tmp_path)


def test_digests_are_sha256(tmp_path: Path) -> None:
    # FIPS 180-2, appendix B.1.
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    (tmp_path / "abc").write_bytes(b"abc")
    assert artifacts.digest_bytes(b"abc") == abc
    assert artifacts.digest_file(tmp_path / "abc") == abc
    line = f'{abc} "abc"\n'.encode()
    assert artifacts.digest_files([tmp_path / "abc"], tmp_path) == hashlib.sha256(line).hexdigest()


def test_digest_of_files_sees_names_and_contents_but_not_order(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "sub" / "b"
    artifacts.write_bytes(first, b"1")
    artifacts.write_bytes(second, b"2")
    digest = artifacts.digest_files([first, second], tmp_path)
    assert artifacts.digest_files([second, first, first], tmp_path) == digest
    assert artifacts.digest_files([second], tmp_path) != digest
    first.write_bytes(b"2")
    second.write_bytes(b"1")
    assert artifacts.digest_files([first, second], tmp_path) != digest
    assert artifacts.digest_files([], tmp_path) == hashlib.sha256(b"").hexdigest()


def test_digest_of_files_is_the_same_elsewhere_and_through_links(tmp_path: Path) -> None:
    artifacts.write_bytes(tmp_path / "one" / "a", b"1")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "a").symlink_to(tmp_path / "one" / "a")
    digests = {artifacts.digest_files([tmp_path / name / "a"], tmp_path / name) for name in ("one", "two")}
    assert len(digests) == 1


def test_digest_of_files_refuses_a_file_outside_the_root(tmp_path: Path) -> None:
    artifacts.write_bytes(tmp_path / "a", b"1")
    with pytest.raises(DataError, match="outside the folder"):
        artifacts.digest_files([tmp_path / "a"], tmp_path / "root")


def test_only_stale_temporaries_are_removed(tmp_path: Path) -> None:
    host = artifacts._host_tag()
    other = "0" * 8 if host != "0" * 8 else "1" * 8
    mine = f".tmp-{host}-{os.getpid()}-00000000-a"
    mine_old = f".tmp-{host}-{os.getpid()}-00000001-a"
    dead = f".tmp-{host}-{dead_process()}-00000000-a"
    elsewhere = f".tmp-{other}-1-00000000-a"
    elsewhere_old = f".tmp-{other}-1-00000001-a"
    names = ["shard.npy", ".tmp-of-somebody-else", mine, elsewhere]
    for name in [*names, mine_old, dead, elsewhere_old]:
        (tmp_path / name).write_bytes(b"")
    two_days_ago = time.time() - 2 * 24 * 3600
    for name in (mine_old, elsewhere_old):
        os.utime(tmp_path / name, (two_days_ago, two_days_ago))
    removed = artifacts.remove_stale_temporaries(tmp_path)
    assert sorted(removed) == sorted([mine_old, dead, elsewhere_old])
    assert names_in(tmp_path) == sorted(names)
    assert artifacts.remove_stale_temporaries(tmp_path / "absent") == ()


@pytest.mark.parametrize("text", ["[" * 5000, "[" + "9" * 5000 + "]", "[-1e999]", '{"a": NaN}'])
def test_json_that_is_deep_or_holds_no_plain_number_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(DataError, match=r"x\.json: "):
        artifacts.read_json(tmp_path / "x.json")


def test_devices_and_pipes_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", tmp_path / "pipe"):
        for read in (artifacts.read_bytes, artifacts.read_json, artifacts.digest_file):
            with pytest.raises(DataError, match="no regular file"):
                read(path)


def test_a_file_above_the_limit_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"12345")
    assert artifacts.read_bytes(tmp_path / "x", 5) == b"12345"
    with pytest.raises(DataError, match=r"5 bytes .expected at most 4"):
        artifacts.read_bytes(tmp_path / "x", 4)


def test_a_killed_process_that_nobody_waited_for_is_gone() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert artifacts.is_alive(process.pid)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not artifacts.is_alive(process.pid)
    process.communicate()
    assert not artifacts.is_alive(process.pid)
