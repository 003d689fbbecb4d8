from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from costbench.training.soap import Soap


def stepped(weight: nn.Parameter, optimizer: Soap, gradients: list[Tensor]) -> list[Tensor]:
    """Returns by how much each gradient moves the weight."""
    moves = []
    for gradient in gradients:
        before = weight.detach().clone()
        weight.grad = gradient.clone()
        optimizer.step()
        moves.append(weight.detach() - before)
    return moves


def one_matrix(rows: int, columns: int, rate: float) -> tuple[nn.Parameter, Soap]:
    net = nn.Linear(columns, rows, bias=False)
    nn.init.zeros_(net.weight)
    return net.weight, Soap(net, lr=rate, weight_decay=0.0)


def test_the_first_gradient_gives_bases_only_and_the_second_is_scaled_in_them() -> None:
    """Of diag(3, 1) the eigenvectors are the axes, in which a step is Adam's: weights move by the rate."""
    weight, optimizer = one_matrix(2, 2, 0.1)
    first, second = torch.diag(torch.tensor([3.0, 1.0])), torch.tensor([[1.0, -2.0], [0.5, 4.0]])
    moves = stepped(weight, optimizer, [first, second])
    torch.testing.assert_close(moves[0], torch.zeros(2, 2))
    torch.testing.assert_close(moves[1], -0.1 * second.sign())


def test_means_are_those_of_the_gradients_since_the_second() -> None:
    weight, optimizer = one_matrix(2, 2, 0.1)
    first, second, third = (
        torch.diag(torch.tensor([3.0, 1.0])),
        torch.full((2, 2), 2.0),
        torch.full((2, 2), -1.0),
    )
    moves = stepped(weight, optimizer, [first, second, third])
    # Means of 2 and -1, and of their squares, with weights 0.95 * 0.05 and 0.05.
    mean, square = (0.95 * 2.0 - 1.0) / 1.95, (0.95 * 4.0 + 1.0) / 1.95
    torch.testing.assert_close(moves[2], torch.full((2, 2), -0.1 * mean / math.sqrt(square)))


def test_steps_turn_with_the_gradients() -> None:
    """Where rows and columns are turned, Adam's steps differ, and these are turned alike."""
    draw = torch.Generator().manual_seed(3)
    gradients = [torch.randn(5, 5, generator=draw) for _ in range(23)]
    left, right = (torch.linalg.qr(torch.randn(5, 5, generator=draw))[0] for _ in range(2))
    moves = stepped(*one_matrix(5, 5, 0.1), gradients)
    turned = stepped(*one_matrix(5, 5, 0.1), [left @ gradient @ right.mT for gradient in gradients])
    assert min(float(move.norm()) for move in moves[1:]) > 0.1
    for move, other in zip(moves, turned, strict=True):
        torch.testing.assert_close(left @ move @ right.mT, other, atol=2e-3, rtol=0.0)


def test_matrices_of_one_shape_step_as_each_alone() -> None:
    draw = torch.Generator().manual_seed(4)
    net = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False))
    for layer in net:
        nn.init.zeros_(layer.weight)
    together = Soap(net, lr=0.1, weight_decay=0.0)
    alone = [one_matrix(4, 4, 0.1) for _ in net]
    for step in range(15):
        for k, layer in enumerate(net):
            # The second joins late.
            if step >= 3 * k:
                layer.weight.grad = torch.randn(4, 4, generator=draw)
                stepped(*alone[k], [layer.weight.grad])
        together.step()
        for layer, (weight, _) in zip(net, alone, strict=True):
            torch.testing.assert_close(layer.weight.detach(), weight.detach(), atol=1e-4, rtol=0.0)
