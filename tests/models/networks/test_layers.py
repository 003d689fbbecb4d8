from __future__ import annotations

from typing import Literal

import pytest
import torch
from torch import nn

from costbench.models.net_spec import NetSpec
from costbench.models.networks.layers import (
    FeedForward,
    FeedForwardStack,
    JoinedFeedForward,
    PairFeedForward,
    gather_sum,
    initialize,
    segment_statistics,
    spread,
)

TINY = NetSpec(hidden=2)


def test_feed_forward_is_a_rectified_product() -> None:
    layer = FeedForward(2, TINY)
    layer.first.weight.data = torch.tensor([[1.0, -1.0], [2.0, 0.0]])
    # W (3, 5) = (3 - 5, 2 * 3).
    assert layer(torch.tensor([3.0, 5.0])).tolist() == [0.0, 6.0]


def test_module_layers_deepen_every_module() -> None:
    deep = NetSpec(hidden=2, module_layers=2)
    for module in (FeedForward(5, deep), JoinedFeedForward(5, 3, deep), PairFeedForward(deep)):
        assert len(module.more) == 2
    layer = FeedForward(2, NetSpec(hidden=2, module_layers=1))
    layer.first.weight.data = torch.eye(2)
    layer.more[0].weight.data = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    # relu first: (3, -5) -> (3, 0) -> (3, 3).
    assert layer(torch.tensor([3.0, -5.0])).tolist() == [3.0, 3.0]


@pytest.mark.parametrize("hidden", [2, 16])
def test_joining_equals_one_layer_over_the_concatenation(hidden: int) -> None:
    torch.manual_seed(0)
    layer = JoinedFeedForward(4, 3, NetSpec(hidden=hidden))
    nodes, kernels = torch.randn(5, 1, 4), torch.randn(2, 6, 3)
    rows = torch.tensor([0, 0, 1, 1, 1])
    both = torch.cat([nodes.expand(-1, 6, -1), kernels[rows]], dim=-1)
    weight = torch.cat([layer.own.weight, layer.joined.weight], dim=1)
    expected = torch.relu(nn.functional.linear(both, weight))
    found = layer(nodes, kernels, rows)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad((out**2).sum(), list(layer.parameters())) for out in (found, expected)]
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.parametrize(
    ("spec", "left"), [(NetSpec(hidden=16), 1), (NetSpec(hidden=16, dropout=0.5), 0), (NetSpec(hidden=2), 0)]
)
def test_compiled_joins_are_left_to_what_comes_next(spec: NetSpec, left: int) -> None:
    layer = JoinedFeedForward(4, 3, spec)
    rows = torch.tensor([0, 1, 1])
    begun, passes = layer.begin(torch.ones(3, 1, 4), torch.ones(2, 6, 3), rows)
    assert len(passes) == left
    assert begun.shape == (3, 1 if left else 6, spec.hidden)


def test_joining_nothing_is_a_plain_layer() -> None:
    layer = JoinedFeedForward(4, 0, TINY)
    nodes = torch.randn(5, 1, 4)
    assert torch.equal(layer(nodes, nodes[..., :0]), torch.relu(layer.own(nodes)))


def test_pair_equals_one_layer_over_the_concatenation() -> None:
    torch.manual_seed(0)
    layer = PairFeedForward(NetSpec(hidden=3, biases=True))
    left, right = torch.randn(4, 2, 3), torch.randn(4, 2, 3)
    expected = torch.relu(layer.both(torch.cat([left, right], dim=-1)))
    torch.testing.assert_close(layer(left, right), expected)


def test_spread_and_gather_are_transposes() -> None:
    rows = torch.tensor([0, 0, 1])
    assert spread(torch.tensor([[5.0], [7.0]]), rows).tolist() == [[5.0], [5.0], [7.0]]
    assert gather_sum(torch.tensor([[1.0], [2.0], [4.0]]), rows, 2).tolist() == [[3.0], [4.0]]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("mean",), [[2.0, 3.0], [5.0, 0.0]]),
        (("max",), [[3.0, 4.0], [5.0, 0.0]]),
        (("sum",), [[4.0, 6.0], [5.0, 0.0]]),
        (("sum", "mean", "max"), [[4.0, 6.0, 2.0, 3.0, 3.0, 4.0], [5.0, 0.0] * 3]),
    ],
)
def test_statistics_of_columns(
    names: tuple[Literal["mean", "max", "sum"], ...], expected: list[list[float]]
) -> None:
    # Kernels of nodes (1, 2), (3, 4) and (5, 0); then two decisions, the second with opposite signs.
    states = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 0.0]]).view(3, 1, 2)
    assert segment_statistics(states, (2, 1), names).squeeze(1).tolist() == expected
    found = segment_statistics(torch.cat([states, -states], dim=1), (2, 1), names)
    assert found[:, 0].tolist() == expected
    alone = segment_statistics(-states, (2, 1), names)
    torch.testing.assert_close(found[:, 1:], alone)


@pytest.mark.parametrize("num_decisions", [1, 2])
@pytest.mark.parametrize("names", [("mean",), ("sum", "max"), ("max", "mean", "sum")])
def test_statistics_gradient(names: tuple[Literal["mean", "max", "sum"], ...], num_decisions: int) -> None:
    torch.manual_seed(0)
    states = torch.randn(5, num_decisions, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda values: segment_statistics(values, (2, 3), names), states)


@pytest.mark.parametrize("num_decisions", [1, 2])
def test_nodes_that_reach_the_maximum_share_its_gradient(num_decisions: int) -> None:
    # A kernel of (-1, -1, -2) and one of (4): the first two share 6, so get 3 each.
    states = torch.tensor([-1.0, -1.0, -2.0, 4.0]).view(4, 1, 1).repeat(1, num_decisions, 1)
    states.requires_grad_()
    pull = torch.tensor([6.0, 5.0]).view(2, 1, 1)
    (segment_statistics(states, (3, 1), ("max",)) * pull).sum().backward()
    assert states.grad is not None
    assert states.grad[:, 0, 0].tolist() == [3.0, 3.0, 0.0, 5.0]


def test_stack_is_its_layers_one_after_another() -> None:
    torch.manual_seed(0)
    stack = FeedForwardStack(3, NetSpec(hidden=4)).double()
    states = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    one_by_one = states
    for layer in stack:
        one_by_one = layer(one_by_one)
    torch.testing.assert_close(stack(states), one_by_one)
    leaves = [states, *stack.parameters()]
    pull = torch.randn(3, 2, 4, dtype=torch.float64)
    fused, plain = (torch.autograd.grad((out * pull).sum(), leaves) for out in (stack(states), one_by_one))
    for mine, other in zip(fused, plain, strict=True):
        torch.testing.assert_close(mine, other)


def test_stack_drops_out_in_training_only() -> None:
    stack = FeedForwardStack(1, NetSpec(hidden=200, dropout=0.5))
    with torch.no_grad():
        for weight in stack.parameters():
            weight.copy_(torch.eye(200))
    torch.manual_seed(0)
    assert 50 < int((stack(torch.ones(200)) == 0).sum()) < 150
    assert torch.equal(stack.eval()(torch.ones(200)), torch.ones(200))


def test_a_stack_of_none_changes_nothing() -> None:
    states = torch.ones(2, 1, 3)
    assert FeedForwardStack(0, NetSpec(hidden=3))(states) is states


def test_norms_start_as_the_identity() -> None:
    net = nn.ModuleDict({"some_norm": nn.LayerNorm(3)})
    initialize(net, 0)
    assert {name: weight.tolist() for name, weight in net.named_parameters()} == {
        "some_norm.weight": [1.0] * 3,
        "some_norm.bias": [0.0] * 3,
    }


def test_segment_max_takes_each_column_by_itself() -> None:
    states = torch.tensor([[1.0, 9.0], [3.0, 2.0], [-5.0, -6.0]]).view(3, 1, 2)
    assert segment_statistics(states, (2, 1), ("max",)).tolist() == [[[3.0, 9.0]], [[-5.0, -6.0]]]


def test_segment_max_shares_the_gradient_of_a_tie() -> None:
    states = torch.tensor([[4.0], [4.0], [1.0]]).view(3, 1, 1).requires_grad_()
    segment_statistics(states, (3,), ("max",)).backward(torch.tensor([[[6.0]]]))
    assert states.grad is not None
    assert states.grad.flatten().tolist() == [3.0, 3.0, 0.0]


def test_segment_max_gradient() -> None:
    torch.manual_seed(0)
    states = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda values: segment_statistics(values, (2, 3), ("max",)), states)


def test_initial_weights_follow_from_the_seed_alone() -> None:
    nets = [nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 1)) for _ in range(3)]
    for net, seed in zip(nets, (1, 1, 2), strict=True):
        torch.rand(3)  # what ran before must not matter
        initialize(net, seed)
    first, second, other = (torch.cat([p.flatten() for p in net.parameters()]) for net in nets)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert nets[0][0].bias.tolist() == [0.0] * 8


def test_initial_weights_keep_the_scale_of_what_passes() -> None:
    net = nn.Sequential(*(FeedForward(64, NetSpec(hidden=64)) for _ in range(12)))
    initialize(net, 0)
    before = torch.rand(200, 64)
    with torch.no_grad():
        ratio = float(net(before).square().mean() / before.square().mean())
    assert 0.1 < ratio < 10.0
