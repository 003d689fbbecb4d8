"""GPS: local message passing and global attention in each layer (Rampášek et al., 2022, arXiv:2205.12454).

    net.encoder: examples.gps:Gps

Searched by sweeps: `net.hidden`, `net.encoder_layers`, `net.dropout`. Heads of attention are `net.gat_heads`.
There are no positional encodings: node features say what an instruction computes, not where it stands.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import GINEConv, GPSConv

from examples.plain_graphs import Graphs, encode


class Gps(nn.Module):
    """`encoder_layers` of PyG's `GPSConv`: x' = MLP(GINE(x) + attention(x)), each part with its own norm.

    GINE tells messages of producers from those of consumers by a learned edge feature.

    Args:
        spec: hyper-parameters of the network (`costbench.models.spec.NetSpec`).

    Shape: states [N, C, hidden] kept.
    """

    def __init__(self, spec: Any) -> None:
        super().__init__()
        hidden = spec.hidden
        self.directions = nn.Embedding(2, hidden)
        self.layers = nn.ModuleList(
            GPSConv(
                hidden,
                GINEConv(nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden))),
                heads=spec.gat_heads,
                dropout=spec.dropout,
                norm="layer_norm",
                norm_kwargs={"mode": "node"},
            )
            for _ in range(spec.encoder_layers)
        )

    def forward(self, states: Tensor, batch: Any) -> Tensor:
        """Returns the new states of a batch (`costbench.models.graph_batch.GraphBatch`)."""
        return encode(self._encode, states, batch)

    def _encode(self, rows: Tensor, graphs: Graphs) -> Tensor:
        edges = graphs.to_consumers, graphs.to_producers
        counts = torch.tensor([edge_index.shape[1] for edge_index in edges], device=rows.device)
        features = self.directions.weight.repeat_interleave(counts, dim=0)
        for layer in self.layers:
            rows = layer(rows, torch.cat(edges, dim=1), graphs.index, edge_attr=features)
        return rows
