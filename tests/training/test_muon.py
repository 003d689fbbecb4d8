from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from costbench.training.muon import Muon, orthogonalize


@pytest.mark.parametrize("shape", [(2, 6, 6), (1, 4, 9), (3, 9, 4)])
def test_singular_values_become_about_one_and_singular_vectors_stay(shape: tuple[int, int, int]) -> None:
    draw = torch.Generator().manual_seed(1)
    matrices = torch.randn(shape, generator=draw)
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    # In the bases of the singular vectors what comes out is diagonal.
    inside = left.mT @ orthogonalize(matrices) @ right.mT
    values = inside.diagonal(dim1=1, dim2=2)
    assert float(values.min()) > 0.6
    assert float(values.max()) < 1.3
    torch.testing.assert_close(inside, torch.diag_embed(values), atol=1e-4, rtol=0.0)


def test_a_matrix_of_zeros_stays_zero() -> None:
    assert torch.equal(orthogonalize(torch.zeros(1, 3, 3)), torch.zeros(1, 3, 3))


def test_matrices_step_as_by_torch_but_for_its_precision() -> None:
    torch.manual_seed(2)
    theirs, ours = (copy.deepcopy(nn.Linear(7, 12, bias=False)) for _ in range(2))
    ours.load_state_dict(theirs.state_dict())
    optimizers = [
        torch.optim.Muon(theirs.parameters(), lr=0.02, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        Muon(ours, lr=0.02, weight_decay=0.1),
    ]
    start = theirs.weight.detach().clone()
    inputs, wanted = torch.randn(20, 7), torch.randn(20, 12)
    for net, optimizer in zip((theirs, ours), optimizers, strict=True):
        for _ in range(3):
            optimizer.zero_grad()
            (net(inputs) - wanted).square().mean().backward()
            optimizer.step()
    moved = float((theirs.weight - start).detach().norm())
    assert float((theirs.weight - ours.weight).detach().norm()) < 0.03 * moved
