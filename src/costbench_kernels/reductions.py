"""Two reductions on a CPU: column-wise statistics in one pass, and attention with the fitting matrix library.

Statistics: the loops over nodes are compiled; what is left is of size [K, C, H] and done by torch.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from costbench.arrays import F32, I64
from costbench.execution.compiled import compiled
from costbench.models.execution import plain_products


@compiled
def sum_and_max(states: F32, starts: I64, total: F32, largest: F32, ties: F32) -> None:
    """Writes, for each column of a kernel's nodes, the sum, the maximum, and how many nodes reach it.

    The rows of a kernel are read once for all three. Kernel k has the nodes starts[k] to starts[k + 1].
    Shape: states [N, W]; total, largest and ties [K, W].
    """
    for k in range(len(total)):
        sums, maxima, counts = total[k], largest[k], ties[k]
        sums[:] = states[starts[k]]
        maxima[:] = states[starts[k]]
        counts[:] = 1.0
        for n in range(starts[k] + 1, starts[k + 1]):
            row = states[n]
            for w in range(len(row)):
                value, high, count = row[w], maxima[w], counts[w]
                sums[w] += value
                # A NaN wins against every number, as in torch (high != high: the maximum is NaN already).
                maxima[w] = high if value <= high or high != high else value
                count = np.float32(1.0) if value > high else count
                counts[w] = count + np.float32(1.0) if value == high else count


@compiled
def sum_and_max_gradient(states: F32, starts: I64, largest: F32, evenly: F32, shared: F32, out: F32) -> None:
    """out_n = evenly_k + (shared_k where states_n = largest_k, else 0), k the kernel of node n.

    Shape: largest, evenly and shared [K, W]; states and out [N, W].
    """
    for k in range(len(largest)):
        maxima, base, extra = largest[k], evenly[k], shared[k]
        for n in range(starts[k], starts[k + 1]):
            row, out_row = states[n], out[n]
            for w in range(len(row)):
                share = extra[w] if row[w] == maxima[w] else np.float32(0.0)
                out_row[w] = base[w] + share


def segment_statistics(states: Tensor, counts: tuple[int, ...], names: tuple[str, ...]) -> Tensor:
    """Returns the statistics of each kernel's nodes, concatenated: [N, C, H] to [K, C, H len(names)].

    Nodes that reach a maximum share its gradient evenly.

    Args:
        states: states of the nodes, kernel after kernel.
        counts: nodes of each kernel, at least one; they sum to N.
        names: one or more of max, mean and sum, none twice.
    """
    return cast(Tensor, _Statistics.apply(states, counts, names))  # type: ignore[no-untyped-call]


class _Statistics(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, counts: tuple[int, ...], names: tuple[str, ...]) -> Tensor:
        states = states.contiguous()
        starts = torch.zeros(len(counts) + 1, dtype=torch.int64)
        torch.cumsum(torch.tensor(counts), 0, out=starts[1:])
        shape = len(counts), *states.shape[1:]
        total, largest, ties = (states.new_empty(shape) for _ in range(3))
        arrays = (tensor.flatten(1).numpy() for tensor in (total, largest, ties))
        sum_and_max(states.flatten(1).numpy(), starts.numpy(), *arrays)
        shares = torch.diff(starts).to(states.dtype).reciprocal().view(-1, 1, 1)
        ctx.names = names
        ctx.save_for_backward(states, starts, largest, ties, shares)
        statistics = {"sum": total, "max": largest, "mean": total * shares}
        return torch.cat([statistics[name] for name in names], dim=2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        states, starts, largest, ties, shares = ctx.saved_tensors
        columns = dict(zip(ctx.names, gradient.chunk(len(ctx.names), dim=2), strict=True))
        zeros = torch.zeros_like(largest)
        evenly = columns.get("sum", zeros) + columns.get("mean", zeros) * shares
        shared = columns.get("max", zeros) / ties
        d_states = torch.empty_like(states)
        flat = (tensor.flatten(1).numpy() for tensor in (largest, evenly, shared, d_states))
        sum_and_max_gradient(states.flatten(1).numpy(), starts.numpy(), *flat)
        return d_states, None, None


def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Returns softmax(Q K^T / sqrt(d)) V for every sequence and head: three [B, heads, n, d] to one."""
    return cast(Tensor, _Attend.apply(queries, keys, values))  # type: ignore[no-untyped-call]


class _Attend(torch.autograd.Function):
    """Torch's attention, forward and backward with torch's default matrix library, fast on small products."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        needs_gradient = any(ctx.needs_input_grad)
        inputs = [tensor.detach().requires_grad_(needs_gradient) for tensor in (queries, keys, values)]
        with plain_products(), torch.set_grad_enabled(needs_gradient):
            attended = nn.functional.scaled_dot_product_attention(inputs[0], inputs[1], inputs[2])
        ctx.inputs, ctx.attended = inputs, attended
        return attended.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        with plain_products():
            return tuple(torch.autograd.grad(ctx.attended, ctx.inputs, gradient))
