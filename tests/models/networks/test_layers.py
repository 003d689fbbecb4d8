from __future__ import annotations

import torch
from torch import nn

from costbench.models.networks.layers import (
    FeedForward,
    FeedForwardStack,
    JoinedFeedForward,
    PairFeedForward,
    initialize,
)
from costbench.models.spec import NetSpec

TINY = NetSpec(hidden=2)


def test_feed_forward_is_the_relu_of_a_product() -> None:
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
    found = layer(nodes, kernels, rows)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad((out**2).sum(), list(layer.parameters())) for out in (found, expected)]
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other)


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
