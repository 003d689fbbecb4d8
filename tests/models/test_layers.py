from __future__ import annotations

import torch
from torch import nn

from costbench.models.layers import (
    FeedForward,
    JoinedFeedForward,
    PairFeedForward,
    gather_sum,
    initialize,
    segment_max,
    spread,
)
from costbench.models.net_spec import NetSpec

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


def test_joining_equals_one_layer_over_the_concatenation() -> None:
    torch.manual_seed(0)
    layer = JoinedFeedForward(4, 3, TINY)
    nodes, kernels = torch.randn(5, 1, 4), torch.randn(2, 6, 3)
    rows = torch.tensor([0, 0, 1, 1, 1])
    both = torch.cat([nodes.expand(-1, 6, -1), kernels[rows]], dim=-1)
    weight = torch.cat([layer.own.weight, layer.joined.weight], dim=1)
    expected = torch.relu(nn.functional.linear(both, weight))
    torch.testing.assert_close(layer(nodes, kernels, rows), expected)


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


def test_segment_max_takes_each_column_by_itself() -> None:
    states = torch.tensor([[1.0, 9.0], [3.0, 2.0], [-5.0, -6.0]]).view(3, 1, 2)
    assert segment_max(states, (2, 1)).tolist() == [[[3.0, 9.0]], [[-5.0, -6.0]]]


def test_segment_max_shares_the_gradient_of_a_tie() -> None:
    states = torch.tensor([[4.0], [4.0], [1.0]]).view(3, 1, 1).requires_grad_()
    segment_max(states, (3,)).backward(torch.tensor([[[6.0]]]))
    assert states.grad is not None
    assert states.grad.flatten().tolist() == [3.0, 3.0, 0.0]


def test_segment_max_gradient() -> None:
    torch.manual_seed(0)
    states = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda values: segment_max(values, (2, 3)), states)


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
