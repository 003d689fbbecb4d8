"""A Transformer encoder over the nodes of each kernel, every decision by itself.

Rows lie kernel by kernel, within a kernel decision by decision, within a decision node by node: all products
run over the rows of the whole batch, and the attention of a kernel is one call over its decisions and heads,
without padding or masks. Attention is computed in blocks, so memory grows with the nodes and not with their
square. There is no position code: the order of nodes does not matter.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from costbench.models.execution import plain_products
from costbench.models.net_spec import NetSpec


class KernelTransformer(nn.Module):
    """`transformer_layers` encoder layers over the nodes of a kernel, then the sum over its nodes.

    Shape: [N, C, hidden] to [K, C, hidden].
    """

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(spec) for _ in range(spec.transformer_layers))

    def forward(self, states: Tensor, node_counts: tuple[int, ...]) -> Tensor:
        configs, width = states.shape[1:]
        parts = torch.split(states, list(node_counts))
        rows = torch.cat([part.transpose(0, 1).reshape(-1, width) for part in parts])
        for layer in self.layers:
            rows = layer(rows, node_counts, configs)
        blocks = torch.split(rows, [count * configs for count in node_counts])
        return torch.stack([block.view(configs, -1, width).sum(dim=1) for block in blocks])


class EncoderLayer(nn.Module):
    """y = norm(x + attention(x)), then norm(y + feed-forward(y)).

    The layer of Vaswani et al. (2017), section 3.1; dropout on the output of both parts, section 5.4.

    Shape: rows [N C, hidden] kept.
    """

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        hidden, width, biases = spec.hidden, spec.transformer_width or spec.hidden, spec.biases
        self._heads = spec.transformer_heads
        self.attention_inputs = nn.Linear(hidden, 3 * hidden, bias=biases)
        self.attention_output = nn.Linear(hidden, hidden, bias=biases)
        self.attention_norm = nn.LayerNorm(hidden, bias=biases)
        self.widen = nn.Linear(hidden, width, bias=biases)
        self.narrow = nn.Linear(width, hidden, bias=biases)
        self.feed_forward_norm = nn.LayerNorm(hidden, bias=biases)
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, rows: Tensor, node_counts: tuple[int, ...], configs: int) -> Tensor:
        mixed = self.attention_output(self._attention(self.attention_inputs(rows), node_counts, configs))
        rows = self.attention_norm(rows + self.dropout(mixed))
        narrowed = self.narrow(torch.relu_(self.widen(rows)))
        normed: Tensor = self.feed_forward_norm(rows + self.dropout(narrowed))
        return normed

    def _attention(self, projected: Tensor, node_counts: tuple[int, ...], configs: int) -> Tensor:
        """Queries, keys and values [N C, 3 hidden] to what the heads read, concatenated [N C, hidden]."""
        width = projected.shape[1] // 3
        blocks = torch.split(projected, [count * configs for count in node_counts])
        read = []
        for block in blocks:
            heads = block.view(configs, -1, 3, self._heads, width // self._heads).permute(2, 0, 3, 1, 4)
            read.append(attend(*heads.unbind(0)).transpose(1, 2).reshape(-1, width))
        return torch.cat(read)


def attend(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """softmax(Q K^T / sqrt(d)) V for every decision and head. Shape: three [C, heads, n, d] to the same."""
    if queries.device.type != "cpu":
        return nn.functional.scaled_dot_product_attention(queries, keys, values)
    return cast(Tensor, _Attend.apply(queries, keys, values))  # type: ignore[no-untyped-call]


class _Attend(torch.autograd.Function):
    """Torch's attention with the matrix library that is fast on many small products, in both directions."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        learns = any(ctx.needs_input_grad)
        own = [tensor.detach().requires_grad_(learns) for tensor in (queries, keys, values)]
        with plain_products(), torch.set_grad_enabled(learns):
            read = nn.functional.scaled_dot_product_attention(own[0], own[1], own[2])
        ctx.own, ctx.read = own, read
        return read.detach()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        with plain_products():
            return tuple(torch.autograd.grad(ctx.read, ctx.own, gradient))
