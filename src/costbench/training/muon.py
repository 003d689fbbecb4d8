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

import torch
from torch import Tensor, nn

from costbench.training.matrix_optimizer import MatrixOptimizer

_MOMENTUM = 0.95
_ITERATIONS = 5
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_SMALLEST_NORM = 1e-7
_RMS_OF_ADAM = 0.2
"""Root mean square of a step of Adam at rate 1, as it is in long trainings."""


class Muon(MatrixOptimizer):
    """Steps the matrices of a network by Muon, and its other parameters by Adam.

    With G_t the gradient of a matrix W [m, n] and M_t = 0.95 M_{t-1} + 0.05 G_t,

    W <- (1 - rate decay) W - 0.2 rate sqrt(max(m, n)) orthogonal(0.05 G_t + 0.95 M_t).
    """

    def new_state(self, weight: nn.Parameter) -> dict[str, Tensor]:
        return {"momentum": torch.zeros_like(weight)}

    def directions(self, gradients: Tensor, states: list[dict[str, Tensor]]) -> Tensor:
        momenta = [
            state["momentum"].lerp_(gradient, 1.0 - _MOMENTUM)
            for state, gradient in zip(states, gradients, strict=True)
        ]
        return orthogonalize(gradients.lerp(torch.stack(momenta), _MOMENTUM))

    def rate_of(self, rate: float, weight: nn.Parameter) -> float:
        return rate * _RMS_OF_ADAM * math.sqrt(max(weight.shape))


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
