from __future__ import annotations

import dataclasses
import hashlib
import os
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from costbench.datasets.record_types import TILE
from costbench.datasets.records import RecordType
from costbench.datasets.storage import Shard, list_shards, verify_shard, write_shard
from costbench.errors import DataError
from tests.datasets.tile_columns import metadata, tile_columns
from tests.deadline import HANGS_AFTER_S


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "tile" / "resnet.shard"
    write_shard(place, tile_columns(), metadata())
    return place


def unchecked(record: RecordType = TILE, **changes: object) -> RecordType:
    """A record type that lets everything through when writing."""
    columns = tuple(dataclasses.replace(c, minimum=None, offsets_into=None) for c in record.columns)
    return dataclasses.replace(record, columns=columns, **changes)


def test_what_was_written_is_read(path: Path) -> None:
    shard = verify_shard(path)
    assert shard.metadata == metadata()
    assert (shard.num_kernels, shard.num_configs) == (2, 5)
    for key, array in tile_columns().items():
        assert shard[key].dtype == array.dtype
        assert shard[key].tolist() == array.tolist()
    assert set(shard.keys) == set(tile_columns())


@pytest.mark.parametrize("configs", [(), (0,), (0, 3, 0)])
def test_shards_without_kernels_or_tiles(tmp_path: Path, configs: tuple[int, ...]) -> None:
    write_shard(tmp_path / "x.shard", tile_columns(configs), {})
    assert verify_shard(tmp_path / "x.shard").num_kernels == len(configs)


def test_equal_contents_are_equal_bytes(path: Path, tmp_path: Path) -> None:
    columns = tile_columns()
    shuffled = {key: columns[key] for key in sorted(columns, reverse=True)}
    strided = {key: np.repeat(array, 2, axis=0)[::2] for key, array in shuffled.items()}
    again = dict(reversed(metadata().items()))
    write_shard(tmp_path / "again.shard", strided, again)
    assert (tmp_path / "again.shard").read_bytes() == path.read_bytes()


def test_columns_are_aligned_read_only_views_of_the_file(path: Path) -> None:
    shard = Shard.open(path)
    for key in shard.keys:
        assert not shard[key].flags.writeable
        assert not shard[key].flags.owndata
        assert shard[key].ctypes.data % 64 == 0


def test_a_shard_travels_as_its_path(path: Path) -> None:
    rebuild, arguments = Shard.open(path).__reduce__()
    assert arguments == (path,)
    assert callable(rebuild)
    assert rebuild(*arguments)["config_tile"].tolist() == tile_columns()["config_tile"].tolist()


def test_bad_values_are_never_written(tmp_path: Path) -> None:
    columns = tile_columns()
    columns["config_runtime_ns"] = np.full(5, np.nan)
    with pytest.raises(DataError, match="config_runtime_ns: holds NaN"):
        write_shard(tmp_path / "x.shard", columns, metadata())
    with pytest.raises(DataError, match="metadata: cannot be stored"):
        write_shard(tmp_path / "x.shard", tile_columns(), {"seconds": float("nan")})
    with pytest.raises(DataError, match="metadata: cannot be stored"):
        write_shard(tmp_path / "x.shard", tile_columns(), {"array": np.zeros(2)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("config_runtime_ns", 0, "config_runtime_ns: entry 3 is 0"),
        ("config_runtime_ns", -7, "config_runtime_ns: entry 3 is -7"),
        ("config_tile", -1, "config_tile: entry 3 is -1"),
        ("kernel_inputs_offsets", 8, "kernel_inputs_offsets: do not delimit"),
    ],
)
def test_bad_values_are_refused_when_read(tmp_path: Path, key: str, value: int, problem: str) -> None:
    columns = tile_columns((3, 2, 1))
    columns[key][3] = value
    write_shard(tmp_path / "x.shard", columns, metadata(), unchecked())
    shard = Shard.open(tmp_path / "x.shard")
    assert shard["kernel_runs"].size == 3
    with pytest.raises(DataError, match=problem) as caught:
        shard[key]
    assert "x.shard" in str(caught.value)
    with pytest.raises(DataError, match=problem):
        verify_shard(tmp_path / "x.shard")


def test_an_unknown_column_is_an_error(path: Path) -> None:
    with pytest.raises(DataError, match=r"no column 'runtime'.*config_runtime_ns"):
        Shard.open(path)["runtime"]


def test_damage_to_any_byte_is_found(path: Path) -> None:
    whole = path.read_bytes()
    with path.open("r+b", buffering=0) as file:
        for place, byte in enumerate(whole):
            file.seek(place)
            file.write(bytes([byte ^ 0x10]))
            with pytest.raises(DataError, match=r"resnet\.shard"):
                verify_shard(path)
            file.seek(place)
            file.write(bytes([byte]))
    verify_shard(path)


def test_damage_names_the_column(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 0x01
    path.write_bytes(whole)
    Shard.open(path)  # the header alone does not show it
    with pytest.raises(DataError, match=r"resnet\.shard: config_runtime_ns: damaged \(expected SHA-256"):
        verify_shard(path)


def test_any_truncation_is_found_on_opening(path: Path) -> None:
    whole = path.read_bytes()
    for length in reversed(range(len(whole))):
        os.truncate(path, length)
        with pytest.raises(DataError, match=r"resnet\.shard.*(truncated|no shard)"):
            Shard.open(path)
    path.write_bytes(whole[:-1])
    with pytest.raises(DataError, match="config_runtime_ns: truncated"):
        Shard.open(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(DataError, match="bytes long"):
        Shard.open(path)


def test_other_files_and_missing_ones(tmp_path: Path) -> None:
    (tmp_path / "x.shard").write_bytes(b"PK\x03\x04 something else entirely")
    with pytest.raises(DataError, match="is no shard"):
        Shard.open(tmp_path / "x.shard")
    with pytest.raises(DataError, match=r"y\.shard: cannot read: No such file"):
        Shard.open(tmp_path / "y.shard")
    with pytest.raises(DataError, match="cannot read"):
        Shard.open(tmp_path)


def test_other_versions_and_kinds_of_record_are_refused(tmp_path: Path) -> None:
    write_shard(tmp_path / "new.shard", tile_columns(), {}, unchecked(version=99))
    with pytest.raises(DataError, match=r"tile records of version 99.*expected tile 1, .*generate again"):
        Shard.open(tmp_path / "new.shard")
    write_shard(tmp_path / "odd.shard", tile_columns(), {}, unchecked(name="odd"))
    with pytest.raises(DataError, match="odd records of version 1"):
        Shard.open(tmp_path / "odd.shard")


def test_a_header_that_lies_about_places_is_refused(path: Path) -> None:
    whole = path.read_bytes()
    length = int.from_bytes(whole[8:16], "little")
    header = whole[48 : 48 + length]
    for old, new in ((b'"offset":64', b'"offset":65'), (b'"shape":[5]', b'"shape":[7]')):
        lie = header.replace(old, new)
        assert lie != header
        path.write_bytes(whole[:16] + hashlib.sha256(lie).digest() + lie + whole[48 + length :])
        with pytest.raises(DataError, match="wrong place"):
            Shard.open(path)


def test_shards_are_listed_by_path_without_temporaries(path: Path, tmp_path: Path) -> None:
    write_shard(tmp_path / "tile" / "alexnet.shard", tile_columns(), metadata())
    (tmp_path / "tile" / ".tmp-0-1-2-half.shard").write_bytes(b"half")
    (tmp_path / "tile" / "notes.txt").write_text("no shard")
    assert list_shards(tmp_path) == (path.with_name("alexnet.shard"), path)
    with pytest.raises(DataError, match="no such folder"):
        list_shards(tmp_path / "elsewhere")


def test_large_shards_are_neither_copied_nor_loaded(tmp_path: Path) -> None:
    columns = tile_columns([1000] * 1000)  # 16 MB of tiles and runtimes
    tracemalloc.start()
    try:
        write_shard(tmp_path / "x.shard", columns, metadata())
        assert tracemalloc.get_traced_memory()[1] < 1_500_000
        tracemalloc.reset_peak()
        shard = Shard.open(tmp_path / "x.shard")
        assert int(shard["config_runtime_ns"][500_000]) == int(columns["config_runtime_ns"][500_000])
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


WRITER = """
import sys
from pathlib import Path
from costbench.datasets.storage import write_shard
from tests.datasets.tile_columns import tile_columns
columns = tile_columns([1000] * 500)
for number in range(100000):
    write_shard(Path(sys.argv[1]) / f"{number % 3}.shard", columns, {"number": number})
"""


@pytest.mark.parametrize("delay", [0.0, 0.013, 0.029])
def test_a_killed_writer_leaves_whole_shards_only(tmp_path: Path, repository: Path, delay: float) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)],
        cwd=repository,
        env={"PYTHONPATH": f"{repository / 'src'}:{repository}", "OMP_NUM_THREADS": "1"},
    )
    try:
        end = time.monotonic() + HANGS_AFTER_S
        while not (tmp_path / "2.shard").exists() and child.poll() is None and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(delay)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    shards = list_shards(tmp_path)
    assert [shard.name for shard in shards] == ["0.shard", "1.shard", "2.shard"]
    for shard in shards:
        assert verify_shard(shard).num_configs == 500_000
