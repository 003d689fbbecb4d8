from __future__ import annotations

import numpy as np
import pytest
import torch

from costbench.models.batch.edges import Edges
from costbench.models.execution import applied
from costbench.models.execution_spec import Execution
from costbench.models.kernels.gat.hops import attended, attention_pairs
from costbench.models.net_spec import NetSpec
from costbench.models.networks.gat import Gat
from costbench.models.networks.layers import initialize


def edges() -> Edges:
    """A diamond: 0 -> 1, 0 -> 2, 1 -> 3, 2 -> 3."""
    incoming, outgoing = [[1, 2, 3, 3], [0, 0, 1, 2]], [[0, 0, 1, 2], [1, 2, 3, 3]]
    return Edges.build(np.array(incoming), np.array(outgoing), num_nodes=4)


@pytest.mark.parametrize(
    ("directed", "heard"),
    [
        (True, [{0}, {0, 1, 2}, {0, 1}, {1, 3}, {0, 2}, {2, 3}, {1, 2, 3}, {3}]),
        (False, [{0, 1, 2}, {0, 1, 3}, {0, 2, 3}, {1, 2, 3}]),
    ],
)
def test_producers_and_consumers_are_apart_or_together(directed: bool, heard: list[set[int]]) -> None:
    pairs = attention_pairs(edges(), 32, directed=directed)
    assert [set(part.tolist()) for part in np.split(pairs.senders, pairs.starts[1:-1])] == heard
    assert pairs.groups.tolist() == [0, 4]


def found_by(network: Gat, states: torch.Tensor, execution: Execution) -> list[torch.Tensor]:
    """Output and gradients of states and parameters."""
    network.zero_grad()
    given = states.clone().requires_grad_()
    with applied(execution):
        out = network(given, edges())
        torch.autograd.backward(out, torch.linspace(-1.0, 2.0, out.numel()).view_as(out))
    parameters = [parameter.grad for parameter in network.parameters() if parameter.grad is not None]
    assert given.grad is not None
    return [out.detach(), given.grad, *parameters]


@pytest.mark.parametrize(
    "spec",
    [
        NetSpec(encoder="gat"),
        NetSpec(encoder="gat", directed=False, gat_heads=2, encoder_layers=1),
        NetSpec(encoder="gat", l2_normalize=True),
        NetSpec(encoder="gat", module_layers=1),
        NetSpec(encoder="gat", hidden=32),
        NetSpec(encoder="gat", biases=True),
    ],
)
def test_compiled_and_plain_networks_agree(spec: NetSpec) -> None:
    network = Gat(spec)
    initialize(network, 0)
    states = torch.randn(4, 6, spec.hidden, generator=torch.Generator().manual_seed(0))
    compiled, plain = (found_by(network, states, Execution(compiled=way)) for way in (True, False))
    assert len(compiled) == 2 + len(list(network.parameters()))
    for mine, other in zip(compiled, plain, strict=True):
        assert float(other.abs().max()) > 0.0
        assert float((mine - other).abs().max()) < 3e-5 * max(1.0, float(other.abs().max()))


def test_dropout_goes_between_hops() -> None:
    network = Gat(NetSpec(encoder="gat", dropout=0.5))
    initialize(network, 0)
    states = torch.ones(4, 2, 64)
    torch.manual_seed(0)
    dropped = network(states, edges())
    assert float((dropped == 0.0).float().mean()) > 0.4
    network.eval()
    assert not torch.equal(network(states, edges()), dropped)


def test_nobody_may_change_what_the_gradient_needs() -> None:
    states = torch.ones(4, 2, 64, requires_grad=True)
    weights = [torch.eye(64), torch.eye(64), *(torch.ones(4, 16) for _ in range(4))]
    out = attended(states, weights, 1, attention_pairs(edges(), 2, directed=True))
    out.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.backward(out.sum())


def test_results_are_the_same_where_nothing_is_kept_for_gradients() -> None:
    network = Gat(NetSpec(encoder="gat"))
    initialize(network, 0)
    states = torch.randn(4, 6, 64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        found = network(states, edges())
    assert not found.requires_grad
    expected = network(states, edges())
    assert expected.requires_grad
    assert torch.equal(found, expected.detach())
