"""A Transformer encoder over the nodes of each kernel, for each decision separately.

Linear layers run over the rows of all nodes and decisions. Only attention needs kernels separated: they are
padded to the longest, and padding is masked. There is no positional encoding, so the order of nodes does not
matter.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from costbench.models.spec import NetSpec


class KernelTransformer(nn.Module):
    """`transformer_layers` encoder layers over the nodes of a kernel, then the sum over its nodes.

    Shape: [N, C, hidden] to [K, C, hidden].
    """

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(spec) for _ in range(spec.transformer_layers))

    def forward(self, states: Tensor, node_counts: Sequence[int]) -> Tensor:
        padding = Padding(node_counts, states.device)
        for layer in self.layers:
            states = layer(states, padding)
        sums = states.new_zeros(len(node_counts), *states.shape[1:])
        return sums.index_add(0, padding.kernel_of_node, states)


class EncoderLayer(nn.Module):
    """y = norm(x + attention(x)), then norm(y + feed-forward(y)).

    The layer of Vaswani et al. (2017), section 3.1; dropout on the output of both parts, section 5.4.

    Shape: states [N, C, hidden] kept.
    """

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        hidden, width, biases = spec.hidden, spec.transformer_width or spec.hidden, spec.biases
        self.heads = spec.transformer_heads
        self.attention_inputs = nn.Linear(hidden, 3 * hidden, bias=biases)
        self.attention_output = nn.Linear(hidden, hidden, bias=biases)
        self.attention_norm = nn.LayerNorm(hidden, bias=biases)
        self.widen = nn.Linear(hidden, width, bias=biases)
        self.narrow = nn.Linear(width, hidden, bias=biases)
        self.feed_forward_norm = nn.LayerNorm(hidden, bias=biases)
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, states: Tensor, padding: Padding) -> Tensor:
        return self.transform(states, masked_attention(self.attention_inputs(states), self.heads, padding))

    def transform(self, states: Tensor, attended: Tensor) -> Tensor:
        """Returns the layer's output, given the output of attention, which has the shape of the states."""
        states = self.attention_norm(states + self.dropout(self.attention_output(attended)))
        narrowed = self.narrow(torch.relu(self.widen(states)))
        normed: Tensor = self.feed_forward_norm(states + self.dropout(narrowed))
        return normed


class Padding:
    """The positions of nodes in a padded table [K, longest kernel] with one row per kernel.

    Attributes:
        kernel_of_node: int64 [N], the row of each node.
        step_of_node: int64 [N], its column.
        is_node: bool [K, longest], False for padding.
    """

    def __init__(self, node_counts: Sequence[int], device: torch.device) -> None:
        counts = torch.tensor(node_counts)
        first_node = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
        self.kernel_of_node = torch.repeat_interleave(torch.arange(len(counts)), counts).to(device)
        self.step_of_node = (torch.arange(len(first_node)) - first_node).to(device)
        self.is_node = (torch.arange(max(node_counts)) < counts[:, None]).to(device)

    def pad(self, rows: Tensor) -> Tensor:
        """Returns the rows [N, ...] of nodes in a table [K, longest, ...], with zeros elsewhere."""
        table = rows.new_zeros(*self.is_node.shape, *rows.shape[1:])
        return table.index_put((self.kernel_of_node, self.step_of_node), rows)

    def unpad(self, table: Tensor) -> Tensor:
        """Returns the rows [N, ...] of nodes in a table [K, longest, ...]."""
        return table[self.kernel_of_node, self.step_of_node]


def masked_attention(projected: Tensor, heads: int, padding: Padding) -> Tensor:
    """Returns concat over heads of softmax(Q K^T / sqrt(d)) V over a kernel's nodes, for each decision.

    Args:
        projected: Q, K and V of the nodes side by side, [N, C, 3 hidden].
        heads: number of heads; each has d = hidden / heads of the columns.
        padding: positions of nodes.

    Shape: to [N, C, hidden].
    """
    # [K, T, C, 3, heads, d] to three of [K, C, heads, T, d].
    table = padding.pad(projected)
    table = table.view(*table.shape[:3], 3, heads, -1)
    queries, keys, values = table.permute(3, 0, 2, 4, 1, 5).unbind(0)
    mask = padding.is_node[:, None, None, None, :]
    attended = nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    return padding.unpad(attended.permute(0, 3, 1, 2, 4).flatten(-2))
