"""The Transformer reduction on a CPU: attention runs kernel by kernel, without padding or masks.

Rows are sorted by kernel, then decision, then node. Linear layers run over the rows of the whole batch;
attention is one call per kernel over its decisions and heads, which are views of its rows. Torch computes
attention in blocks, so memory grows with the number of nodes and not with its square.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from costbench.models.execution import plain_products
from costbench.models.networks.transformer import EncoderLayer, KernelTransformer


def kernel_transformer(module: KernelTransformer, states: Tensor, node_counts: Sequence[int]) -> Tensor:
    """Returns what `module` computes: states [N, C, hidden] to sums over the nodes [K, C, hidden]."""
    configs, width = states.shape[1:]
    parts = torch.split(states, list(node_counts))
    rows = torch.cat([part.transpose(0, 1).reshape(-1, width) for part in parts])
    for layer in module.layers:
        rows = _layer(cast(EncoderLayer, layer), rows, node_counts, configs)
    blocks = torch.split(rows, [count * configs for count in node_counts])
    return torch.stack([block.view(configs, -1, width).sum(dim=1) for block in blocks])


def _layer(layer: EncoderLayer, rows: Tensor, node_counts: Sequence[int], configs: int) -> Tensor:
    """Returns the output of one encoder layer for rows [N C, hidden]."""
    projected = layer.attention_inputs(rows)
    width = rows.shape[1]
    attended = []
    for block in torch.split(projected, [count * configs for count in node_counts]):
        heads = block.view(configs, -1, 3, layer.heads, width // layer.heads).permute(2, 0, 3, 1, 4)
        attended.append(attend(*heads.unbind(0)).transpose(1, 2).reshape(-1, width))
    return layer.transform(rows, torch.cat(attended))


def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Returns softmax(Q K^T / sqrt(d)) V for every decision and head: three [C, heads, n, d] to one."""
    return cast(Tensor, _Attend.apply(queries, keys, values))  # type: ignore[no-untyped-call]


class _Attend(torch.autograd.Function):
    """Torch's attention, forward and backward with torch's default matrix library, fast on small products."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        needs_gradient = any(ctx.needs_input_grad)
        own = [tensor.detach().requires_grad_(needs_gradient) for tensor in (queries, keys, values)]
        with plain_products(), torch.set_grad_enabled(needs_gradient):
            attended = nn.functional.scaled_dot_product_attention(own[0], own[1], own[2])
        ctx.own, ctx.attended = own, attended
        return attended.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        with plain_products():
            return tuple(torch.autograd.grad(ctx.attended, ctx.own, gradient))
