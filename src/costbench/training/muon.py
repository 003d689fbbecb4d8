"""Muon: gradient steps whose matrices are made orthogonal, with Adam for all that is no matrix.

The gradients of a layer's weights are nearly of low rank, so that steps along them move few directions. Muon
replaces the running mean of a matrix's gradients by the orthogonal matrix closest to it, in which all
directions count alike. `torch.optim.Muon` does the same to one matrix after another and in bfloat16. Here
matrices of one shape go through the iteration together and in float32: on processors it costs two fifths, and
equal runs give equal bytes.

Source: Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024); scale of the steps
by Liu et al., "Muon is scalable for LLM training" (2025), section 2.2, so that rates are those of Adam.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

_MOMENTUM = 0.95
_ITERATIONS = 5
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_SMALLEST_NORM = 1e-7
_RMS_OF_ADAM = 0.2
"""Root mean square of a step of Adam at rate 1, as it is in long trainings."""


class Muon(torch.optim.AdamW):
    """Steps the matrices of a network by Muon, and its other parameters by Adam.

    With G_t the gradient of a matrix W [m, n] and M_t = 0.95 M_{t-1} + 0.05 G_t,

    W <- (1 - rate decay) W - 0.2 rate sqrt(max(m, n)) orthogonal(0.05 G_t + 0.95 M_t).

    Embeddings, of which a step reads few rows, and matrices of one row or column are left to Adam.

    Args:
        net: the network.
        lr: learning rate of all parameters.
        weight_decay: factor by which every step shrinks the weights, times the learning rate.
    """

    def __init__(self, net: nn.Module, *, lr: float, weight_decay: float) -> None:
        super().__init__(net.parameters(), lr=lr, weight_decay=weight_decay, fused=True)
        self._matrices = orthogonal_parameters(net)

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
        directions = []
        for weight in weights:
            state = self.state[weight]
            if not state:
                # Adam looks for the number of steps where states are loaded.
                state |= {"step": torch.zeros(()), "momentum": torch.zeros_like(weight)}
            assert weight.grad is not None
            momentum = state["momentum"].lerp_(weight.grad, 1.0 - _MOMENTUM)
            directions.append(weight.grad.lerp(momentum, _MOMENTUM))
            weight.grad = None
        scale = rate * _RMS_OF_ADAM * math.sqrt(max(weights[0].shape))
        for weight, direction in zip(weights, orthogonalize(torch.stack(directions)), strict=True):
            weight.mul_(1.0 - rate * decay).add_(direction, alpha=-scale)


def orthogonal_parameters(net: nn.Module) -> list[nn.Parameter]:
    """Returns the parameters that Muon steps: matrices of two or more rows and columns, but no embeddings."""
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


def orthogonalize(matrices: Tensor) -> Tensor:
    """Returns matrices of the same singular vectors, whose singular values are about 1 (0.7 to 1.2).

    Five iterations X <- a X + b (X X^T) X + c (X X^T)^2 X by Newton and Schulz, from X of Frobenius norm 1;
    its coefficients make small singular values grow fastest.

    Shape: [B, m, n] kept.
    """
    a, b, c = _COEFFICIENTS
    # The product X X^T is the smaller one of the two that would do.
    tall = matrices.shape[1] > matrices.shape[2]
    states = (matrices.mT if tall else matrices).float()
    states = states / states.norm(dim=(1, 2), keepdim=True).clamp(min=_SMALLEST_NORM)
    for _ in range(_ITERATIONS):
        gram = states @ states.mT
        states = torch.baddbmm(states, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), states, beta=a)
    return states.mT if tall else states
