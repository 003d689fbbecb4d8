from __future__ import annotations

import numpy as np
import pytest
import torch

from costbench.models.batch.edges import Edges, SumMatrix
from costbench.models.kernels.sage.hops import HopWeights, sage_hop

INCOMING = np.array([[1, 2, 2], [0, 0, 1]])
OUTGOING = np.array([[0, 0, 1], [1, 2, 2]])


def edges(directed: bool) -> Edges:
    built = Edges.build(INCOMING, OUTGOING, num_nodes=3)
    return built if directed else built.undirected()


def weights(directed: bool, width: int = 3) -> HopWeights:
    generator = torch.Generator().manual_seed(0)
    forth, back, update = (
        torch.randn(width, size, generator=generator, dtype=torch.float64)
        for size in (width, width, 2 * width)
    )
    return HopWeights(forth, back if directed else None, update)


def test_hop_by_hand() -> None:
    # Width 1, one decision, states (1, 2, 3), all means. F = 1, B = 10, U = (100, 1).
    matrix = SumMatrix(edges(directed=True), mean=True)
    one = HopWeights(torch.tensor([[1.0]]), torch.tensor([[10.0]]), torch.tensor([[100.0, 1.0]]))
    states = torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1)
    # 0 hears consumers 1 and 2: (20 + 30) / 2; 1 hears 0 and 2: 1 + 30; 2 hears 0 and 1: (1 + 2) / 2.
    assert sage_hop(states, one, matrix).flatten().tolist() == [125.0, 231.0, 301.5]


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("mean", [True, False])
def test_gradient(directed: bool, mean: bool) -> None:
    matrix = SumMatrix(edges(directed), mean)
    torch.manual_seed(1)
    states = torch.randn(3, 2, 3, dtype=torch.float64, requires_grad=True)
    leaves = [None if w is None else w.requires_grad_() for w in weights(directed)]

    def hop(states: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        filled = iter(given)
        return sage_hop(states, HopWeights(*(None if w is None else next(filled) for w in leaves)), matrix)

    assert torch.autograd.gradcheck(hop, (states, *(w for w in leaves if w is not None)))
