"""Layout graphs on disk: round trips, memory maps, options, and one error for what does not fit."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import pytest

from costbench.artifacts import write_json
from costbench.datasets.layout_graphs import (
    CollectionSize,
    LayoutGraph,
    collection_sizes,
    open_layout_graph,
    read_collection_sizes,
    write_layout_graph,
)
from costbench.datasets.storage import Shard
from costbench.errors import DataError


def small_graph(num_configs: int = 4) -> LayoutGraph:
    """Five nodes, two of them configurable, with two and three options."""
    draw = np.random.default_rng(0)
    options = np.array([[0, 2], [1, 0], [0, 1], [1, 2]], np.int16)[np.arange(num_configs) % 4]
    return LayoutGraph(
        name="net",
        program="net",
        collection="layout:xla:random",
        node_features=draw.normal(size=(5, 140)).astype(np.float32),
        opcodes=np.array([63, 63, 34, 2, 26], np.int32),
        edges=np.array([[2, 0], [2, 1], [3, 2], [4, 3]], np.int32),
        node_config_ids=np.array([2, 4], np.int32),
        option_offsets=np.array([0, 2, 5], np.int64),
        option_features=np.arange(90, dtype=np.float32).reshape(5, 18),
        config_options=options,
        runtime_ns=np.arange(num_configs, dtype=np.int64) + 100,
        node_splits=np.array([0, 5], np.int64),
    )


def assert_equal(graph: LayoutGraph, wanted: LayoutGraph) -> None:
    for field in fields(LayoutGraph):
        left, right = getattr(graph, field.name), getattr(wanted, field.name)
        if isinstance(right, str):
            assert left == right
        else:
            assert left.dtype == right.dtype, field.name
            assert np.array_equal(left, right), field.name


@pytest.mark.parametrize("options", [np.int16, np.int32])
def test_a_graph_comes_back_as_it_was(tmp_path: Path, options: type[np.generic]) -> None:
    graph = small_graph()
    graph = replace(graph, config_options=graph.config_options.astype(options))
    write_layout_graph(tmp_path / "x.arrow", graph, {"source": "a test"})
    opened = open_layout_graph(tmp_path / "x.arrow")
    assert_equal(opened, graph)
    assert Shard.open(tmp_path / "x.arrow").metadata["source"] == "a test"
    assert (opened.num_nodes, opened.num_configs, opened.is_labelled) == (5, 4, True)


def test_config_features_are_those_of_the_options(tmp_path: Path) -> None:
    write_layout_graph(tmp_path / "x.arrow", small_graph())
    features = open_layout_graph(tmp_path / "x.arrow").config_features(np.array([3, 0]))
    # Config 3 takes option 1 of the first node (row 1) and option 2 of the second (row 2 + 2).
    assert features.shape == (2, 2, 18)
    assert features[:, :, 0].tolist() == [[18.0, 72.0], [0.0, 72.0]]
    assert np.array_equal(small_graph().config_features(slice(1, 3))[0, 1], np.arange(36, 54))


def test_runtimes_may_be_withheld_and_nodes_missing(tmp_path: Path) -> None:
    graph = replace(
        small_graph(),
        runtime_ns=np.zeros(0, np.int64),
        node_config_ids=np.zeros(0, np.int32),
        option_offsets=np.zeros(1, np.int64),
        option_features=np.zeros((0, 18), np.float32),
        config_options=np.zeros((4, 0), np.int16),
    )
    write_layout_graph(tmp_path / "x.arrow", graph)
    opened = open_layout_graph(tmp_path / "x.arrow")
    assert_equal(opened, graph)
    assert not opened.is_labelled
    assert opened.config_features(np.arange(4)).shape == (4, 0, 18)


def test_columns_are_views_of_the_file(tmp_path: Path) -> None:
    write_layout_graph(tmp_path / "x.arrow", small_graph())
    graph = open_layout_graph(tmp_path / "x.arrow")
    assert not graph.config_options.flags.owndata
    assert not graph.config_options.flags.writeable


def test_equal_graphs_are_equal_bytes(tmp_path: Path) -> None:
    for name in ("a.arrow", "b.arrow"):
        write_layout_graph(tmp_path / name, small_graph())
    assert (tmp_path / "a.arrow").read_bytes() == (tmp_path / "b.arrow").read_bytes()


@pytest.mark.parametrize(
    ("field", "value", "column"),
    [
        ("config_options", np.full((4, 2), 2, np.int16), "config_options"),
        ("config_options", np.full((4, 2), -1, np.int16), "config_options"),
        ("config_options", np.zeros((4, 3), np.int16), "config_options"),
        ("runtime_ns", np.array([1, 2, 3], np.int64), "config_runtime_ns"),
        ("runtime_ns", np.array([1, 2, 3, 0], np.int64), "config_runtime_ns"),
        ("node_features", np.full((5, 140), np.nan, np.float32), "node_features"),
        ("node_features", np.zeros((5, 139), np.float32), "node_features"),
        ("node_config_ids", np.array([4, 2], np.int32), "node_config_ids"),
        ("node_config_ids", np.array([2, 5], np.int32), "node_config_ids"),
        ("edges", np.array([[5, 0]], np.int32), "edge_nodes"),
        ("edges", np.array([[1, 0]], np.int64), "edge_nodes"),
        ("node_splits", np.array([0, 6], np.int64), "node_splits"),
        ("option_offsets", np.array([0, 2, 6], np.int64), "option_offsets"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, field: str, value: object, column: str) -> None:
    with pytest.raises(DataError, match=column):
        write_layout_graph(tmp_path / "x.arrow", replace(small_graph(), **{field: value}))
    assert not (tmp_path / "x.arrow").exists()


def test_another_kind_of_shard_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.arrow").write_bytes(b"no arrow file at all")
    with pytest.raises(DataError, match="is no shard"):
        open_layout_graph(tmp_path / "x.arrow")


def test_repeated_configs_are_one_pair_and_two_samples(tmp_path: Path) -> None:
    # Four different configs, then the first two again.
    graphs = [small_graph(6), replace(small_graph(3), name="other"), small_graph(2)]
    graphs[2] = replace(graphs[2], collection="layout:nlp:random", config_options=np.zeros((2, 2), np.int16))
    for index, graph in enumerate(graphs):
        write_layout_graph(tmp_path / f"{index}.arrow", graph)
    assert collection_sizes(sorted(tmp_path.glob("*.arrow"))) == (
        CollectionSize("layout:nlp:random", 1, 5.0, 5, 5, 1.0, 1, 1, 1, 2),
        CollectionSize("layout:xla:random", 2, 5.0, 5, 5, 3.5, 3, 4, 7, 9),
    )


def test_no_graphs_are_no_collections() -> None:
    assert collection_sizes([]) == ()


def test_sizes_counted_before_stand_for_graphs_that_are_not_at_hand(tmp_path: Path) -> None:
    assert read_collection_sizes(tmp_path) == ()
    before = CollectionSize("layout:xla:random", 2, 5.0, 5, 5, 3.5, 3, 4, 7, 9)
    write_json(tmp_path / "collections.json", [asdict(before)])
    assert read_collection_sizes(tmp_path) == (before,)
    write_layout_graph(tmp_path / "collection" / "one.arrow", small_graph(6))
    (counted,) = read_collection_sizes(tmp_path)
    assert counted.graphs == 1


@pytest.mark.parametrize(("content", "message"), [({}, "no list"), ([{"name": "x"}], r"\[0\]")])
def test_other_files_are_no_sizes(tmp_path: Path, content: object, message: str) -> None:
    write_json(tmp_path / "collections.json", content)
    with pytest.raises(DataError, match=message):
        read_collection_sizes(tmp_path)
