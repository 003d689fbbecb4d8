"""Set Transformer: attention among the instructions of a kernel, without its edges (Lee et al., 2019).

    net.encoder: examples.set_transformer:SetEncoder
    net.reduction: examples.set_transformer:SetPooling

Searched by sweeps: `net.hidden`, `net.encoder_layers`, `net.dropout`. Heads of attention are
`net.transformer_heads`, in pooling an argument. arXiv:1810.00825.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch_geometric.nn.aggr.utils import PoolingByMultiheadAttention, SetAttentionBlock
from torch_geometric.utils import to_dense_batch

from examples.plain_graphs import Graphs, encode


class SetEncoder(nn.Module):
    """`encoder_layers` set attention blocks (SAB): h = norm(x + attention(x, x)), x' = norm(h + relu(W h)).

    Args:
        spec: hyper-parameters of the network (`costbench.models.spec.NetSpec`).

    Shape: states [N, C, hidden] kept.
    """

    def __init__(self, spec: Any) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            SetAttentionBlock(spec.hidden, heads=spec.transformer_heads, dropout=spec.dropout)
            for _ in range(spec.encoder_layers)
        )

    def forward(self, states: Tensor, batch: Any) -> Tensor:
        """Returns the new states of a batch (`costbench.models.graph_batch.GraphBatch`)."""
        return encode(self._encode, states, batch)

    def _encode(self, rows: Tensor, graphs: Graphs) -> Tensor:
        sets, is_node = to_dense_batch(rows, graphs.index)
        for block in self.blocks:
            sets = block(sets, is_node)
        return sets[is_node]


class SetPooling(nn.Module):
    """Pooling by attention (PMA): learned seeds attend to the instructions of a kernel.

    Shape: x [n, in_channels] and index int64 [n], ascending, to [dim_size, seeds in_channels].
    """

    def __init__(self, in_channels: int, seeds: int = 2, heads: int = 4) -> None:
        super().__init__()
        self.pool = PoolingByMultiheadAttention(in_channels, seeds, heads)

    def forward(self, x: Tensor, index: Tensor, dim_size: int) -> Tensor:
        """Returns a row for each kernel."""
        sets, is_node = to_dense_batch(x, index, batch_size=dim_size)
        return self.pool(sets, is_node).flatten(1)
