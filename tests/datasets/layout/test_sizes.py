"""Sizes of collections, counted by hand."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from costbench.artifacts import write_json
from costbench.datasets.layout.graphs import write_layout_graph
from costbench.datasets.layout.sizes import CollectionSize, collection_sizes, read_collection_sizes
from costbench.errors import DataError
from tests.datasets.layout.test_graphs import small_graph


def test_repeated_configs_are_one_pair_and_two_samples(tmp_path: Path) -> None:
    # Four different configs, then the first two again.
    graphs = [small_graph(6), replace(small_graph(3), name="other"), small_graph(2)]
    graphs[2] = replace(graphs[2], collection="layout:nlp:random", config_options=np.zeros((2, 2), np.int16))
    for place, graph in enumerate(graphs):
        write_layout_graph(tmp_path / f"{place}.arrow", graph)
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
