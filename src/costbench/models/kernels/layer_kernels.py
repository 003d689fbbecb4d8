"""Feed-forward layers as fused kernels, and the steps that compute modules of `networks.layers` by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from costbench.arrays import F32
from costbench.models.kernels.elementwise import join, join_gradient
from costbench.models.kernels.feed_forward import aligned, stack_backward, stack_forward
from costbench.models.kernels.steps import FusedKernel, Step, array_of, stacked
from costbench.models.networks.layers import FeedForward, FeedForwardStack, JoinedFeedForward, apply_layers
from costbench.models.networks.reductions import Head


class JoinKernel(FusedKernel):
    """Computes relu(own + joined[kernel_of_row]): own [N, 1, H] and joined [K, C, H] to [N, C, H]."""

    weights: Sequence[Tensor]

    def __init__(self, joined: Tensor, kernel_of_row: Tensor) -> None:
        self.weights = [joined]
        self._kernel_of_row = kernel_of_row.numpy()

    def forward(self, states: F32, keep: bool) -> F32:
        """See `steps.FusedKernel`."""
        joined = array_of(self.weights[0])
        out = aligned(len(states) * joined.shape[1], joined.shape[2]).reshape(len(states), *joined.shape[1:])
        join(states[:, 0], joined, self._kernel_of_row, out)
        self._out = out
        return out

    def backward(self, gradient: F32) -> tuple[F32, list[F32]]:
        """See `steps.FusedKernel`."""
        d_own = np.zeros((len(gradient), 1, gradient.shape[2]), np.float32)
        d_joined = np.zeros(self.weights[0].shape, np.float32)
        join_gradient(gradient, self._out, self._kernel_of_row, d_own[:, 0], d_joined)
        return d_own, [d_joined]


class StackKernel(FusedKernel):
    """Computes relu(W_n ... relu(W_1 x)) over the last axis of the states."""

    weights: Sequence[Tensor]

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.weights = weights

    def forward(self, states: F32, keep: bool) -> F32:
        """See `steps.FusedKernel`."""
        self._rows = states.reshape(-1, states.shape[-1])
        self._stacked = stacked(self.weights)
        self._configs = states.shape[-2]
        self._outputs = stack_forward(self._rows, self._stacked, self._configs)
        last: F32 = self._outputs[-1].reshape(states.shape)
        return last

    def backward(self, gradient: F32) -> tuple[F32, list[F32]]:
        """See `steps.FusedKernel`."""
        d_outputs = gradient.reshape(self._rows.shape)
        d_rows, d_weights = stack_backward(d_outputs, self._rows, self._outputs, self._stacked, self._configs)
        return d_rows.reshape(gradient.shape), list(d_weights)


def join_steps(module: JoinedFeedForward, joined: Tensor, kernel_of_row: Tensor, configs: int) -> list[Step]:
    """Returns the steps of a joined feed-forward module over states [N, configs, inputs].

    There is a kernel only for one state per node that is joined by features of several decisions: then the
    sum
    [N, C, H] is much larger than its terms.
    """
    if module.joined is None or configs > 1 or joined.shape[1] == 1:
        return [lambda states: module(states, joined, kernel_of_row)]
    steps: list[Step] = [module.own, JoinKernel(module.joined(joined), kernel_of_row)]
    if not module.more and not drops(module.dropout):
        return steps
    return [*steps, lambda states: apply_layers(module.dropout(states), module.more, module.dropout)]


def stack_steps(stack: FeedForwardStack) -> list[Step]:
    """Returns the steps of consecutive feed-forward modules over states [N, C, H]."""
    layers = [cast(FeedForward, layer) for layer in stack]
    if any(len(layer.more) or drops(layer.dropout) for layer in layers):
        return [stack]
    return [StackKernel([layer.first.weight for layer in layers])] if layers else []


def head_steps(head: Head, joined: Tensor, kernel_of_row: Tensor | None, configs: int) -> list[Step]:
    """Returns the steps from embeddings [R, configs, width] to costs [R, configs or those of `joined`]."""
    steps: list[Step] = []
    if head.join is not None:
        module = head.join
        if kernel_of_row is None:
            steps = [lambda embeddings: module(embeddings, joined)]
        else:
            steps = join_steps(module, joined, kernel_of_row, configs)
        steps = [*steps, *stack_steps(head.more)]
    return [*steps, lambda embeddings: head.cost(embeddings).squeeze(-1)]


def drops(dropout: torch.nn.Dropout) -> bool:
    """Whether a dropout layer is active: in training mode, with a probability above 0."""
    return dropout.training and dropout.p > 0.0
