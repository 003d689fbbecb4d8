"""Runs a network on a CPU as a list of steps: fused kernels where there are any, torch modules elsewhere.

Consecutive fused kernels become one torch function: they pass NumPy arrays to each other, and autograd sees
only the inputs of the first and the output of the last. A fused kernel fills the caches with its data, so
that whatever Python and torch run next starts with cold caches: a few small tensors between two kernels cost
a hundredth of a training step (docs/notes/2026-11-25-speed-of-networks.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from costbench.arrays import F32
from costbench_kernels.gemm import aligned


class FusedKernel(ABC):
    """A forward and a backward kernel of a part of a network, on a CPU in float32, for one batch.

    Attributes:
        weights: tensors that it reads and returns gradients for; None in place of one that does not exist.
    """

    weights: Sequence[Tensor | None]

    @abstractmethod
    def forward(self, states: F32, keep: bool) -> F32:
        """Returns the part's output for states [N, C, H]; `keep` says whether `backward` will be called."""

    @abstractmethod
    def backward(self, gradient: F32) -> tuple[F32, Sequence[F32]]:
        """Returns the gradients of the states and of `weights`, in order; those for a None are ignored."""


Step = FusedKernel | Callable[[Tensor], Tensor]
"""A fused kernel, or ordinary torch where there is no kernel."""


def run_steps(states: Tensor, steps: Sequence[Step]) -> Tensor:
    """Runs the steps one after another on `states`, returns the last output; see the module for kernels."""
    for fused, group in groupby(steps, lambda step: isinstance(step, FusedKernel)):
        if fused:
            states = run_fused(states, [cast(FusedKernel, step) for step in group])
        else:
            for step in group:
                states = cast(Callable[[Tensor], Tensor], step)(states)
    return states


def run_fused(states: Tensor, kernels: Sequence[FusedKernel]) -> Tensor:
    """Runs kernels one after another on states [N, C, H] as one torch function and returns the output."""
    weights = [weight for kernel in kernels for weight in kernel.weights]
    inputs = (states, *(weight for weight in weights if weight is not None))
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        return cast(Tensor, _Fused.apply(states, kernels, *weights))  # type: ignore[no-untyped-call]
    return torch.from_numpy(_forward(states, kernels, keep=False))


def _forward(states: Tensor, kernels: Sequence[FusedKernel], *, keep: bool) -> F32:
    array = as_array(states)
    for kernel in kernels:
        array = kernel.forward(array, keep)
    return array


def as_array(tensor: Tensor) -> F32:
    """Returns a tensor as an array, which shares its memory if the tensor is contiguous."""
    return tensor.detach().contiguous().numpy()


def stack_matrices(weights: Sequence[Tensor]) -> F32:
    """Returns copies of L matrices [I, J] in one aligned array [L, I, J]."""
    height, width = weights[0].shape
    array = aligned(len(weights) * height, width).reshape(len(weights), height, width)
    return np.stack([as_array(weight) for weight in weights], out=array)


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, kernels: Sequence[FusedKernel], *weights: Tensor | None) -> Tensor:
        ctx.kernels = kernels
        output = torch.from_numpy(_forward(states, kernels, keep=True))
        ctx.save_for_backward(states, output, *weights)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        # Kernels hold views of these tensors' memory. Reading `saved_tensors` makes torch raise an error if
        # one of them has been modified since `forward`.
        _, _, *weights = ctx.saved_tensors
        array = as_array(gradient)
        d_weights: list[F32] = []
        for kernel in reversed(ctx.kernels):
            array, of_kernel = kernel.backward(array)
            d_weights = [*of_kernel, *d_weights]
        pairs = zip(weights, d_weights, strict=True)
        d_tensors = (None if weight is None else torch.from_numpy(d) for weight, d in pairs)
        return torch.from_numpy(array), None, *d_tensors
