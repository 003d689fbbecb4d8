"""The column-wise reduction's statistics as a torch function: max, mean and sum over kernels' nodes.

The loops over nodes are compiled (`elementwise.sum_and_max`); what is left is of size [K, C, H] and done by
torch.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from costbench.models.kernels.elementwise import sum_and_max, sum_and_max_gradient


def segment_statistics(states: Tensor, counts: tuple[int, ...], names: tuple[str, ...]) -> Tensor:
    """Returns the statistics of each kernel's nodes, concatenated: [N, C, H] to [K, C, H len(names)].

    Nodes that reach a maximum share its gradient evenly.

    Args:
        states: of the nodes, kernel after kernel.
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
        found = {"sum": total, "max": largest, "mean": total * shares}
        return torch.cat([found[name] for name in names], dim=2)

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
