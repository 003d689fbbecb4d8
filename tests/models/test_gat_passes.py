from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from costbench.models.gat_passes import (
    NEGATIVE_SLOPE,
    GatGradients,
    GatMatrices,
    GatStates,
    Pairs,
    gat_backward,
    gat_forward,
)


def plain_hop(
    states: torch.Tensor,
    matrices: tuple[torch.Tensor, torch.Tensor],
    heads: int,
    senders: list[list[list[int]]],
) -> torch.Tensor:
    """The formula, node by node: states [N, C, H], senders of each way and node."""
    values, scores = matrices
    configs, width = states.shape[1:]
    heard = torch.zeros_like(states)
    for way, of_nodes in enumerate(senders):
        told = (states @ values[way].t()).unflatten(-1, (heads, -1))
        place = 2 * way * heads
        asks = (states @ scores[place : place + 2 * heads].t()).view(-1, configs, 2, heads)
        rows = []
        for node, found in enumerate(of_nodes):
            score = nn.functional.leaky_relu(asks[found, :, 0] + asks[node, :, 1], NEGATIVE_SLOPE)
            rows.append((torch.softmax(score, 0)[..., None] * told[found]).sum(0).view(configs, width))
        heard = heard + torch.stack(rows)
    return torch.relu(heard)


def compiled_hop(
    states: torch.Tensor,
    matrices: tuple[torch.Tensor, torch.Tensor],
    heads: int,
    senders: list[list[list[int]]],
    pull: torch.Tensor,
) -> list[torch.Tensor]:
    """What comes out, and the gradients of the states and of both matrices."""
    values, scores = matrices
    (num_nodes, configs, width), ways = states.shape, len(senders)
    lists = [found for of_nodes in senders for found in of_nodes]
    pairs = Pairs(np.cumsum([0, *map(len, lists)]), np.concatenate(lists))
    rows = num_nodes * configs
    spread = torch.eye(heads).repeat_interleave(width // heads, dim=1)
    sizes = (ways, rows, width), (2 * ways, num_nodes, configs * heads), (len(pairs.senders), configs * heads)
    gat = GatStates(
        states.reshape(rows, width).numpy(),
        *(np.empty(size, np.float32) for size in (*sizes, (rows, width))),
    )
    inputs_first = GatMatrices(values.transpose(1, 2).contiguous().numpy(), scores.t().contiguous().numpy())
    gat_forward(gat, inputs_first, pairs, spread.numpy())
    gather = np.zeros((width, -(-heads // 16) * 16), np.float32)
    gather[:, :heads] = spread.t()
    found = GatGradients(
        np.empty((rows, width), np.float32),
        *(np.zeros(size, np.float32) for size in sizes[:2]),
        GatMatrices(*(np.zeros(tuple(matrix.shape), np.float32) for matrix in matrices)),
    )
    outputs_first = GatMatrices(*(matrix.numpy() for matrix in matrices))
    gat_backward(pull.reshape(rows, width).numpy(), gat, outputs_first, pairs, gather, found)
    arrays = gat.updated, found.states, *found.matrices
    return [torch.from_numpy(array) for array in arrays]


@given(
    num_nodes=st.integers(1, 5),
    configs=st.sampled_from([1, 3, 40]),
    heads=st.sampled_from([1, 2, 4, 16]),
    ways=st.integers(1, 2),
    share=st.sampled_from([0.0, 0.5]),
)
def test_hops_and_their_gradients_are_torchs(
    num_nodes: int, configs: int, heads: int, ways: int, share: float
) -> None:
    width = 32
    generator = torch.Generator().manual_seed(num_nodes)
    draw = np.random.default_rng(num_nodes)
    senders = [
        [[*np.flatnonzero(draw.random(num_nodes) < share).tolist(), node] for node in range(num_nodes)]
        for _ in range(ways)
    ]
    used, padded = 2 * ways * heads, -(-2 * ways * heads // 16) * 16
    states, values, scores, pull = (
        torch.randn(shape, generator=generator)
        for shape in (
            (num_nodes, configs, width),
            (ways, width, width),
            (padded, width),
            (num_nodes, configs, width),
        )
    )
    scores[used:] = 0.0
    exact = [tensor.double().requires_grad_() for tensor in (states, values, scores)]
    expected = plain_hop(exact[0], (exact[1], exact[2]), heads, senders)
    expected.backward(pull.double())
    found = compiled_hop(states, (values, scores), heads, senders, pull)
    wanted = [expected.detach(), *(tensor.grad for tensor in exact)]
    for mine, other in zip(found, wanted, strict=True):
        assert other is not None
        assert float((mine.double().view_as(other) - other).abs().max()) < 3e-5 * max(
            1.0, float(other.abs().max())
        )


@pytest.mark.parametrize("apart", [0.0, 1.0, 30.0, 200.0])
def test_weights_by_hand(apart: float) -> None:
    # Two nodes whose scores are their only state: 0 attends to itself (0) and to 1 (-apart, leaky: a fifth).
    states = torch.zeros(2, 1, 16)
    states[1, 0, 0], states[:, 0, 1] = -apart, torch.tensor([1.0, 3.0])
    values, scores = torch.zeros(1, 16, 16), torch.zeros(16, 16)
    values[0, 5, 1] = scores[0, 0] = 1.0
    out = compiled_hop(states, (values, scores), 1, [[[1, 0], [1]]], torch.zeros_like(states))[0]
    share = float(np.exp(-NEGATIVE_SLOPE * apart) / (1.0 + np.exp(-NEGATIVE_SLOPE * apart)))
    np.testing.assert_allclose(out[:, 5], [1.0 - share + 3.0 * share, 3.0], rtol=1e-6)
    assert not out[:, :5].any()


def test_a_nan_stays_one() -> None:
    states = torch.ones(1, 1, 16)
    states[0, 0, 3] = torch.nan
    out = compiled_hop(states, (torch.ones(1, 16, 16), torch.ones(16, 16)), 2, [[[0]]], states)[0]
    assert torch.isnan(out).all()
