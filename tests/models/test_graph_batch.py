from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch

from benchmarks.synthetic_kernels import kernel_samples
from costbench.errors import DataError
from costbench.features.graph_tensors import KernelGraph
from costbench.features.packed_kernels import FeatureExtremes
from costbench.models.graph_batch import Collator, FeatureScaling, KernelSamples, pack_samples
from costbench.models.learned import LearnedCostNet
from costbench.models.spec import NetSpec
from costbench.training.losses import pairwise_hinge

PAIR = [kernel_samples(1, num_nodes=3, num_configs=5), kernel_samples(2, num_nodes=4, num_configs=2)]


def scaling() -> FeatureScaling:
    return FeatureScaling.fit(PAIR)


def star(num_leaves: int) -> KernelSamples:
    """Leaves 1, 2, ... read node 0; edges are stored in a shuffled order."""
    leaves = np.arange(1, num_leaves + 1)[::-1]
    sample = kernel_samples(3, num_nodes=num_leaves + 1, num_configs=2)
    graph = replace(sample.graph, edges=np.stack([np.zeros_like(leaves), leaves]))
    return replace(sample, graph=graph)


def test_kernels_lie_one_after_another() -> None:
    batch = Collator(scaling(), 20)(PAIR)
    assert batch.node_counts == (3, 4)
    assert batch.num_kernels == 2
    assert batch.kernel_of_node.tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert batch.opcodes.tolist() == [*PAIR[0].graph.opcodes, *PAIR[1].graph.opcodes]
    assert batch.node_features.shape == (7, scaling().sizes.node)
    assert batch.static_features.shape == (2, 1, 4)


def test_short_kernels_are_padded_and_masked() -> None:
    batch = Collator(scaling(), 20)(PAIR)
    assert batch.mask.tolist() == [[True] * 5, [True, True, False, False, False]]
    assert batch.runtime_ns[1].tolist() == [*PAIR[1].runtime_ns, 1.0, 1.0, 1.0]
    assert batch.config_features[1, 2:].abs().sum() == 0
    expected = scaling().decision(PAIR[1].config_features)
    np.testing.assert_array_equal(batch.config_features[1, :2].numpy(), expected)


def test_edges_of_later_kernels_are_shifted() -> None:
    alone = Collator(scaling(), 20)([PAIR[1]]).edges
    together = Collator(scaling(), 20)(PAIR).edges
    second = together.receiver >= 3
    assert (together.receiver[second] - 3).tolist() == alone.receiver.tolist()
    assert (together.sender[second] - 3).tolist() == alone.sender.tolist()


def test_neighbours_beyond_the_limit_are_cut_in_node_order() -> None:
    sample = star(num_leaves=5)
    edges = Collator(FeatureScaling.fit([sample]), max_neighbors=3)([sample]).edges
    heard_by_hub = edges.sender[edges.receiver == 0]
    assert sorted(heard_by_hub.tolist()) == [1, 2, 3]
    # Each leaf still hears its one producer, whatever the producer itself still hears.
    assert edges.receiver[~edges.backwards].tolist() == [1, 2, 3, 4, 5]
    assert edges.share[edges.receiver == 0].tolist() == pytest.approx([1 / 3] * 3)


def chain(places: list[int]) -> KernelGraph:
    """Nodes read one another in the order of `places`."""
    graph = kernel_samples(3, num_nodes=len(places), num_configs=1).graph
    return replace(graph, edges=np.array([places[:-1], places[1:]]))


def test_batches_hold_nodes_in_topological_order() -> None:
    sample = replace(PAIR[1], graph=chain([2, 0, 3, 1]))
    batch = Collator(scaling(), 20)([sample])
    assert batch.opcodes.tolist() == sample.graph.opcodes[[2, 0, 3, 1]].tolist()
    expected = scaling().node(sample.graph.node_features)[[2, 0, 3, 1]]
    np.testing.assert_array_equal(batch.node_features.numpy(), expected)
    forth = ~batch.edges.backwards
    assert batch.edges.sender[forth].tolist() == [0, 1, 2]
    assert batch.edges.receiver[forth].tolist() == [1, 2, 3]


def test_collating_twice_gives_the_same() -> None:
    collator = Collator(scaling(), 20)
    first, second = collator(PAIR), collator(PAIR)
    assert torch.equal(first.node_features, second.node_features)
    assert torch.equal(first.edges.message, second.edges.message)


def test_read_only_arrays_are_accepted() -> None:
    graph = PAIR[0].graph
    arrays = {name: getattr(graph, name).copy() for name in KernelGraph.__dataclass_fields__}
    for array in arrays.values():
        array.flags.writeable = False
    batch = Collator(scaling(), 20)([replace(PAIR[0], graph=KernelGraph(**arrays))])
    assert torch.equal(batch.opcodes, torch.from_numpy(graph.opcodes))
    # torch writes where NumPy would not let it: the batch must not lie in the caller's memory.
    batch.opcodes.zero_()
    np.testing.assert_array_equal(arrays["opcodes"], graph.opcodes)


def test_moving_keeps_every_value() -> None:
    batch = Collator(scaling(), 20)(PAIR)
    moved = batch.to("cpu")
    for name in ("opcodes", "node_features", "static_features", "config_features", "mask", "runtime_ns"):
        assert torch.equal(getattr(batch, name), getattr(moved, name))
    assert moved.node_counts == batch.node_counts
    assert torch.equal(moved.edges.share, batch.edges.share)
    assert batch.to("meta").edges.receiver.device.type == "meta"


def test_estimates_become_logarithms_where_all_kernels_have_them() -> None:
    first, second = (replace(sample, analytical_ns=2.0 * sample.runtime_ns) for sample in PAIR)
    batch = Collator(scaling(), 20)([first, second])
    assert batch.log_analytical is not None
    expected = np.log(2.0 * PAIR[1].runtime_ns)
    np.testing.assert_allclose(batch.log_analytical[1].numpy(), [*expected, 0.0, 0.0, 0.0], rtol=1e-15)
    assert Collator(scaling(), 20)([first, PAIR[1]]).log_analytical is None
    with pytest.raises(DataError, match="analytical_ns: not a positive number"):
        Collator(scaling(), 20)([replace(first, analytical_ns=np.zeros(5))])
    with pytest.raises(DataError, match=r"analytical_ns: estimates of shape \(2,\)"):
        replace(first, analytical_ns=np.ones(2))


def test_impossible_runtimes_of_packed_kernels_are_refused() -> None:
    kernels = pack_samples(PAIR)
    with pytest.raises(DataError, match="runtime_ns: not a positive number"):
        Collator(scaling(), 20).collate(replace(kernels, runtime_ns=-kernels.runtime_ns))


def test_scalers_need_extremes_only() -> None:
    def extremes() -> Iterator[FeatureExtremes]:
        for sample in PAIR:
            tables = sample.graph.node_features, sample.config_features, sample.graph.static_features[None]
            yield FeatureExtremes(*(np.stack([t.min(axis=0), t.max(axis=0)]) for t in tables))

    assert FeatureScaling.of_extremes(extremes()).to_dict() == scaling().to_dict()
    with pytest.raises(DataError, match="no training rows"):
        FeatureScaling.of_extremes([])


def test_large_batches_are_padded_to_even_sizes() -> None:
    samples = [kernel_samples(seed, num_nodes=11, num_configs=137 + seed) for seed in range(3)]
    collator = Collator(FeatureScaling.fit(samples), 20)
    exact, even = collator(samples), collator.collate(pack_samples(samples), even=True)
    assert exact.mask.shape == (3, 139)
    assert even.mask.shape == (4, 144)
    assert even.node_counts == (11, 11, 11, 3)
    assert even.mask.sum(dim=1).tolist() == [137, 138, 139, 0]
    assert torch.equal(even.runtime_ns[:3, :139], exact.runtime_ns)
    assert torch.equal(even.edges.sender, exact.edges.sender)


def test_padding_changes_no_cost_and_no_gradient() -> None:
    samples = [kernel_samples(seed, num_nodes=11, num_configs=137 + seed) for seed in range(3)]
    collator = Collator(FeatureScaling.fit(samples), 20)
    gradients = []
    for batch in (collator(samples), collator.collate(pack_samples(samples), even=True)):
        net = LearnedCostNet(NetSpec(hidden=16, opcode_embedding=8), collator._scaling.sizes)
        costs = net(batch)
        pairwise_hinge(costs, batch.runtime_ns, batch.mask).backward()
        gradients.append([costs[:3, :137], *(weight.grad for weight in net.parameters())])
    for exact, even in zip(*gradients, strict=True):
        torch.testing.assert_close(exact, even, rtol=1e-4, atol=1e-5)


def test_small_batches_are_not_padded() -> None:
    batch = Collator(scaling(), 20).collate(pack_samples(PAIR), even=True)
    assert batch.node_counts == (3, 4)


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(DataError, match="no kernels"):
        Collator(scaling(), 20)([])


def test_selecting_keeps_rows_together() -> None:
    some = PAIR[0].select(np.array([4, 1]))
    np.testing.assert_array_equal(some.config_features, PAIR[0].config_features[[4, 1]])
    np.testing.assert_array_equal(some.runtime_ns, PAIR[0].runtime_ns[[4, 1]])
    assert some.graph is PAIR[0].graph
    assert len(some) == 2


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0, -1.0])
def test_impossible_runtimes_are_refused(bad: float) -> None:
    with pytest.raises(DataError, match="runtime_ns: a runtime is not a positive number"):
        replace(PAIR[1], runtime_ns=np.array([1.0, bad]))


def test_runtimes_must_match_decisions() -> None:
    with pytest.raises(DataError, match="runtime_ns"):
        replace(PAIR[1], runtime_ns=np.ones(3))


def test_scaling_brings_training_data_to_the_unit_interval() -> None:
    scaled = scaling().node(np.concatenate([sample.graph.node_features for sample in PAIR]))
    assert scaled.min() == 0.0
    assert scaled.max() == 1.0


def test_scaling_round_trip_and_its_errors() -> None:
    plain = scaling().to_dict()
    again = FeatureScaling.from_dict(plain)
    assert again.sizes == scaling().sizes
    features = PAIR[0].config_features
    np.testing.assert_array_equal(again.decision(features), scaling().decision(features))
    with pytest.raises(DataError, match="scaling"):
        FeatureScaling.from_dict({"node": plain["node"]})
    with pytest.raises(DataError, match="static: is no scaler"):
        FeatureScaling.from_dict({**plain, "static": 3})


def estimated(sample: KernelSamples) -> KernelSamples:
    """With estimates of 1, 2, 3, ... nanoseconds."""
    return replace(sample, analytical_ns=np.arange(1.0, len(sample) + 1.0))


def test_estimates_are_carried_as_logarithms() -> None:
    batch = Collator(scaling(), 20)([estimated(sample) for sample in PAIR])
    assert batch.log_analytical is not None
    expected = [np.log([1.0, 2.0, 3.0, 4.0, 5.0]), [0.0, np.log(2.0), 0.0, 0.0, 0.0]]
    np.testing.assert_array_equal(batch.log_analytical.numpy(), expected)
    moved = batch.to("cpu").log_analytical
    assert moved is not None
    assert torch.equal(moved, batch.log_analytical)


def test_a_batch_has_estimates_where_all_kernels_have() -> None:
    assert Collator(scaling(), 20)(PAIR).log_analytical is None
    assert Collator(scaling(), 20)([estimated(PAIR[0]), PAIR[1]]).log_analytical is None


def test_selected_decisions_keep_their_estimates() -> None:
    chosen = estimated(PAIR[0]).select(np.array([1, 4]))
    assert chosen.analytical_ns is not None
    assert chosen.analytical_ns.tolist() == [2.0, 5.0]


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.nan, np.inf])
def test_estimates_that_are_no_times_are_refused(wrong: float) -> None:
    sample = replace(PAIR[1], analytical_ns=np.array([3.0, wrong]))
    with pytest.raises(DataError, match="analytical_ns"):
        Collator(scaling(), 20)([sample])


def test_estimates_of_other_decisions_are_refused() -> None:
    with pytest.raises(DataError, match="analytical_ns"):
        replace(PAIR[0], analytical_ns=np.ones(4))
