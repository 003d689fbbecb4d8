"""A Transformer encoder over the nodes of each kernel, for each decision separately.

Linear layers run over the rows of all nodes and decisions. Only attention needs kernels separated: it is one
call for all kernels of equally many nodes, so that nothing is padded or masked. There is no positional
encoding, so the order of nodes does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from costbench.models.spec import NetSpec

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""softmax(Q K^T / sqrt(d)) V for every sequence and head: three [B, heads, n, d] to one."""


class KernelTransformer(nn.Module):
    """`transformer_layers` encoder layers over the nodes of a kernel, then the sum over its nodes.

    Shape: [N, C, hidden] to [K, C, hidden].
    """

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(spec) for _ in range(spec.transformer_layers))

    def forward(
        self,
        states: Tensor,
        node_counts: Sequence[int],
        attend: Attend = nn.functional.scaled_dot_product_attention,
    ) -> Tensor:
        sequences = Sequences(node_counts, states.shape[1], states.device)
        rows = sequences.rows_of(states)
        for layer in self.layers:
            rows = layer(rows, sequences, attend)
        return sequences.sums(rows)


class EncoderLayer(nn.Module):
    """y = norm(x + attention(x)), then norm(y + feed-forward(y)).

    The layer of Vaswani et al. (2017), section 3.1; dropout on the output of both parts, section 5.4.

    Shape: rows [N C, hidden] kept.
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

    def forward(self, rows: Tensor, sequences: Sequences, attend: Attend) -> Tensor:
        attended = attention(self.attention_inputs(rows), self.heads, sequences, attend)
        rows = self.attention_norm(rows + self.dropout(self.attention_output(attended)))
        narrowed = self.narrow(torch.relu(self.widen(rows)))
        normed: Tensor = self.feed_forward_norm(rows + self.dropout(narrowed))
        return normed


class Sequences:
    """The nodes of each kernel with each of its decisions as rows, kernel by kernel, and these by length.

    Rows are sorted by kernel, then decision, then node, so that a sequence is contiguous.

    Args:
        node_counts: number of nodes of each kernel, at least one; they sum to N.
        num_decisions: number of decisions C of each kernel.
        device: where rows are.
    """

    def __init__(self, node_counts: Sequence[int], num_decisions: int, device: torch.device) -> None:
        counts = np.array(node_counts)
        num_rows = counts * num_decisions
        kernel = np.repeat(np.arange(len(counts)), num_rows)
        place = np.arange(len(kernel)) - (np.cumsum(num_rows) - num_rows)[kernel]
        decision, node = np.divmod(place, counts[kernel])
        states = ((np.cumsum(counts) - counts)[kernel] + node) * num_decisions + decision
        by_length = np.argsort(counts[kernel], kind="stable")
        kernels = np.argsort(np.argsort(counts, kind="stable"), kind="stable")
        lengths, num_kernels = np.unique(counts, return_counts=True)
        self._lengths = lengths.tolist()
        self._sizes = (lengths * num_kernels * num_decisions).tolist()
        self._num_decisions = num_decisions
        indices = (states, by_length, np.argsort(by_length), kernels)
        self._states, self._by_length, self._back, self._kernels = (
            torch.from_numpy(index).to(device) for index in indices
        )

    def rows_of(self, states: Tensor) -> Tensor:
        """Returns states [N, C, hidden] as rows [N C, hidden]."""
        return states.flatten(0, 1).index_select(0, self._states)

    def of_equal_length(self, rows: Tensor) -> Iterator[Tensor]:
        """Yields rows [N C, width] in groups of sequences of n nodes, [sequences, n, width] each."""
        groups = torch.split(rows.index_select(0, self._by_length), self._sizes)
        for length, group in zip(self._lengths, groups, strict=True):
            yield group.view(-1, length, rows.shape[1])

    def in_order(self, groups: Sequence[Tensor]) -> Tensor:
        """Returns the rows of which `of_equal_length` gave the groups."""
        return torch.cat([group.flatten(0, 1) for group in groups]).index_select(0, self._back)

    def sums(self, rows: Tensor) -> Tensor:
        """Returns the sum over each sequence, [K, C, width]."""
        sums = torch.cat([group.sum(dim=1) for group in self.of_equal_length(rows)])
        return sums.view(-1, self._num_decisions, rows.shape[1]).index_select(0, self._kernels)


def attention(projected: Tensor, heads: int, sequences: Sequences, attend: Attend) -> Tensor:
    """Returns concat over heads of softmax(Q K^T / sqrt(d)) V over a kernel's nodes, for each decision.

    Args:
        projected: Q, K and V of the rows side by side, [N C, 3 hidden].
        heads: number of heads; each has d = hidden / heads of the columns.
        sequences: which rows attend to each other.
        attend: what computes it.

    Shape: to [N C, hidden].
    """
    attended = []
    for group in sequences.of_equal_length(projected):
        # [B, n, 3 hidden] to three of [B, heads, n, d].
        parts = group.view(*group.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)
        queries, keys, values = parts.unbind(0)
        attended.append(attend(queries, keys, values).transpose(1, 2).flatten(2))
    return sequences.in_order(attended)
