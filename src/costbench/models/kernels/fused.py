"""Compiled passes one after another, as one differentiable operation.

After a pass the caches are full of numbers. What torch and Python do next starts cold, and a few small
tensors between two passes cost as much as a hundredth of a training step. So neighbouring parts of a network
hand arrays to each other, and torch sees what goes in and what comes out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from costbench.models.kernels.feed_forward import aligned

FloatArray = npt.NDArray[np.float32]


class Pass(Protocol):
    """A part of a network on a CPU in float32, with its gradient written out, for one batch."""

    @property
    def weights(self) -> Sequence[Tensor | None]:
        """Tensors that it reads and has gradients for; None where one is left out."""
        ...

    def forward(self, states: FloatArray, keep: bool) -> FloatArray:
        """What it makes of states [N, C, H]; `keep` says whether `backward` will follow."""
        ...

    def backward(self, gradient: FloatArray) -> tuple[FloatArray, Sequence[FloatArray]]:
        """Gradients of the states and of the weights, in their order; those of a None do not matter."""
        ...


def run_passes(states: Tensor, passes: Sequence[Pass]) -> Tensor:
    """The passes one after another over states [N, C, H]; without any, the states."""
    if not passes:
        return states
    weights = [weight for part in passes for weight in part.weights]
    known = (states, *(weight for weight in weights if weight is not None))
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in known):
        return cast(Tensor, _Passes.apply(states, passes, *weights))  # type: ignore[no-untyped-call]
    return torch.from_numpy(_forward(states, passes, keep=False))


def _forward(states: Tensor, passes: Sequence[Pass], *, keep: bool) -> FloatArray:
    array = array_of(states)
    for part in passes:
        array = part.forward(array, keep)
    return array


def array_of(weight: Tensor) -> FloatArray:
    """The numbers of a weight where they lie."""
    return weight.detach().contiguous().numpy()


def stacked(weights: Sequence[Tensor]) -> FloatArray:
    """Copies of matrices of one shape [L, I, J], `layer_passes.aligned`."""
    height, width = weights[0].shape
    array = aligned(len(weights) * height, width).reshape(len(weights), height, width)
    return np.stack([array_of(weight) for weight in weights], out=array)


class _Passes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, passes: Sequence[Pass], *weights: Tensor | None) -> Tensor:
        ctx.passes = passes
        found = torch.from_numpy(_forward(states, passes, keep=True))
        ctx.save_for_backward(states, found, *weights)
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        # Refused if one was changed since: passes hold the arrays of these tensors.
        _, _, *weights = ctx.saved_tensors
        array = array_of(gradient)
        d_weights: list[FloatArray] = []
        for part in reversed(ctx.passes):
            array, found = part.backward(array)
            d_weights = [*found, *d_weights]
        told = zip(weights, d_weights, strict=True)
        found_for = (None if weight is None else torch.from_numpy(d) for weight, d in told)
        return torch.from_numpy(array), None, *found_for
