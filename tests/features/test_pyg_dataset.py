"""The PyG data set holds what the feature shards hold, and batches of it keep kernels apart."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch
from torch_geometric.loader import DataLoader

from benchmarks.synthetic_layouts import random_graph
from costbench.datasets.layout_graphs import write_layout_graph
from costbench.errors import ChoiceError, DataError, ParamsError
from costbench.features.feature_shards import FeatureShard, feature_path
from costbench.features.pyg_dataset import (
    NUM_OPCODES,
    KernelDataset,
    LayoutDataset,
    SampleDecisions,
    ScaleFeatures,
)
from tests.features.finished_stages import SPLIT, write_stages


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    folder = tmp_path_factory.mktemp("profile")
    write_stages(folder, repository)
    return folder


def shard(root: Path, program: str) -> FeatureShard:
    return FeatureShard(feature_path(root / "features", "tile", "tpu_v3", program))


def test_kernels_are_those_of_the_shards_in_the_order_of_the_split(root: Path) -> None:
    dataset = KernelDataset(root, part="train")
    expected = [(shard(root, name), index) for name in SPLIT.train for index in range(len(shard(root, name)))]
    assert len(dataset) == len(expected) == 10
    for data, (source, index) in zip(dataset, expected, strict=True):
        graph = source.graph(index)
        np.testing.assert_array_equal(data.x, graph.node_features)
        np.testing.assert_array_equal(data.opcode, graph.opcodes)
        np.testing.assert_array_equal(data.edge_index, graph.edges)
        np.testing.assert_array_equal(data.static_features, graph.static_features[None])
        np.testing.assert_array_equal(data.config_features, source.config_features(index))
        np.testing.assert_array_equal(data.runtime_ns, source.runtime_ns(index))
        np.testing.assert_array_equal(data.analytical_ns, source.analytical_ns(index))
        assert (data.program, data.application, data.kernel) == (source.program, source.application, index)
        assert data.fingerprint == source.fingerprints()[index]
        assert data.runs.tolist() == [source.runs()[index]]
        assert data.validate()
        assert 0 <= int(data.opcode.min()) <= int(data.opcode.max()) < NUM_OPCODES


def test_a_batch_keeps_decisions_with_their_kernels(root: Path) -> None:
    kernels = list(KernelDataset(root, part="train"))
    counts = [len(kernel.runtime_ns) for kernel in kernels]
    assert len(set(counts)) > 1, "kernels of equal numbers of decisions show nothing"
    batch = Batch.from_data_list(kernels)
    assert batch.kernel_of_decision.tolist() == [k for k, count in enumerate(counts) for _ in range(count)]
    assert batch.static_features.shape == (10, 4)
    assert batch.program == [name for name in SPLIT.train for _ in range(5)]
    starts = np.cumsum([0, *(kernel.num_nodes for kernel in kernels)])
    expected = np.concatenate([k.edge_index + int(s) for k, s in zip(kernels, starts, strict=False)], axis=1)
    np.testing.assert_array_equal(batch.edge_index, expected)
    for kernel, again in zip(kernels, batch.to_data_list(), strict=True):
        for name in kernel.keys():  # noqa: SIM118 - PyG's Data is no mapping
            value = kernel[name]
            assert torch.equal(value, again[name]) if torch.is_tensor(value) else value == again[name], name


def test_a_loader_gives_all_kernels_and_its_workers_read_the_same_ones(root: Path) -> None:
    kernels = KernelDataset(root, part="train")
    # How a loader hands the data set to workers that are not forked.
    of_worker = ForkingPickler.loads(ForkingPickler.dumps(kernels))
    loaded = [list(DataLoader(data, batch_size=4)) for data in (kernels, of_worker)]
    for one, other in zip(*loaded, strict=True):
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.runtime_ns, other.runtime_ns)
    counts = [len(kernel.runtime_ns) for kernel in kernels]
    assert [len(batch.runtime_ns) for batch in loaded[0]] == [sum(counts[i : i + 4]) for i in (0, 4, 8)]


def test_kernels_are_chosen_by_their_number_of_decisions(root: Path) -> None:
    kernels = KernelDataset(root, part="train")
    counts = [len(kernel.runtime_ns) for kernel in kernels]
    assert kernels.num_decisions().tolist() == counts
    assert min(counts) < 6 < max(counts)
    many = kernels[kernels.num_decisions() > 6]
    assert [len(kernel.runtime_ns) for kernel in many] == [count for count in counts if count > 6]
    assert many.num_decisions().tolist() == [count for count in counts if count > 6]


def test_scaled_training_features_span_zero_to_one(root: Path) -> None:
    plain = KernelDataset(root, part="train")
    scale = ScaleFeatures(plain)
    kernels = KernelDataset(root, part="train", transform=scale)
    for name, scaler in (("x", scale.node), ("config_features", scale.config)):
        before = torch.cat([kernel[name] for kernel in plain])
        values = torch.cat([kernel[name] for kernel in kernels])
        varying = before.min(dim=0).values < before.max(dim=0).values
        assert values.shape[1] == int(varying.sum()) == scaler.num_outputs
        assert torch.equal(values.min(dim=0).values, torch.zeros(values.shape[1]))
        assert torch.equal(values.max(dim=0).values, torch.ones(values.shape[1]))
        # sign(x) log(1 + |x|) between the logarithms of the extremes.
        logs = before[:, varying].double().sign() * before[:, varying].double().abs().log1p()
        low, high = logs.min(dim=0).values, logs.max(dim=0).values
        torch.testing.assert_close(values.double(), (logs - low) / (high - low), rtol=1e-5, atol=1e-6)


def test_sampled_decisions_stay_whole_and_differ_between_readings(root: Path) -> None:
    plain = KernelDataset(root, part="train")
    sampled = KernelDataset(root, part="train", transform=SampleDecisions(3))
    torch.manual_seed(0)
    first, second = ([kernel.runtime_ns.tolist() for kernel in sampled] for _ in range(2))
    assert first != second
    for whole, kernel in zip(plain, sampled, strict=True):
        assert len(kernel.runtime_ns) == len(kernel.kernel_of_decision) == min(3, len(whole.runtime_ns))
        rows = {
            (tuple(features), runtime, estimate)
            for features, runtime, estimate in zip(
                whole.config_features.tolist(),
                whole.runtime_ns.tolist(),
                whole.analytical_ns.tolist(),
                strict=True,
            )
        }
        for features, runtime, estimate in zip(
            kernel.config_features.tolist(),
            kernel.runtime_ns.tolist(),
            kernel.analytical_ns.tolist(),
            strict=True,
        ):
            assert (tuple(features), runtime, estimate) in rows


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"part": "dropped"}, ChoiceError, "unknown set 'dropped' .expected one of test, train, validation"),
        ({"split": "manual"}, DataError, "manual.json: "),
        ({"task": "layout"}, DataError, "features: no features of the task layout on any chip "),
        ({"chip": "tpu_v9"}, DataError, "features: no features of the task tile on tpu_v9 "),
        # Of its one program, nothing is measured.
        ({"part": "test"}, DataError, "for the programs of set test .expected the stage `features`"),
    ],
)
def test_what_is_missing_is_named(
    root: Path, change: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        KernelDataset(root, **change)


def test_impossible_places_and_counts_are_refused(root: Path) -> None:
    kernels = KernelDataset(root, part="train")
    with pytest.raises(DataError, match=f"kernel {len(kernels)} .expected 0 to {len(kernels) - 1}"):
        kernels.get(len(kernels))
    with pytest.raises(ParamsError, match="count: is 0"):
        SampleDecisions(0)


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
    samples = [graphs[0].rows.tolist() for _ in range(20)]
    assert set(np.concatenate(samples).tolist()) == set(rows.tolist())
    torch.manual_seed(0)
    assert [graphs[0].rows.tolist() for _ in range(20)] == samples


def test_rows_of_every_graph_are_needed(path: Path) -> None:
    with pytest.raises(DataError, match="rows"):
        LayoutDataset([path], rows=[])
    with pytest.raises(DataError, match="paths"):
        LayoutDataset([])


def test_graphs_travel_as_their_paths(path: Path) -> None:
    graphs = LayoutDataset([path, path], count=3)
    assert len(ForkingPickler.dumps(graphs)) < 1000 < path.stat().st_size
    torch.manual_seed(0)
    expected = [data.rows.tolist() for data in graphs]
    torch.manual_seed(0)
    assert [data.rows.tolist() for data in ForkingPickler.loads(ForkingPickler.dumps(graphs))] == expected


def test_a_row_of_a_two_dimensional_array_belongs_to_one_graph(path: Path) -> None:
    graphs = LayoutDataset([path, path], rows=np.array([[3, 8], [9, 20]]))
    assert [data.rows.tolist() for data in graphs] == [[3, 8], [9, 20]]


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([[0, 30]], r"a\.arrow: rows\[0\]: 0 to 30 .expected 0 to 29"),
        ([[-1, 3]], "-1 to 3"),
        ([[True, False]], "1 dimensions of bool"),
        (np.array([3]), "0 dimensions of int64"),
        (np.zeros((1, 2, 2), np.int64), "2 dimensions"),
    ],
)
def test_rows_that_are_no_configs_are_refused(path: Path, rows: Any, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        LayoutDataset([path], rows=rows)


def test_items_have_a_config_or_more(path: Path) -> None:
    with pytest.raises(ParamsError, match="count: is -1"):
        LayoutDataset([path], count=-1)
