from __future__ import annotations

import numpy as np
import pytest
import torch

from costbench.models.edges import Edges
from costbench_kernels.attention import GatKernel, attention_pairs
from costbench_kernels.steps import run_fused


def edges() -> Edges:
    """A diamond: 0 -> 1, 0 -> 2, 1 -> 3, 2 -> 3."""
    incoming, outgoing = [[1, 2, 3, 3], [0, 0, 1, 2]], [[0, 0, 1, 2], [1, 2, 3, 3]]
    return Edges.build(np.array(incoming), np.array(outgoing), num_nodes=4)


@pytest.mark.parametrize(
    ("directed", "senders"),
    [
        (True, [{0}, {0, 1, 2}, {0, 1}, {1, 3}, {0, 2}, {2, 3}, {1, 2, 3}, {3}]),
        (False, [{0, 1, 2}, {0, 1, 3}, {0, 2, 3}, {1, 2, 3}]),
    ],
)
def test_producers_and_consumers_are_apart_or_together(directed: bool, senders: list[set[int]]) -> None:
    pairs = attention_pairs(edges(), 32, directed=directed)
    assert [set(part.tolist()) for part in np.split(pairs.senders, pairs.starts[1:-1])] == senders
    assert pairs.groups.tolist() == [0, 4]


def test_nobody_may_change_what_the_gradient_needs() -> None:
    states = torch.ones(4, 2, 64, requires_grad=True)
    weights = [torch.eye(64), torch.eye(64), *(torch.ones(4, 16) for _ in range(4))]
    out = run_fused(states, [GatKernel(weights, 1, attention_pairs(edges(), 2, directed=True))])
    out.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.backward(out.sum())
