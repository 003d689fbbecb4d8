"""Reductions of two kernels, nodes (1, 2), (3, 4) and (5, 0), worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from benchmarks.synthetic_kernels import kernel_samples
from costbench.models.graph_batch import Collator, FeatureScaling, GraphBatch
from costbench.models.networks.layers import initialize
from costbench.models.networks.reductions import (
    AttentionSum,
    ColumnWise,
    Head,
    LastState,
    PerNode,
    segment_statistics,
    segment_sum,
)
from costbench.models.spec import NetSpec

STATES = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 0.0]]).view(3, 1, 2)
NOTHING = torch.zeros(2, 1, 0)


def batch() -> GraphBatch:
    samples = [kernel_samples(1, num_nodes=3, num_configs=1), kernel_samples(2, num_nodes=3, num_configs=1)]
    made = Collator(FeatureScaling.fit([*samples, kernel_samples(3, 3, 5)]), 20)(samples)
    return replace(made, kernel_of_node=torch.tensor([0, 0, 1]), node_counts=(2, 1))


def test_column_wise_concatenates_in_the_order_asked() -> None:
    reduction = ColumnWise(NetSpec(hidden=2, columns=("max", "mean")), joined=0)
    reduction.head.cost.weight.data = torch.tensor([[1000.0, 100.0, 10.0, 1.0]])
    # max (3, 4), mean (2, 3); then (5, 0) twice.
    assert reduction(STATES, NOTHING, batch()).flatten().tolist() == [3423.0, 5050.0]


def test_per_node_sums_costs_of_nodes() -> None:
    reduction = PerNode(NetSpec(hidden=2), joined=0)
    reduction.head.cost.weight.data = torch.tensor([[10.0, 1.0]])
    # 10 + 2 and 30 + 4; 50.
    assert reduction(STATES, NOTHING, batch()).flatten().tolist() == [46.0, 50.0]


def test_features_that_join_late_pass_a_layer_with_the_embedding() -> None:
    head = Head(2, 1, NetSpec(hidden=1))
    assert head.join is not None
    assert head.join.joined is not None
    head.join.own.weight.data = torch.tensor([[1.0, 1.0]])
    head.join.joined.weight.data = torch.tensor([[-1.0]])
    head.cost.weight.data = torch.tensor([[2.0]])
    embeddings = torch.tensor([[1.0, 2.0], [5.0, 5.0]]).view(2, 1, 2)
    joined = torch.tensor([[0.0, 4.0], [1.0, 2.0]]).view(2, 2, 1)
    # 2 relu(3 - 0), 2 relu(3 - 4); 2 relu(10 - 1), 2 relu(10 - 2).
    assert head(embeddings, joined).tolist() == [[6.0, 0.0], [18.0, 16.0]]


def test_late_features_change_the_order_of_decisions_by_kernel() -> None:
    """Without a layer in between, all kernels would rank decisions alike."""
    torch.manual_seed(0)
    head = Head(4, 2, NetSpec(hidden=16))
    costs = head(torch.randn(40, 1, 4), torch.randn(1, 6, 2).expand(40, -1, -1))
    assert len({tuple(row.argsort().tolist()) for row in costs}) > 1


def test_lstm_costs_are_of_the_last_node() -> None:
    """The cost of the first kernel follows from both of its nodes, the second's from its one."""
    reduction = LastState(NetSpec(hidden=2, lstm_width=3), joined=0)
    initialize(reduction, 0)

    def costs(states: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = reduction(states, NOTHING, batch())
        return found

    alone = reduction.lstm(STATES[2:], (1,))
    torch.testing.assert_close(costs(STATES)[1, 0], (reduction.head.cost.weight @ alone[0, 0]).squeeze())
    assert not torch.allclose(costs(STATES[[1, 0, 2]])[0], costs(STATES)[0])


def test_transformer_costs_do_not_depend_on_the_order_of_nodes() -> None:
    reduction = AttentionSum(NetSpec(hidden=2, transformer_heads=1), joined=0)
    initialize(reduction, 1)
    costs = reduction(STATES, NOTHING, batch())
    assert costs.shape == (2, 1)
    torch.testing.assert_close(reduction(STATES[[1, 0, 2]], NOTHING, batch()), costs)


def test_gather_sum_by_hand() -> None:
    rows = torch.tensor([0, 0, 1])
    assert segment_sum(torch.tensor([[1.0], [2.0], [4.0]]), rows, 2).tolist() == [[3.0], [4.0]]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("mean",), [[2.0, 3.0], [5.0, 0.0]]),
        (("max",), [[3.0, 4.0], [5.0, 0.0]]),
        (("sum",), [[4.0, 6.0], [5.0, 0.0]]),
        (("sum", "mean", "max"), [[4.0, 6.0, 2.0, 3.0, 3.0, 4.0], [5.0, 0.0] * 3]),
    ],
)
def test_statistics_of_columns(names: tuple[str, ...], expected: list[list[float]]) -> None:
    assert segment_statistics(STATES, batch(), names).squeeze(1).tolist() == expected
    # Two decisions, the second with opposite signs.
    both = segment_statistics(torch.cat([STATES, -STATES], dim=1), batch(), names)
    assert both[:, 0].tolist() == expected
    torch.testing.assert_close(both[:, 1:], segment_statistics(-STATES, batch(), names))


def test_nodes_that_reach_the_maximum_share_its_gradient() -> None:
    # A kernel of (-1, -1) and one of (4): the first two share 6, so get 3 each.
    states = torch.tensor([-1.0, -1.0, 4.0]).view(3, 1, 1).requires_grad_()
    pull = torch.tensor([6.0, 5.0]).view(2, 1, 1)
    (segment_statistics(states, batch(), ("max",)) * pull).sum().backward()
    assert states.grad is not None
    assert states.grad.flatten().tolist() == [3.0, 3.0, 5.0]
