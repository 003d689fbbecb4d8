"""TpuGraphs' npz files: every documented variation is read, the documented types are written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from costbench.datasets.tpugraphs.npz import (
    LayoutGraph,
    TileGraph,
    program_of,
    read_layout_npz,
    read_tile_npz,
    write_layout_npz,
    write_tile_npz,
)
from costbench.errors import DataError

INTEGERS = [np.uint8, np.int16, np.int32, np.int64, np.uint64]
FEATURES = st.floats(width=32, allow_nan=False, allow_infinity=False)


def tile_arrays(**changes: Any) -> dict[str, Any]:
    content = {
        "node_feat": np.arange(3 * 140, dtype=np.float32).reshape(3, 140),
        "node_opcode": np.array([63, 63, 2], np.uint8),
        "edge_index": np.array([[2, 0], [2, 1]]),
        "config_feat": np.ones((2, 24), np.float32),
        "config_runtime": np.array([120, 100]),
        "config_runtime_normalizers": np.array([119, 119]),
    }
    return {key: value for key, value in (content | changes).items() if value is not None}


def layout_arrays(**changes: Any) -> dict[str, Any]:
    shared = {key: tile_arrays()[key] for key in ("node_feat", "node_opcode", "edge_index")}
    content = shared | {
        "node_config_ids": np.array([0, 2]),
        "node_config_feat": np.full((4, 2, 18), -1, np.float32),
        "config_runtime": np.array([7, 8, 9, 10], np.int32),
        "node_splits": np.array([[0, 2, 3]]),
    }
    return {key: value for key, value in (content | changes).items() if value is not None}


def save(path: Path, arrays: dict[str, Any]) -> Path:
    np.savez(path, **arrays)
    return path


def differences(before: TileGraph | LayoutGraph, after: TileGraph | LayoutGraph) -> list[str]:
    """Arrays whose values, shapes or types are not the same."""
    pairs = {field: (array, getattr(after, field)) for field, array in vars(before).items()}
    return [
        field for field, (one, two) in pairs.items() if one.dtype != two.dtype or not np.array_equal(one, two)
    ]


@pytest.mark.parametrize("integer", INTEGERS)
def test_any_integer_type_is_read(integer: type[np.generic], tmp_path: Path) -> None:
    def cast(arrays: dict[str, Any]) -> dict[str, Any]:
        floats = ("node_feat", "config_feat", "node_config_feat")
        return {k: v if k in floats else np.asarray(v).astype(integer) for k, v in arrays.items()}

    tile = read_tile_npz(save(tmp_path / "t.npz", cast(tile_arrays())))
    assert tile.config_runtime.tolist() == [120, 100]
    assert {a.dtype for a in (tile.node_opcode, tile.edge_index, tile.config_runtime)} == {np.dtype(np.int64)}
    layout = read_layout_npz(save(tmp_path / "l.npz", cast(layout_arrays())))
    assert layout.node_splits.tolist() == [0, 2, 3]
    assert layout.node_config_ids.tolist() == [0, 2]


@pytest.mark.parametrize("real", [np.float32, np.float64, np.int8])
def test_features_of_any_real_type_become_float32(real: type[np.generic], tmp_path: Path) -> None:
    arrays = tile_arrays(config_feat=np.ones((2, 24), real))
    assert read_tile_npz(save(tmp_path / "t.npz", arrays)).config_feat.dtype == np.float32


def test_splits_may_be_flat(tmp_path: Path) -> None:
    arrays = layout_arrays(node_splits=np.array([0, 3], np.int32))
    assert read_layout_npz(save(tmp_path / "l.npz", arrays)).node_splits.tolist() == [0, 3]


def test_other_keys_are_left_alone(tmp_path: Path) -> None:
    assert read_tile_npz(save(tmp_path / "t.npz", tile_arrays(comment=np.array("x")))).is_labelled


def test_withheld_labels(tmp_path: Path) -> None:
    withheld = np.zeros(2, np.int64)
    arrays = tile_arrays(config_runtime=withheld, config_runtime_normalizers=withheld)
    assert not read_tile_npz(save(tmp_path / "t.npz", arrays)).is_labelled
    arrays = layout_arrays(config_runtime=np.zeros(4, np.int32))
    assert not read_layout_npz(save(tmp_path / "l.npz", arrays)).is_labelled


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *[({key: None}, f"{key}: missing key") for key in tile_arrays()],
        ({"node_feat": np.zeros((3, 112))}, r"node_feat: shape \(3, 112\) \(expected shape \(n, 140\)\)"),
        ({"edge_index": np.zeros((2, 2), int).T[:1]}, r"edge \[0, 0\]"),
        ({"edge_index": np.zeros((2, 3), int)}, r"edge_index: shape \(2, 3\) \(expected shape \(m, 2\)\)"),
        ({"config_feat": np.ones((2, 18))}, r"config_feat: shape \(2, 18\) \(expected shape \(c, 24\)\)"),
        ({"config_runtime": np.array([1, 2, 3])}, r"config_runtime: shape \(3,\) \(expected shape \(2,\)\)"),
        ({"config_runtime": np.array([1.0, 2.0])}, "config_runtime: type float64"),
        ({"config_runtime": np.array([5, -1])}, "config_runtime: time -1 ns at 1"),
        ({"config_runtime_normalizers": np.array([0, 0])}, "normalizers: 0 everywhere beside runtimes"),
        ({"config_feat": np.full((2, 24), np.nan)}, "config_feat: value nan"),
        ({"node_opcode": np.array([1, 2, 200])}, "node_opcode: opcode 200"),
        ({"node_opcode": np.array([{}, {}, {}])}, "node_opcode: cannot be read: Object arrays"),
    ],
)
def test_tile_files_that_cannot_be(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = save(tmp_path / "bad.npz", tile_arrays(**changes))
    with pytest.raises(DataError, match=rf"bad\.npz: .*{message}"):
        read_tile_npz(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        *[({key: None}, f"{key}: missing key") for key in layout_arrays()],
        ({"node_config_feat": np.ones((4, 3, 18))}, r"expected shape \(c, 2, 18\)"),
        ({"config_runtime": np.array([1])}, r"config_runtime: shape \(1,\) \(expected shape \(4,\)\)"),
        ({"node_config_ids": np.array([2, 0])}, "node_config_ids: values out of order"),
        ({"node_config_ids": np.array([0, 3])}, r"expected ascending in 0 to 2\)"),
        ({"node_splits": np.array([0, 4])}, r"node_splits: .*expected ascending in 0 to 3\)"),
    ],
)
def test_layout_files_that_cannot_be(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = save(tmp_path / "bad.npz", layout_arrays(**changes))
    with pytest.raises(DataError, match=rf"bad\.npz: .*{message}"):
        read_layout_npz(path)


@pytest.mark.parametrize("read", [read_tile_npz, read_layout_npz])
def test_files_that_are_no_archives(read: Callable[[Path], object], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.npz: no such file"):
        read(tmp_path / "absent.npz")
    for name, content in {
        "empty.npz": b"",
        "noise.npz": b"not an archive",
        "zip.npz": b"PK\x03\x04rest",
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(DataError, match=name):
            read(tmp_path / name)
    np.save(tmp_path / "single.npy", np.zeros(3))
    with pytest.raises(DataError, match=r"single\.npy: a single array"):
        read(tmp_path / "single.npy")


def test_truncated_files(tmp_path: Path) -> None:
    whole = save(tmp_path / "t.npz", tile_arrays()).read_bytes()
    cut = tmp_path / "cut.npz"
    for length in range(0, len(whole), 97):
        cut.write_bytes(whole[:length])
        with pytest.raises(DataError, match=r"cut\.npz"):
            read_tile_npz(cut)


def test_a_damaged_array_is_named(tmp_path: Path) -> None:
    whole = bytearray(save(tmp_path / "t.npz", tile_arrays()).read_bytes())
    values = np.float32(100).tobytes() + np.float32(101).tobytes()
    whole[whole.index(values)] ^= 0xFF  # inside node_feat, so that its checksum is wrong
    (tmp_path / "t.npz").write_bytes(whole)
    with pytest.raises(DataError, match=r"t\.npz: node_feat: cannot be read: Bad CRC-32"):
        read_tile_npz(tmp_path / "t.npz")


def test_files_of_the_other_kind(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="config_feat: missing key"):
        read_tile_npz(save(tmp_path / "l.npz", layout_arrays()))
    with pytest.raises(DataError, match="node_config_ids: missing key"):
        read_layout_npz(save(tmp_path / "t.npz", tile_arrays()))


def test_documented_types_are_written(tmp_path: Path) -> None:
    write_tile_npz(tmp_path / "t.npz", read_tile_npz(save(tmp_path / "a.npz", tile_arrays())))
    with np.load(tmp_path / "t.npz", allow_pickle=False) as archive:
        assert {key: archive[key].dtype.name for key in archive} == {
            "node_feat": "float32",
            "node_opcode": "int32",
            "edge_index": "int32",
            "config_feat": "float32",
            "config_runtime": "int64",
            "config_runtime_normalizers": "int64",
        }
    write_layout_npz(tmp_path / "l.npz", read_layout_npz(save(tmp_path / "b.npz", layout_arrays())))
    with np.load(tmp_path / "l.npz", allow_pickle=False) as archive:
        assert {key: archive[key].dtype.name for key in archive} == {
            "node_feat": "float32",
            "node_opcode": "int32",
            "edge_index": "int32",
            "node_config_ids": "int32",
            "node_config_feat": "float32",
            "config_runtime": "int32",
            "node_splits": "int64",
        }


def test_a_runtime_beyond_int32_is_not_cut(tmp_path: Path) -> None:
    arrays = layout_arrays(config_runtime=np.array([1, 2, 3, 5_000_000_000]))
    write_layout_npz(tmp_path / "l.npz", read_layout_npz(save(tmp_path / "a.npz", arrays)))
    assert read_layout_npz(tmp_path / "l.npz").config_runtime.tolist() == [1, 2, 3, 5_000_000_000]


def test_impossible_graphs_are_not_written(tmp_path: Path) -> None:
    graph = TileGraph(**tile_arrays(config_runtime=np.array([3, 0])))
    with pytest.raises(DataError, match="time 0 ns"):
        write_tile_npz(tmp_path / "t.npz", graph)
    assert list(tmp_path.iterdir()) == []


def test_programs_of_tile_graphs() -> None:
    assert program_of("resnet_v1_50_-6d2f") == "resnet_v1_50"
    assert program_of("alexnet") == "alexnet"


@st.composite
def nodes_and_edges(draw: st.DrawFn) -> dict[str, Any]:
    n = draw(st.integers(1, 5))
    possible = [(u, v) for u in range(n) for v in range(u)]
    edges = sorted(draw(st.sets(st.sampled_from(possible)))) if possible else []
    return {
        "node_feat": draw(hnp.arrays(np.float32, (n, 140), elements=FEATURES, fill=st.just(1.0))),
        "node_opcode": draw(hnp.arrays(np.int64, n, elements=st.integers(0, 120))),
        "edge_index": np.array(edges, np.int64).reshape(len(edges), 2),
    }


@st.composite
def tile_graphs(draw: st.DrawFn) -> TileGraph:
    c = draw(st.integers(0, 4))
    times = hnp.arrays(np.int64, c, elements=st.integers(1, 2**62))
    return TileGraph(
        **draw(nodes_and_edges()),
        config_feat=draw(hnp.arrays(np.float32, (c, 24), elements=FEATURES)),
        config_runtime=draw(times),
        config_runtime_normalizers=draw(times),
    )


@st.composite
def layout_graphs(draw: st.DrawFn) -> LayoutGraph:
    nodes = draw(nodes_and_edges())
    n, c = len(nodes["node_opcode"]), draw(st.integers(0, 3))
    ids = sorted(draw(st.sets(st.integers(0, n - 1))))
    return LayoutGraph(
        **nodes,
        node_config_ids=np.array(ids, np.int64),
        node_config_feat=draw(hnp.arrays(np.float32, (c, len(ids), 18), elements=st.integers(-1, 5))),
        config_runtime=draw(hnp.arrays(np.int64, c, elements=st.integers(1, 2**40))),
        node_splits=np.array(sorted(draw(st.sets(st.integers(0, n)))), np.int64),
    )


@given(graph=tile_graphs())
def test_any_tile_graph_survives_being_written(
    graph: TileGraph, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("npz")
    write_tile_npz(folder / "t.npz", graph)
    assert differences(graph, read_tile_npz(folder / "t.npz")) == []
    write_tile_npz(folder / "again.npz", graph)
    assert (folder / "t.npz").read_bytes() == (folder / "again.npz").read_bytes()


@given(graph=layout_graphs())
def test_any_layout_graph_survives_being_written(
    graph: LayoutGraph, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("npz")
    write_layout_npz(folder / "l.npz", graph)
    assert differences(graph, read_layout_npz(folder / "l.npz")) == []
