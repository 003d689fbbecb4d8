from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset
import pytest

from costbench.arrays import AnyArray
from costbench.datasets.arrow_tables import arrow_schema, stored_columns
from costbench.datasets.record_types import FUSION, LAYOUT, RECORD_TYPES, TILE
from costbench.datasets.storage import Shard, write_shard
from tests.datasets.tile_columns import fusion_columns, metadata, tile_columns


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "resnet.arrow"
    write_shard(path, tile_columns(), metadata())
    return path


def layout_columns() -> dict[str, AnyArray]:
    """Two nodes with 3 and 1 options, four configs."""
    return {
        "program": np.frombuffer(b"program", np.uint8),
        "node_computation": np.array([0, 0], np.int32),
        "node_position": np.array([3, 7], np.int32),
        "node_opcode": np.array([20, 34], np.int16),
        "option_offsets": np.array([0, 3, 4]),
        "option_layout": np.arange(4 * 18, dtype=np.int8).reshape(4, 18),
        "config_options": np.array([[0, 0], [1, 0], [2, 0], [0, 0]], np.int16),
        "config_source": np.array([0, 1, 1, 2], np.uint8),
        "config_runtime_ns": np.array([50, 60, 70, 50]),
    }


def test_a_row_of_a_tile_shard_is_a_kernel_with_its_decisions() -> None:
    schema = arrow_schema(TILE)
    assert schema.names[0] == "kernel_computation"
    assert not any(name.endswith("_offsets") for name in schema.names)
    items = pa.large_list(pa.field("item", pa.int64(), nullable=False))
    assert schema.field("config_runtime_ns").type == items
    assert schema.field("config_runtime_ns").metadata == {
        b"unit": b"ns",
        b"meaning": b"measured runtime, the smallest of the runs",
    }
    assert schema.field("kernel_fingerprint").type == pa.binary(16)
    assert not any(field.nullable for field in schema)


def test_every_column_has_a_field_or_a_place_in_the_metadata() -> None:
    for record in RECORD_TYPES.values():
        fields = {stored.column.key for stored in stored_columns(record) if stored.field is not None}
        aside = {stored.column.key for stored in stored_columns(record) if stored.field is None}
        offsets = {column.key for column in record.columns if column.offsets_into}
        assert fields | aside | offsets == {column.key for column in record.columns}
        assert aside == ({"dropped_fingerprint"} if record is FUSION else set())


def test_the_schema_says_what_the_shard_is_of(path: Path) -> None:
    facts = json.loads(pa.ipc.open_file(path).schema.metadata[b"costbench"])
    assert (facts["record"], facts["version"]) == ("tile", TILE.version)
    assert facts["metadata"] == metadata()
    assert set(facts["sha256"]) == {column.key for column in TILE.columns}


def test_program_graphs_are_one_row(tmp_path: Path) -> None:
    columns = layout_columns()
    write_shard(tmp_path / "x.arrow", columns, metadata(), LAYOUT)
    shard = Shard.open(tmp_path / "x.arrow")
    for key, array in columns.items():
        assert shard[key].dtype == array.dtype
        assert shard[key].tolist() == array.tolist()
    (row,) = pa.ipc.open_file(tmp_path / "x.arrow").read_all().to_pylist()
    assert row["program"] == b"program"
    assert row["config_options"] == [[0, 0], [1, 0], [2, 0], [0, 0]]
    assert [len(options) for options in row["option_layout"]] == [3, 1]
    assert row["option_layout"][1] == [list(range(54, 72))]


def test_program_graphs_without_nodes(tmp_path: Path) -> None:
    columns = layout_columns()
    columns |= {key: columns[key][:0] for key in ("node_computation", "node_position", "node_opcode")}
    columns |= {"option_offsets": np.zeros(1, np.int64), "option_layout": np.zeros((0, 18), np.int8)}
    columns["config_options"] = np.zeros((4, 0), np.int16)
    write_shard(tmp_path / "x.arrow", columns, metadata(), LAYOUT)
    assert Shard.open(tmp_path / "x.arrow")["config_options"].shape == (4, 0)


def test_dropped_kernels_are_kept_beside_the_rows(tmp_path: Path) -> None:
    columns = fusion_columns([1, 2], [1, 0], [10, 20])
    columns["dropped_fingerprint"] = np.arange(48, dtype=np.uint8).reshape(3, 16)
    write_shard(tmp_path / "x.arrow", columns, metadata(), FUSION)
    shard = Shard.open(tmp_path / "x.arrow")
    assert shard["dropped_fingerprint"].tolist() == columns["dropped_fingerprint"].tolist()
    assert shard.num_kernels == len(pd.read_feather(tmp_path / "x.arrow")) == 2


def test_pandas_opens_shards(path: Path) -> None:
    frame = pd.read_feather(path)
    columns = tile_columns()
    assert frame["kernel_runs"].tolist() == columns["kernel_runs"].tolist()
    samples = frame[["kernel_runs", "config_tile", "config_runtime_ns"]].explode(
        ["config_tile", "config_runtime_ns"]
    )
    assert samples["config_runtime_ns"].tolist() == columns["config_runtime_ns"].tolist()
    assert samples["kernel_runs"].tolist() == columns["kernel_runs"].repeat([3, 2]).tolist()


def test_polars_opens_shards(path: Path) -> None:
    polars = pytest.importorskip("polars")
    samples = polars.read_ipc(path).explode("config_tile", "config_runtime_ns")
    assert samples["config_runtime_ns"].to_list() == tile_columns()["config_runtime_ns"].tolist()


def test_duckdb_opens_shards(path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    shards = pa.dataset.dataset(path.parent, format="arrow")
    query = "SELECT max(list_min(config_runtime_ns)) FROM shards"
    ((slowest,),) = duckdb.sql(query).fetchall()
    runtime = tile_columns()["config_runtime_ns"]
    assert slowest == max(runtime[:3].min(), runtime[3:].min())
    assert len(shards.schema) == len(arrow_schema(TILE))
