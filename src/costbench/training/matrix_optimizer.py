"""Optimisers that step the matrices of a network in a way of their own, and all else by Adam."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class MatrixOptimizer(torch.optim.AdamW, ABC):
    """Steps matrices along their `directions`, those of one shape together, and all else by Adam.

    Embeddings, of which a step reads few rows, and matrices of one row or column are left to Adam.

    Args:
        net: the network.
        lr: learning rate of all parameters.
        weight_decay: factor by which every step shrinks the weights, times the learning rate.
    """

    def __init__(self, net: nn.Module, *, lr: float, weight_decay: float) -> None:
        super().__init__(net.parameters(), lr=lr, weight_decay=weight_decay, fused=True)
        self._matrices = matrices_of(net)

    @abstractmethod
    def new_state(self, weight: nn.Parameter) -> dict[str, Tensor]:
        """Returns what is kept of a matrix between steps, before its first one."""

    @abstractmethod
    def directions(self, gradients: Tensor, states: list[dict[str, Tensor]]) -> Tensor:
        """Returns the directions in which matrices of one shape step, and updates their states.

        Args:
            gradients: their gradients [B, m, n].
            states: what is kept of each.
        """

    def rate_of(self, rate: float, weight: nn.Parameter) -> float:
        """Returns what the direction of a matrix is multiplied by, at the learning rate of the group."""
        return rate

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Makes one step, after `closure`, if there is one, has computed gradients; returns its loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        by_shape: dict[tuple[int, ...], list[nn.Parameter]] = {}
        for weight in self._matrices:
            if weight.grad is not None:
                by_shape.setdefault(tuple(weight.shape), []).append(weight)
        for weights in by_shape.values():
            self._step_matrices(weights)
        super().step()
        return loss

    def _step_matrices(self, weights: list[nn.Parameter]) -> None:
        """Steps matrices of one shape, and leaves Adam no gradients of them."""
        group = self.param_groups[0]
        rate, decay = group["lr"], group["weight_decay"]
        for weight in weights:
            if not self.state[weight]:
                # Adam looks for the number of steps where states are loaded.
                self.state[weight] |= {"step": torch.zeros(()), **self.new_state(weight)}
        gradients = torch.stack([weight.grad for weight in weights if weight.grad is not None])
        directions = self.directions(gradients, [self.state[weight] for weight in weights])
        for weight, direction in zip(weights, directions, strict=True):
            weight.mul_(1.0 - rate * decay).add_(direction, alpha=-self.rate_of(rate, weight))
            weight.grad = None


def matrices_of(net: nn.Module) -> list[nn.Parameter]:
    """Returns the parameters of two or more rows and columns, but no embeddings."""
    embeddings = {
        id(weight)
        for module in net.modules()
        if isinstance(module, nn.Embedding)
        for weight in module.parameters()
    }
    return [
        weight
        for weight in net.parameters()
        if weight.dim() == 2 and min(weight.shape) > 1 and id(weight) not in embeddings
    ]
