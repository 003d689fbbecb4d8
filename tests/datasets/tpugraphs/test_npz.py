"""TpuGraphs' npz files: every documented variation is read, the documented types are written."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from costbench.arrays import AnyArray
from costbench.datasets.layout_graphs import LayoutGraph
from costbench.datasets.tpugraphs import npz
from costbench.datasets.tpugraphs.npz import (
    Key,
    TileGraph,
    conform,
    convert_layout_npz,
    holds_tiles,
    program_of,
    read_tile_npz,
    require_ascending,
    require_graph,
    require_runtimes,
    write_layout_npz,
    write_tile_npz,
)
from costbench.datasets.tpugraphs.options import encode_options
from costbench.errors import DataError
from tests.datasets.test_layout_graphs import assert_equal
from tests.datasets.tpugraphs.public_arrays import layout_arrays, read_layout_npz, save, tile_arrays

INTEGERS = [np.uint8, np.int16, np.int32, np.int64, np.uint64]
FEATURES = st.floats(width=32, allow_nan=False, allow_infinity=False)


def differences(before: TileGraph, after: TileGraph) -> list[str]:
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


@pytest.mark.parametrize("real", [np.float16, np.float32, np.float64])
def test_integers_may_be_stored_as_floats(real: type[np.generic], tmp_path: Path) -> None:
    arrays = {key: np.asarray(value).astype(real) for key, value in layout_arrays().items()}
    arrays["node_feat"] = np.ones((3, 140), real)
    assert_equal(
        read_layout_npz(save(tmp_path / "a.npz", arrays)),
        replace(
            read_layout_npz(save(tmp_path / "b.npz", layout_arrays())),
            name="a",
            program="a",
            node_features=np.ones((3, 140), np.float32),
        ),
    )
    assert read_tile_npz(
        save(tmp_path / "t.npz", tile_arrays(config_runtime=np.array([2.0, 3.0])))
    ).is_labelled


@pytest.mark.parametrize("real", [">f4", ">f8", np.int8, np.int64, np.uint16, np.float16])
@pytest.mark.parametrize("order", ["C", "F"])
def test_configurations_of_any_type_and_order(real: Any, order: Any, tmp_path: Path) -> None:
    features = np.random.default_rng(0).integers(0, 3, (4, 2, 18)).astype(real)
    arrays = layout_arrays(node_config_feat=np.array(features, order=order))
    graph = read_layout_npz(save(tmp_path / "l.npz", arrays))
    assert np.array_equal(graph.config_features(slice(None)), features.astype(np.float32))


def test_zero_has_no_sign(tmp_path: Path) -> None:
    features = np.zeros((4, 2, 18), np.float32)
    features[1:3] = -0.0
    graph = read_layout_npz(save(tmp_path / "l.npz", layout_arrays(node_config_feat=features)))
    assert graph.option_offsets.tolist() == [0, 1, 2]


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
    for runtime in (np.zeros(4, np.int32), np.zeros(0, np.int64), None):
        arrays = layout_arrays(config_runtime=runtime)
        graph = read_layout_npz(save(tmp_path / "l.npz", arrays))
        assert (graph.is_labelled, graph.num_configs) == (False, 4)
    arrays = tile_arrays(config_runtime=None, config_runtime_normalizers=None)
    assert read_tile_npz(save(tmp_path / "t.npz", arrays)).config_runtime.tolist() == [0, 0]


def test_a_program_without_splits_is_one_part(tmp_path: Path) -> None:
    assert read_layout_npz(
        save(tmp_path / "l.npz", layout_arrays(node_splits=None))
    ).node_splits.tolist() == [
        0,
        3,
    ]


def test_kinds_of_files(tmp_path: Path) -> None:
    assert holds_tiles(save(tmp_path / "t.npz", tile_arrays()))
    assert not holds_tiles(save(tmp_path / "l.npz", layout_arrays()))
    with pytest.raises(DataError, match="of neither kind"):
        holds_tiles(save(tmp_path / "n.npz", {"node_feat": np.zeros(3)}))


def test_memory_does_not_grow_with_the_number_of_configurations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty times the configurations, of 1.4 and 29 MB, in blocks of 256 KiB."""
    monkeypatch.setattr(npz, "_BLOCK_BYTES", 1 << 18)
    vectors = np.random.default_rng(0).integers(-1, 5, (8, 18)).astype(np.float32)
    peaks = []
    for count in (10_000, 200_000):
        choices = np.arange(2 * count).reshape(count, 2) % 8
        arrays = {"node_config_feat": vectors[choices], "config_runtime": np.arange(1, count + 1)}
        path = save(tmp_path / f"{count}.npz", layout_arrays(**arrays))
        del arrays
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        convert_layout_npz(path, tmp_path / "l.arrow", name="l", collection="layout:xla:random")
        # The runtimes themselves, 8 bytes each, are held and copied.
        peaks.append(tracemalloc.get_traced_memory()[1] - 8 * 8 * count)
        tracemalloc.stop()
        assert pa.total_allocated_bytes() - before < 1 << 20
    assert peaks[1] < 1.5 * max(peaks[0], 1 << 21)


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
    assert read_layout_npz(tmp_path / "l.npz").runtime_ns.tolist() == [1, 2, 3, 5_000_000_000]


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
    features = draw(hnp.arrays(np.float32, (c, len(ids), 18), elements=st.integers(-1, 5)))
    return LayoutGraph(
        name="l",
        program="l",
        collection="layout:xla:random",
        node_features=nodes["node_feat"] + np.float32(0.0),
        opcodes=nodes["node_opcode"].astype(np.int32),
        edges=nodes["edge_index"].astype(np.int32),
        node_config_ids=np.array(ids, np.int32),
        **vars(encode_options(features)),
        runtime_ns=draw(hnp.arrays(np.int64, c, elements=st.integers(1, 2**40))),
        node_splits=np.array(sorted(draw(st.sets(st.integers(0, n), min_size=1))), np.int64),
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
    assert_equal(read_layout_npz(folder / "l.npz"), graph)
    with np.load(folder / "l.npz", allow_pickle=False) as archive:
        assert np.array_equal(archive["node_config_feat"], graph.config_features(slice(None)))


KEYS = (
    Key("first", ("n", 2), "real", np.float32),
    Key("second", ("n",), "integer", np.int32),
    Key("loose", None, "integer", np.int64),
)


def arrays(**changes: Any) -> dict[str, AnyArray]:
    content = {"first": np.zeros((3, 2)), "second": np.zeros(3, np.uint8), "loose": np.array([[1, 2]])}
    return {key: value for key, value in (content | changes).items() if value is not None}


def test_types_become_one_and_free_shapes_flat() -> None:
    conformed = conform(arrays(), KEYS, "f")
    assert {key: (value.dtype, value.shape) for key, value in conformed.items()} == {
        "first": (np.dtype(np.float32), (3, 2)),
        "second": (np.dtype(np.int64), (3,)),
        "loose": (np.dtype(np.int64), (2,)),
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"first": None}, r"f: first: missing key \(expected an array of shape \(n, 2\)\)"),
        ({"second": None}, r"f: second: missing key \(expected an array of shape \(3,\)\)"),
        ({"first": np.zeros((3, 5))}, r"first: shape \(3, 5\) \(expected shape \(n, 2\)\)"),
        ({"second": np.zeros(4, int)}, r"second: shape \(4,\) \(expected shape \(3,\)\)"),
        ({"second": np.zeros((3, 1), int)}, r"second: shape \(3, 1\)"),
        ({"second": np.full(3, 0.5)}, r"second: value 0\.5 \(expected integers\)"),
        ({"second": np.full(3, 2.0**54)}, r"second: value 1\.8.*e\+16 \(expected integers\)"),
        ({"second": np.full(3, np.inf)}, r"second: value inf \(expected integers\)"),
        ({"first": np.zeros((3, 2), complex)}, r"first: type complex128 \(expected real numbers\)"),
        ({"first": np.full((3, 2), "x")}, "first: type <U1"),
        ({"first": np.array([[0, 0], [0, np.nan], [0, 0]])}, r"first: value nan at \(1, 1\)"),
        ({"first": np.full((3, 2), 1e39)}, r"first: value 1e\+39"),
        ({"second": np.full(3, 2**63, np.uint64)}, "second: value 9223372036854775808"),
    ],
)
def test_what_does_not_fit_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        conform(arrays(**changes), KEYS, "f")


@pytest.mark.parametrize(
    ("opcodes", "edges", "message"),
    [
        ([], [], "no nodes"),
        ([1, 121], [], "opcode 121"),
        ([-1], [], "opcode -1"),
        ([1, 2], [[1, 0], [0, 0]], r"edge \[0, 0\]"),
        ([1, 2], [[0, 1]], r"edge \[0, 1\]"),
        ([1, 2], [[2, 1]], r"edge \[2, 1\].*consumer < 2"),
        ([1, 2], [[1, -1]], r"edge \[1, -1\]"),
    ],
)
def test_graphs(opcodes: list[int], edges: list[list[int]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        require_graph(np.array(opcodes, np.int64), np.array(edges, np.int64).reshape(-1, 2), "f")


def accepts(check: Callable[..., None], *arguments: object) -> bool:
    try:
        check(*arguments, "f")
    except DataError:
        return False
    return True


@pytest.mark.parametrize(
    ("times", "accepted"),
    [([1, 5], True), ([0, 0], True), ([], True), ([3, 0], False), ([0, 3], False), ([-1, 3], False)],
)
def test_runtimes_are_positive_or_withheld(times: list[int], accepted: bool) -> None:
    assert accepts(require_runtimes, {"t": np.array(times, np.int64)}, "t") is accepted


def test_an_impossible_runtime_is_named() -> None:
    with pytest.raises(DataError, match="t: time 0 ns at 1"):
        require_runtimes({"t": np.array([3, 0])}, "t", "f")


@given(values=st.lists(st.integers(-1, 4), max_size=5))
@example(values=[])
@example(values=[0, 1, 2, 3])
def test_order_is_strict_and_within_range(values: list[int]) -> None:
    expected = values == sorted({value for value in values if 0 <= value <= 3})
    assert accepts(require_ascending, {"ids": np.array(values, np.int64)}, "ids", 3) is expected


@pytest.mark.parametrize("values", [[1, 1], [2, 1], [-1, 0], [0, 4]])
def test_wrong_order_is_named(values: list[int]) -> None:
    with pytest.raises(
        DataError, match=r"ids: values out of order or range \(expected ascending in 0 to 3\)"
    ):
        require_ascending({"ids": np.array(values)}, "ids", 3, "f")
