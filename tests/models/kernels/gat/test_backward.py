from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from costbench.models.kernels.gat.backward import GatGradients, gat_backward
from costbench.models.kernels.gat.forward import gat_forward, gat_states
from costbench.models.kernels.gat.pairs import Pairs, pairs_of
from costbench.models.networks.constants import NEGATIVE_SLOPE


def plain_hop(states: torch.Tensor, matrix: torch.Tensor, asks: torch.Tensor, pairs: Pairs) -> torch.Tensor:
    """The formula, node by node: states [N, C, H], matrix [ways H, H], asks [2 ways, heads, H / heads]."""
    ways, width = len(asks) // 2, states.shape[-1]
    attended = []
    for node in range(len(states)):
        found = torch.zeros_like(states[0])
        for way in range(ways):
            projected = states @ matrix[way * width : (way + 1) * width].t()
            projected = projected.view(*projected.shape[:-1], *asks.shape[1:])
            scores = torch.einsum("nchk,phk->pnch", projected, asks[2 * way : 2 * way + 2])
            slot = node * ways + way
            senders = pairs.senders[pairs.starts[slot] : pairs.starts[slot + 1]].tolist()
            score = nn.functional.leaky_relu(scores[0, senders] + scores[1, node], NEGATIVE_SLOPE)
            found = found + (torch.softmax(score, 0)[..., None] * projected[senders]).sum(0).flatten(-2)
        attended.append(found)
    return torch.relu(torch.stack(attended))


@given(
    num_nodes=st.integers(1, 6),
    configs=st.sampled_from([1, 3, 300]),
    of_heads=st.sampled_from([(4, 16), (8, 16), (2, 32), (4, 8), (3, 16)]),
    ways=st.integers(1, 2),
    num_edges=st.sampled_from([0, 5]),
)
def test_hops_and_their_gradients_are_torchs(
    num_nodes: int, configs: int, of_heads: tuple[int, int], ways: int, num_edges: int
) -> None:
    heads, depth = of_heads
    width, hops = heads * depth, 2
    draw = np.random.default_rng(num_nodes)
    receiver, sender = np.sort(draw.integers(0, num_nodes, num_edges)), draw.integers(0, num_nodes, num_edges)
    pairs = pairs_of(receiver, sender, draw.random(num_edges) < 0.5, num_nodes, ways, 2)
    shapes = (num_nodes, configs, width), (hops, ways * width, width), (hops, 2 * ways, heads, depth)
    states, matrices, asks = (draw.standard_normal(shape).astype(np.float32) / 4.0 for shape in shapes)
    pull = draw.standard_normal(shapes[0]).astype(np.float32)

    exact = [torch.from_numpy(array).double().requires_grad_() for array in (states, matrices, asks)]
    expected = exact[0]
    for hop in range(hops):
        expected = plain_hop(expected, exact[1][hop], exact[2][hop], pairs)
    torch.autograd.backward(expected, torch.from_numpy(pull).double())

    rows, vectors = states.reshape(-1, width), asks.reshape(hops, -1, width)
    gat = gat_states(hops, hops, len(rows), width, heads, pairs)
    gat_forward(rows, np.ascontiguousarray(matrices.swapaxes(1, 2)), vectors, pairs, gat)
    found = GatGradients(np.empty_like(rows), np.zeros_like(matrices), np.zeros_like(vectors))
    gat_backward(pull.reshape(-1, width), rows, (matrices, vectors), pairs, gat, found)
    wanted = [expected.detach(), *(tensor.grad for tensor in exact)]
    for mine, other in zip((gat.updated[-1], *found), wanted, strict=True):
        assert other is not None
        away = torch.from_numpy(mine).double().view_as(other) - other
        assert float(away.abs().max()) < 3e-5 * max(1.0, float(other.abs().max()))
