"""SOAP: Adam in the directions in which the gradients of a matrix vary, with Adam for all that is no matrix.

Adam scales every weight by the size of its own gradients, though the gradients of a matrix vary along few
directions, which are sums of many weights. SOAP scales along these: it keeps the mean of G G^T and G^T G, and
Adam's mean squares in the bases of their eigenvectors.

Source: Vyas et al., "SOAP: Improving and stabilizing Shampoo using Adam" (2024), algorithm 3.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from costbench.training.matrix_optimizer import MatrixOptimizer

_KEPT = 0.95
"""Share of every running mean that a step keeps."""
_STEPS_PER_BASIS = 10
_EPSILON = 1e-8


class Soap(MatrixOptimizer):
    """Steps the matrices of a network by SOAP, and its other parameters by Adam.

    With G_t the gradient of a matrix W [m, n], and P [m, m] and Q [n, n] the eigenvectors of the running
    means of G G^T and G^T G, computed after the first and then every tenth step,

    M_t = 0.95 M_{t-1} + 0.05 P^T G_t Q,    V_t = 0.95 V_{t-1} + 0.05 (P^T G_t Q)^2,
    W <- (1 - rate decay) W - rate P (M_t / (sqrt(V_t) + 1e-8)) Q^T,

    squares, root and quotient being those of elements, and M_t and V_t divided by 1 - 0.95^t. M_t turns
    with the bases. The first gradient, which is diagonal in its own bases, gives these only, and t counts
    from the second.
    """

    def new_state(self, weight: nn.Parameter) -> dict[str, Tensor]:
        rows, columns = weight.shape
        return {
            "momentum": torch.zeros_like(weight),
            "squares": torch.zeros_like(weight),
            "left": weight.new_zeros(rows, rows),
            "right": weight.new_zeros(columns, columns),
            "left_basis": weight.new_zeros(rows, rows),
            "right_basis": weight.new_zeros(columns, columns),
        }

    def directions(self, gradients: Tensor, states: list[dict[str, Tensor]]) -> Tensor:
        means = {name: torch.stack([state[name] for state in states]) for name in states[0]}
        # Of one shape, but not of one age, if a batch did not reach one of them.
        steps = means["step"].to(gradients.device)[:, None, None]
        left, right = means["left_basis"], means["right_basis"]
        # In the bases of the first step, zeros, nothing moves.
        inside = left.mT @ gradients @ right
        means["momentum"].lerp_(inside, 1.0 - _KEPT)
        means["squares"].lerp_(inside.square_(), 1.0 - _KEPT)
        means["left"].lerp_(gradients @ gradients.mT, 1.0 - _KEPT)
        means["right"].lerp_(gradients.mT @ gradients, 1.0 - _KEPT)
        weights = (1.0 - _KEPT**steps).clamp(min=1.0 - _KEPT)
        scaled = means["momentum"] / weights / ((means["squares"] / weights).sqrt() + _EPSILON)
        directions = left @ scaled @ right.mT
        due = (means["step"] % _STEPS_PER_BASIS == 0).to(gradients.device)
        if due.any():
            momentum = left @ means["momentum"] @ right.mT
            # In place, so that `left` and `right` are the new ones.
            for side in ("left", "right"):
                # Gradients that are not finite have no eigenvectors; they end the training after the epoch.
                finite = means[side][due].nan_to_num(0.0, 0.0, 0.0)
                means[f"{side}_basis"][due] = torch.linalg.eigh(finite).eigenvectors
            means["momentum"][due] = (left.mT @ momentum @ right)[due]
        means["step"] += 1.0
        for k, state in enumerate(states):
            for name, values in means.items():
                state[name].copy_(values[k])
        return directions
