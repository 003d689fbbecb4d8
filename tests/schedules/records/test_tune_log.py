from __future__ import annotations

import errno
import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costbench.errors import CostbenchError, DataError
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.records import tune_log
from costbench_schedules.records.tune_log import LogEntry, LogWriter, header_of, read_log
from costbench_schedules.spaces.space import ScheduleSpace

SPACE = ScheduleSpace(parse_operator("matmul:m=4,n=4,k=2")).sub_space({"parallel": ["none"]})
HEADER = header_of(SPACE, "native", {"processor": "fake"}, {"seed": 0})
ENTRIES = [LogEntry(7, 1200, 0.25, 0.5, 3), LogEntry(0, None, 0.5, reason="crash"), LogEntry(5, 900, 0.125)]


def written(path: Path, entries: list[LogEntry]) -> Path:
    with LogWriter(path, HEADER) as log:
        for entry in entries:
            log.append(entry)
    return path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    header, entries = read_log(written(tmp_path / "new" / "log.jsonl", ENTRIES))
    assert header == HEADER
    assert header.restrict == {"parallel": (0,)}
    assert header.space.size == SPACE.size
    assert entries == ENTRIES


def test_a_log_is_continued_after_its_last_complete_line(tmp_path: Path) -> None:
    path = written(tmp_path / "log.jsonl", ENTRIES[:2])
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"number": 5, "run')
    assert read_log(path)[1] == ENTRIES[:2]
    written(path, ENTRIES[2:])
    assert read_log(path)[1] == ENTRIES
    assert path.read_bytes().startswith(whole)


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.jsonl"
    with LogWriter(path, HEADER) as log:
        log.append(ENTRIES[0])
        before = path.read_bytes()
        write = os.write

        def half(descriptor: int, data: memoryview) -> int:
            if len(data) < 40:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return write(descriptor, data[:30])

        with monkeypatch.context() as patch:
            patch.setattr(tune_log.os, "write", half)
            with pytest.raises(DataError, match=r"log\.jsonl.*No space left"):
                log.append(ENTRIES[1])
        assert path.read_bytes() == before
        log.append(ENTRIES[1])
    assert read_log(path)[1] == ENTRIES[:2]


def test_a_folder_that_cannot_be_made_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="file"):
        LogWriter(tmp_path / "file" / "log.jsonl", HEADER)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"number": 7, "runtime_ns": 5, "seconds": 1}', "distinct numbers"),
        ('{"number": 999999999, "runtime_ns": 5, "seconds": 1}', "distinct numbers"),
        ('{"number": 1, "runtime_ns": 0, "seconds": 1}', "at least 1"),
        ('{"number": 1, "runtime_ns": null, "seconds": 1}', "reason"),
        ('{"number": 1, "seconds": 1}', "runtime_ns"),
        ('{"number": 1, "runtime_ns": 5, "seconds": NaN}', "NaN"),
        ("[" * 100_000, "no JSON"),
        ("not JSON", "no JSON"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = written(tmp_path / "log.jsonl", ENTRIES[:1])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(DataError, match=said) as raised:
        read_log(path)
    assert "log.jsonl:3" in str(raised.value)


def test_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({"operator": "C6"}) + "\n")
    with pytest.raises(DataError, match="host"):
        read_log(path)
    path.write_text("")
    with pytest.raises(DataError, match="no JSON"):
        read_log(path)


@pytest.mark.parametrize(
    "changed", [{"operator": "pool:n=1"}, {"operator": "matmul:m=8"}, {"restrict": {"stage": [0]}}]
)
def test_a_log_of_no_space_of_ours_is_named(tmp_path: Path, changed: dict[str, object]) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(json.dumps({**asdict(HEADER), **changed}) + "\n")
    with pytest.raises(DataError) as raised:
        read_log(path)
    assert raised.value.where == f"{path}:1"


@given(st.integers(0, 400), st.binary(max_size=6))
def test_damaged_logs_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, offset: int, put: bytes
) -> None:
    path = written(tmp_path_factory.mktemp("log") / "log.jsonl", ENTRIES)
    data = path.read_bytes()
    path.write_bytes(data[:offset] + put + data[offset + len(put) :])
    try:
        header, _ = read_log(path)
    except CostbenchError:
        return
    assert header.space.size > 0
