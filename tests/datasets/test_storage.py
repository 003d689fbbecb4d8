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
import pyarrow as pa
import pytest

from costbench.datasets.record_types import ESTIMATES, TILE
from costbench.datasets.records import RecordType
from costbench.datasets.storage import Shard, list_shards, write_shard
from costbench.errors import DataError
from tests.datasets.tile_columns import metadata, tile_columns
from tests.deadline import HANGS_AFTER_S


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tile" / "resnet.arrow"
    write_shard(path, tile_columns(), metadata())
    return path


def unchecked(record: RecordType = TILE, **changes: object) -> RecordType:
    """A record type that lets everything through when writing."""
    columns = tuple(dataclasses.replace(c, minimum=None) for c in record.columns)
    return dataclasses.replace(record, columns=columns, **changes)


def test_what_was_written_is_read(path: Path) -> None:
    shard = Shard.open(path)
    assert shard.metadata == metadata()
    assert (shard.num_kernels, shard.num_configs) == (2, 5)
    for key, array in tile_columns().items():
        assert shard[key].dtype == array.dtype
        assert shard[key].tolist() == array.tolist()
    assert set(shard.keys) == set(tile_columns())


@pytest.mark.parametrize("configs", [(), (0,), (0, 3, 0)])
def test_shards_without_kernels_or_tiles(tmp_path: Path, configs: tuple[int, ...]) -> None:
    write_shard(tmp_path / "x.arrow", tile_columns(configs), {})
    assert Shard.open(tmp_path / "x.arrow").num_kernels == len(configs)


def test_equal_contents_are_equal_bytes(path: Path, tmp_path: Path) -> None:
    columns = tile_columns()
    shuffled = {key: columns[key] for key in sorted(columns, reverse=True)}
    strided = {key: np.repeat(array, 2, axis=0)[::2] for key, array in shuffled.items()}
    again = dict(reversed(metadata().items()))
    write_shard(tmp_path / "again.arrow", strided, again)
    assert (tmp_path / "again.arrow").read_bytes() == path.read_bytes()


def test_columns_are_read_only_views_of_the_file(path: Path) -> None:
    shard = Shard.open(path)
    for key in shard.keys:
        assert not shard[key].flags.writeable
        assert not shard[key].flags.owndata
        assert shard[key].flags.aligned


def test_a_shard_travels_as_its_path(path: Path) -> None:
    rebuild, arguments = Shard.open(path).__reduce__()
    assert arguments == (path,)
    assert callable(rebuild)
    assert rebuild(*arguments)["config_tile"].tolist() == tile_columns()["config_tile"].tolist()


def test_bad_values_are_never_written(tmp_path: Path) -> None:
    columns = tile_columns()
    columns["config_runtime_ns"] = np.full(5, np.nan)
    with pytest.raises(DataError, match="config_runtime_ns: holds NaN"):
        write_shard(tmp_path / "x.arrow", columns, metadata())
    with pytest.raises(DataError, match="metadata: cannot be stored"):
        write_shard(tmp_path / "x.arrow", tile_columns(), {"seconds": float("nan")})
    with pytest.raises(DataError, match="metadata: cannot be stored"):
        write_shard(tmp_path / "x.arrow", tile_columns(), {"array": np.zeros(2)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("config_runtime_ns", 0, "config_runtime_ns: entry 3 is 0"),
        ("config_runtime_ns", -7, "config_runtime_ns: entry 3 is -7"),
        ("config_tile", -1, "config_tile: entry 3 is -1"),
    ],
)
def test_bad_values_are_refused_when_read(tmp_path: Path, key: str, value: int, problem: str) -> None:
    columns = tile_columns((3, 2, 1))
    columns[key][3] = value
    write_shard(tmp_path / "x.arrow", columns, metadata(), unchecked())
    with pytest.raises(DataError, match=rf"x\.arrow: {problem}"):
        Shard.open(tmp_path / "x.arrow")


def test_floats_that_are_no_numbers_are_refused_when_read(tmp_path: Path) -> None:
    path = tmp_path / "x.arrow"
    estimates = {
        "kernel_fingerprint": np.zeros((2, 16), np.uint8),
        "config_analytical_ns_offsets": np.array([0, 1, 3]),
        "config_analytical_ns": np.array([1.0, 2.0, 3.0]),
    }
    write_shard(path, estimates, {}, ESTIMATES)
    table = pa.ipc.open_file(path).read_all()
    lists = pa.LargeListArray.from_arrays([0, 1, 3], pa.array([1.0, 2.0, np.nan]))
    index = table.schema.get_field_index("config_analytical_ns")
    field = table.schema.field(index)
    rewritten(path, table.set_column(index, field, lists.cast(field.type)))
    with pytest.raises(DataError, match=r"x\.arrow: config_analytical_ns: entry 2 is nan"):
        Shard.open(path)


def test_an_unknown_column_is_an_error(path: Path) -> None:
    with pytest.raises(DataError, match=r"no column 'runtime'.*config_runtime_ns"):
        Shard.open(path)["runtime"]


def test_damage_to_any_byte_is_found_or_changes_nothing(path: Path) -> None:
    """Padding, and the second copy of the schema that streams start with, are not read."""
    wanted = contents(Shard.open(path))
    whole = path.read_bytes()
    detected = 0
    with path.open("r+b", buffering=0) as file:
        for position in range(0, len(whole), 3):
            byte = whole[position]
            file.seek(position)
            file.write(bytes([byte ^ (1 << position % 8)]))
            try:
                assert contents(Shard.open(path)) == wanted
            except DataError as error:
                assert str(error).startswith(str(path))
                detected += 1
            file.seek(position)
            file.write(bytes([byte]))
    assert contents(Shard.open(path)) == wanted
    assert detected > sum(array.nbytes for array in tile_columns().values()) // 3


def contents(shard: Shard) -> dict[str, object]:
    return {"metadata": shard.metadata, **{key: shard[key].tolist() for key in shard.keys}}


def test_damage_names_the_column(path: Path) -> None:
    whole = path.read_bytes()
    runtime = tile_columns()["config_runtime_ns"]
    position = whole.index(runtime.tobytes())
    path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x01]) + whole[position + 1 :])
    with pytest.raises(DataError, match=r"resnet\.arrow: config_runtime_ns: damaged \(expected SHA-256"):
        Shard.open(path)


def test_any_truncation_is_found_on_opening(path: Path) -> None:
    whole = path.read_bytes()
    for length in reversed(range(0, len(whole), 3)):
        os.truncate(path, length)
        with pytest.raises(DataError, match=r"resnet\.arrow.*(truncated|no shard)"):
            Shard.open(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(DataError, match="truncated or damaged"):
        Shard.open(path)


def test_other_files_and_missing_ones(tmp_path: Path) -> None:
    (tmp_path / "x.arrow").write_bytes(b"PK\x03\x04 something else entirely")
    with pytest.raises(DataError, match="is no shard"):
        Shard.open(tmp_path / "x.arrow")
    with pytest.raises(DataError, match=r"y\.arrow: no such file"):
        Shard.open(tmp_path / "y.arrow")
    with pytest.raises(DataError, match="cannot read"):
        Shard.open(tmp_path)


def test_other_versions_and_kinds_of_record_are_refused(tmp_path: Path) -> None:
    write_shard(tmp_path / "new.arrow", tile_columns(), {}, unchecked(version=99))
    with pytest.raises(DataError, match=r"tile records of version 99.*expected tile 2, .*generate.* again"):
        Shard.open(tmp_path / "new.arrow")
    write_shard(tmp_path / "odd.arrow", tile_columns(), {}, unchecked(name="odd"))
    with pytest.raises(DataError, match="odd records of version 2"):
        Shard.open(tmp_path / "odd.arrow")


def test_shards_of_the_format_before_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x.arrow").write_bytes(b"CBSHARD\x01" + bytes(100))
    with pytest.raises(DataError, match=r"x\.arrow: is a shard of an older format.*generate.* again"):
        Shard.open(tmp_path / "x.arrow")


def rewritten(path: Path, table: pa.Table, **options: object) -> None:
    """Writes a table in place of the shard, with the shard's own metadata."""
    table = table.replace_schema_metadata(pa.ipc.open_file(path).schema.metadata)
    settings = pa.ipc.IpcWriteOptions(**options)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema, options=settings) as writer:
        writer.write_table(table)


def with_column(table: pa.Table, key: str, array: pa.Array, **field: object) -> pa.Table:
    index = table.schema.get_field_index(key)
    old = table.schema.field(key)
    return table.set_column(index, old.with_type(array.type).with_nullable(bool(field)), array)


def int_lists(offsets: list[int], values: list[int]) -> pa.Array:
    item = pa.field("item", pa.int64(), nullable=False)
    buffers = [None, pa.py_buffer(np.array(offsets, np.int64))]
    return pa.Array.from_buffers(pa.large_list(item), len(offsets) - 1, buffers, children=[pa.array(values)])


OTHER_TABLES = {
    "a type": (
        lambda t: with_column(t, "kernel_runs", t["kernel_runs"].combine_chunks().cast("float64")),
        r"kernel_runs: has type double \(expected int64\)",
    ),
    "nulls": (
        lambda t: with_column(t, "kernel_runs", pa.array([1, None]), nullable=True),
        r"kernel_runs: has type int64 that may be null",
    ),
    "a column less": (lambda t: t.drop_columns(["kernel_runs"]), r"columns kernel_computation, .*expected"),
    "two batches": (lambda t: pa.concat_tables([t, t]), "2 record batches"),
    "no batches": (lambda t: pa.Table.from_batches([], t.schema), "0 record batches"),
    "lists of other lengths": (
        lambda t: with_column(t, "config_runtime_ns", int_lists([0, 2, 5], [1, 2, 3, 4, 5])),
        "config_runtime_ns: has lists of other lengths",
    ),
    "fewer values": (
        lambda t: with_column(t, "config_runtime_ns", int_lists([0, 1, 2], [1, 2])),
        "config_runtime_ns: has 2 entries .expected 5",
    ),
    "offsets that fall": (
        lambda t: with_column(t, "config_tile", int_lists([0, 7, 5], [1, 2, 3, 4, 5])),
        "config_offsets: do not delimit",
    ),
}


@pytest.mark.parametrize("case", OTHER_TABLES)
def test_tables_that_are_no_shard_end_in_one_error(tmp_path: Path, case: str) -> None:
    change, problem = OTHER_TABLES[case]
    path = tmp_path / "x.arrow"
    write_shard(path, tile_columns(), metadata())
    rewritten(path, change(pa.ipc.open_file(path).read_all()))
    with pytest.raises(DataError, match=problem) as caught:
        contents(Shard.open(path))
    assert "x.arrow" in str(caught.value)


@pytest.mark.parametrize(
    "offsets", [[-1, 3, 5], [0, 3, 6], [0, 3, 2**62], [0, 3, -(2**62)], [1, 3, 5], [0, 3, 4]]
)
def test_offsets_out_of_range_are_refused(path: Path, offsets: list[int]) -> None:
    whole = path.read_bytes()
    good = np.array([0, 3, 5], np.int64).tobytes()
    assert whole.count(good) == 2  # of tiles and of runtimes
    for both in (1, 2):
        path.write_bytes(whole.replace(good, np.array(offsets, np.int64).tobytes(), both))
        with pytest.raises(DataError, match=r"resnet\.arrow: .*(damaged|do not delimit|lengths|lists of)"):
            contents(Shard.open(path))


@pytest.mark.parametrize(
    "facts", [b"[]", b"{}", b"3", b'{"record":"tile","version":2,"metadata":3,"sha256":{}}']
)
def test_metadata_that_lie_about_themselves_are_refused(path: Path, facts: bytes) -> None:
    table = pa.ipc.open_file(path).read_all()
    digest = hashlib.sha256(facts).hexdigest().encode()
    schema = table.schema.with_metadata({b"costbench": facts, b"costbench.sha256": digest})
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        writer.write_table(table.cast(schema))
    with pytest.raises(DataError, match=r"resnet\.arrow: metadata: are not those of a shard"):
        Shard.open(path)


def test_compressed_tables_and_tables_of_others_are_refused(path: Path) -> None:
    table = pa.ipc.open_file(path).read_all()
    rewritten(path, table, compression="lz4")
    with pytest.raises(DataError, match=r"resnet\.arrow: \d+ bytes in \d+ compressed ones"):
        Shard.open(path)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema.remove_metadata()) as writer:
        writer.write_table(table.replace_schema_metadata(None))
    with pytest.raises(DataError, match="is an Arrow file, but no shard"):
        Shard.open(path)


def test_shards_are_listed_by_path_without_temporaries(path: Path, tmp_path: Path) -> None:
    write_shard(tmp_path / "tile" / "alexnet.arrow", tile_columns(), metadata())
    (tmp_path / "tile" / ".tmp-0-1-2-half.arrow").write_bytes(b"half")
    (tmp_path / "tile" / "notes.txt").write_text("no shard")
    assert list_shards(tmp_path) == (path.with_name("alexnet.arrow"), path)
    with pytest.raises(DataError, match="no such folder"):
        list_shards(tmp_path / "elsewhere")


def test_large_shards_are_neither_copied_nor_loaded(tmp_path: Path) -> None:
    columns = tile_columns([1000] * 1000)  # 16 MB of tiles and runtimes
    tracemalloc.start()
    try:
        write_shard(tmp_path / "x.arrow", columns, metadata())
        assert tracemalloc.get_traced_memory()[1] < 1_500_000
        tracemalloc.reset_peak()
        shard = Shard.open(tmp_path / "x.arrow")
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
    write_shard(Path(sys.argv[1]) / f"{number % 3}.arrow", columns, {"number": number})
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
        while not (tmp_path / "2.arrow").exists() and child.poll() is None and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(delay)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    shards = list_shards(tmp_path)
    assert [shard.name for shard in shards] == ["0.arrow", "1.arrow", "2.arrow"]
    for shard in shards:
        assert Shard.open(shard).num_configs == 500_000
