"""A residual network for tables, on sums and maxima over a kernel's instructions (Gorishniy et al., 2021).

    net.encoder: none
    net.reduction: examples.tabular_resnet:TabularResNet
    net.decision_features: kernel

Searched by sweeps: `net.hidden`, `net.encoder_layers` (blocks), `net.dropout`. arXiv:2106.11959.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.utils import scatter


class TabularResNet(nn.Module):
    """x' = x + W dropout(relu(V norm(x))) in each block, over one row for each kernel and decision.

    Args:
        spec: hyper-parameters of the network (`costbench.models.spec.NetSpec`).
        joined: number of features of the kernel and its decision.

    Shape: states [N, 1 or C, hidden] and joined [K, 1 or C, joined] to costs [K, C].
    """

    def __init__(self, spec: Any, joined: int) -> None:
        super().__init__()
        hidden = spec.hidden
        self.first = nn.Linear(2 * hidden + joined, hidden)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(hidden),
                nn.Linear(hidden, 2 * hidden),
                nn.ReLU(),
                nn.Dropout(spec.dropout),
                nn.Linear(2 * hidden, hidden),
            )
            for _ in range(spec.encoder_layers)
        )
        self.cost = nn.Sequential(nn.LayerNorm(hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, states: Tensor, joined: Tensor, batch: Any) -> Tensor:
        """Returns the costs of a batch (`costbench.models.graph_batch.GraphBatch`)."""
        count = max(states.shape[1], joined.shape[1])
        columns = [
            scatter(states, batch.kernel_of_node, dim_size=batch.num_kernels, reduce=statistic)
            for statistic in ("sum", "max")
        ]
        parts = [part.expand(-1, count, -1) for part in (*columns, joined)]
        rows = self.first(torch.cat(parts, dim=-1))
        for block in self.blocks:
            rows = rows + block(rows)
        return self.cost(rows).squeeze(-1)
