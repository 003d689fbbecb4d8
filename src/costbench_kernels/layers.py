"""Feed-forward layers as fused kernels, and the steps that compute modules of `networks.layers` by them.

Loop order of a stack: blocks of rows, then layers. A block fits the innermost caches, so a layer reads there
what the layer before has written, and gradients between layers never go to memory. States [N, C, H] are read
as a matrix [N C, H], a node's C decisions next to each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from torch import Tensor

from costbench.arrays import F32, I64
from costbench.execution.compiled import compiled
from costbench.models.networks.layers import FeedForward, FeedForwardStack, JoinedFeedForward, apply_layers
from costbench.models.networks.reductions import Head
from costbench_kernels.gemm import (
    BLOCK_ROWS,
    add_gathered_gradient,
    aligned,
    aligned_zeros,
    all_units,
    chunk_end,
    find_active_units,
    gathered_product,
    gathered_product_masked,
    gathered_product_relu,
    relu_gradient,
    transpose_all,
)
from costbench_kernels.steps import FusedKernel, Step, as_array, stack_matrices


@compiled
def stack_forward(rows: F32, weights: F32, configs: int) -> F32:
    """Returns the outputs of all layers: y_l = relu(y_(l-1) weights_l^T), where y_(-1) is `rows`.

    Shape: rows [R, H] of `configs` decisions per node, weights [L, H, H] ([outputs, inputs]) to [L, R, H].
    """
    count, width = weights.shape[:2]
    outputs = aligned(count * len(rows), width).reshape(count, len(rows), width)
    matrices, units, start = transpose_all(weights), all_units(width), 0
    while start < len(rows):
        end = chunk_end(start, len(rows), configs)
        x = rows
        for layer in range(count):
            active = find_active_units(x, start, end - start, configs, units)
            gathered_product_relu((x, start), matrices[layer], (outputs[layer], start), end - start, active)
            x = outputs[layer]
        start = end
    return outputs


@compiled
def stack_backward(gradient: F32, rows: F32, outputs: F32, weights: F32, configs: int) -> tuple[F32, F32]:
    """Returns the gradients of the rows [R, H] and the weights [L, H, H] of `stack_forward`.

    `gradient` is that of the last layer's output, [R, H]; the others are as in `stack_forward`. Blocks are
    outside of layers here, too: the gradients between two layers are two buffers that take turns.
    """
    count, width = weights.shape[:2]
    d_output, d_input = aligned(BLOCK_ROWS, width), aligned(BLOCK_ROWS, width)
    d_rows = aligned(*rows.shape)
    d_weights = aligned_zeros(count * width, width).reshape(weights.shape)
    units, start = all_units(width), 0
    while start < len(rows):
        end = chunk_end(start, len(rows), configs)
        size = end - start
        relu_gradient(gradient, start, outputs[count - 1], start, size, d_output)
        for layer in range(count - 1, -1, -1):
            active = find_active_units(d_output, 0, size, configs, units)
            if layer:
                x = outputs[layer - 1], start
                add_gathered_gradient((d_output, 0), x, size, d_weights[layer], active)
                gathered_product_masked((d_output, 0), weights[layer], (d_input, 0), size, x, active)
                d_output, d_input = d_input, d_output
            else:
                add_gathered_gradient((d_output, 0), (rows, start), size, d_weights[0], active)
                gathered_product((d_output, 0), weights[0], (d_rows, start), size, active)
        start = end
    return d_rows, d_weights


class StackKernel(FusedKernel):
    """Computes relu(W_n ... relu(W_1 x)) over the last axis of the states."""

    weights: Sequence[Tensor]

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.weights = weights

    def forward(self, states: F32, keep: bool) -> F32:
        """See `steps.FusedKernel`."""
        self._rows = states.reshape(-1, states.shape[-1])
        self._matrices = stack_matrices(self.weights)
        self._configs = states.shape[-2]
        self._outputs = stack_forward(self._rows, self._matrices, self._configs)
        last: F32 = self._outputs[-1].reshape(states.shape)
        return last

    def backward(self, gradient: F32) -> tuple[F32, list[F32]]:
        """See `steps.FusedKernel`."""
        d_outputs = gradient.reshape(self._rows.shape)
        d_rows, d_weights = stack_backward(
            d_outputs, self._rows, self._outputs, self._matrices, self._configs
        )
        return d_rows.reshape(gradient.shape), list(d_weights)


@compiled
def join(own: F32, joined: F32, kernel_of_node: I64, out: F32) -> None:
    """out_nc = relu(own_n + joined_kc), k the kernel of n: own [N, H], joined [K, C, H], out [N, C, H].

    Every state is read and written once, where torch would pass over memory once per operation.
    """
    for n in range(len(out)):
        own_row, joined_rows, out_rows = own[n], joined[kernel_of_node[n]], out[n]
        for c in range(out.shape[1]):
            out_row, joined_row = out_rows[c], joined_rows[c]
            for h in range(len(out_row)):
                value = own_row[h] + joined_row[h]
                out_row[h] = np.float32(0.0) if value < 0.0 else value


@compiled
def join_gradient(d: F32, out: F32, kernel_of_node: I64, d_own: F32, d_joined: F32) -> None:
    """Adds the gradients of the arguments of `join` to `d_own` [N, H] and `d_joined` [K, C, H].

    `d` is the gradient of `out`; it passes where `out` is above 0. A NaN lets it pass, as in torch.
    """
    for n in range(len(out)):
        d_own_row, d_joined_rows, out_rows, d_rows = d_own[n], d_joined[kernel_of_node[n]], out[n], d[n]
        for c in range(out.shape[1]):
            out_row, d_row, d_joined_row = out_rows[c], d_rows[c], d_joined_rows[c]
            for h in range(len(out_row)):
                value = np.float32(0.0) if out_row[h] <= 0.0 else d_row[h]
                d_own_row[h] += value
                d_joined_row[h] += value


class JoinKernel(FusedKernel):
    """Computes relu(own + joined[kernel_of_row]): own [N, 1, H] and joined [K, C, H] to [N, C, H]."""

    weights: Sequence[Tensor]

    def __init__(self, joined: Tensor, kernel_of_row: Tensor) -> None:
        self.weights = [joined]
        self._kernel_of_row = kernel_of_row.numpy()

    def forward(self, states: F32, keep: bool) -> F32:
        """See `steps.FusedKernel`."""
        joined = as_array(self.weights[0])
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


def join_steps(module: JoinedFeedForward, joined: Tensor, kernel_of_row: Tensor, configs: int) -> list[Step]:
    """Returns the steps of a joined feed-forward module over states [N, configs, inputs].

    There is a kernel only for one state per node that is joined by features of several decisions: then the
    sum [N, C, H] is much larger than its terms.
    """
    if module.joined is None or configs > 1 or joined.shape[1] == 1:
        return [lambda states: module(states, joined, kernel_of_row)]
    steps: list[Step] = [module.own, JoinKernel(module.joined(joined), kernel_of_row)]
    if not module.more and not is_dropout_active(module.dropout):
        return steps
    return [*steps, lambda states: apply_layers(module.dropout(states), module.more, module.dropout)]


def stack_steps(stack: FeedForwardStack) -> list[Step]:
    """Returns the steps of consecutive feed-forward modules over states [N, C, H]."""
    layers = [cast(FeedForward, layer) for layer in stack]
    if any(len(layer.more) or is_dropout_active(layer.dropout) for layer in layers):
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


def is_dropout_active(dropout: torch.nn.Dropout) -> bool:
    """Returns whether a dropout layer changes states: in training mode, with a probability above 0."""
    return dropout.training and dropout.p > 0.0
