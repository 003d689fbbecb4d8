from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.synthetic_layouts import random_graph
from costbench.datasets.layout.graphs import write_layout_graph
from costbench.errors import DataError
from costbench.features.pyg_layouts import LayoutDataset

GRAPH = random_graph(0, 40, 6, 30)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_layout_graph(tmp_path / "a.arrow", GRAPH)
    return tmp_path / "a.arrow"


def test_an_item_is_the_graph_with_some_configs(path: Path) -> None:
    data = LayoutDataset([path], count=5)[0]
    rows = data.rows.numpy()
    assert len(set(rows.tolist())) == 5
    assert np.array_equal(data.config_features, GRAPH.config_features(rows))
    assert np.array_equal(data.runtime_ns, GRAPH.runtime_ns[rows])
    assert np.array_equal(data.x, GRAPH.node_features)
    # Stored as (consumer, producer); PyG's messages go from the first row to the second.
    assert np.array_equal(data.edge_index.numpy(), GRAPH.edges.T[::-1])
    assert (data.edge_index[0] < data.edge_index[1]).all()
    assert data.num_nodes == 40


def test_draws_are_torchs_and_from_the_rows_alone(path: Path) -> None:
    rows = np.array([3, 8, 9, 20])
    graphs = LayoutDataset([path], count=2, rows=[rows])
    torch.manual_seed(0)
    drawn = [graphs[0].rows.tolist() for _ in range(20)]
    assert set(np.concatenate(drawn).tolist()) == set(rows.tolist())
    torch.manual_seed(0)
    assert [graphs[0].rows.tolist() for _ in range(20)] == drawn


def test_rows_of_every_graph_are_needed(path: Path) -> None:
    with pytest.raises(DataError, match="rows"):
        LayoutDataset([path], rows=[])
    with pytest.raises(DataError, match="paths"):
        LayoutDataset([])
