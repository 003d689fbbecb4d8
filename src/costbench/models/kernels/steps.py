"""Steps of a network on a CPU: fused kernels, one after another as one differentiable operation, and torch.

After a fused kernel the caches are full of numbers. What torch and Python do next starts cold, and a few
small tensors between two kernels cost as much as a hundredth of a training step. So neighbouring kernels hand
arrays to each other, and torch sees what goes in and what comes out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from costbench.models.kernels.feed_forward import aligned

FloatArray = npt.NDArray[np.float32]


class FusedKernel(ABC):
    """A forward and a backward kernel of a part of a network, on a CPU in float32, for one batch.

    Attributes:
        weights: tensors that it reads and has gradients for; None where one is left out.
    """

    weights: Sequence[Tensor | None]

    @abstractmethod
    def forward(self, states: FloatArray, keep: bool) -> FloatArray:
        """The part's output for states [N, C, H]; `keep` says whether `backward` will follow."""

    @abstractmethod
    def backward(self, gradient: FloatArray) -> tuple[FloatArray, Sequence[FloatArray]]:
        """Gradients of the states and of the weights, in their order; those of a None are ignored."""


Step = FusedKernel | Callable[[Tensor], Tensor]
"""A fused kernel, or ordinary torch where there is no kernel."""


def run_steps(states: Tensor, steps: Sequence[Step]) -> Tensor:
    """The output of the last step, the first one being given `states`; neighbouring kernels run as one."""
    for fused, group in groupby(steps, lambda step: isinstance(step, FusedKernel)):
        if fused:
            states = run_fused(states, [cast(FusedKernel, step) for step in group])
        else:
            for step in group:
                states = cast(Callable[[Tensor], Tensor], step)(states)
    return states


def run_fused(states: Tensor, kernels: Sequence[FusedKernel]) -> Tensor:
    """The output of kernels one after another over states [N, C, H]."""
    weights = [weight for kernel in kernels for weight in kernel.weights]
    inputs = (states, *(weight for weight in weights if weight is not None))
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        return cast(Tensor, _Fused.apply(states, kernels, *weights))  # type: ignore[no-untyped-call]
    return torch.from_numpy(_forward(states, kernels, keep=False))


def _forward(states: Tensor, kernels: Sequence[FusedKernel], *, keep: bool) -> FloatArray:
    array = array_of(states)
    for kernel in kernels:
        array = kernel.forward(array, keep)
    return array


def array_of(tensor: Tensor) -> FloatArray:
    """The numbers of a contiguous tensor where they lie, of another one a copy."""
    return tensor.detach().contiguous().numpy()


def stacked(weights: Sequence[Tensor]) -> FloatArray:
    """Copies of matrices of one shape, `feed_forward.aligned`: [L, I, J]."""
    height, width = weights[0].shape
    array = aligned(len(weights) * height, width).reshape(len(weights), height, width)
    return np.stack([array_of(weight) for weight in weights], out=array)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, kernels: Sequence[FusedKernel], *weights: Tensor | None) -> Tensor:
        ctx.kernels = kernels
        output = torch.from_numpy(_forward(states, kernels, keep=True))
        ctx.save_for_backward(states, output, *weights)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        # Torch refuses if one was changed since: kernels hold the arrays of these tensors.
        _, _, *weights = ctx.saved_tensors
        array = array_of(gradient)
        d_weights: list[FloatArray] = []
        for kernel in reversed(ctx.kernels):
            array, of_kernel = kernel.backward(array)
            d_weights = [*of_kernel, *d_weights]
        pairs = zip(weights, d_weights, strict=True)
        d_tensors = (None if weight is None else torch.from_numpy(d) for weight, d in pairs)
        return torch.from_numpy(array), None, *d_tensors
