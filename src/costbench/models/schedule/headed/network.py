"""Networks of several heads, one for each machine that runtimes were measured on (tlp2022, section 5)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from costbench.models.schedule.headed.features import HeadedFeatures
from costbench.models.schedule.headed.spec import HeadedSpec


class HeadedNet(nn.Module):
    """Cost of each schedule on one machine.

    Args:
        spec: its size.
        width: columns of a row, or of a line of a sequence.
    """

    def __init__(self, spec: HeadedSpec, width: int) -> None:
        super().__init__()
        self.spec = spec
        self.mean = nn.Buffer(torch.zeros(width))
        self.deviation = nn.Buffer(torch.ones(width))
        self.first = nn.Sequential(nn.Linear(width, spec.hidden), nn.ReLU())
        self.attention = (
            nn.MultiheadAttention(spec.hidden, spec.attention_heads, batch_first=True)
            if spec.kind == "primitives"
            else None
        )
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(spec.hidden, spec.hidden), nn.ReLU()) for _ in range(spec.layers)
        )
        self.heads = nn.Linear(spec.hidden, spec.machines)

    def scale_like(self, values: Tensor) -> None:
        """Takes mean and deviation of the columns of `values` [..., width], which inputs are scaled by."""
        rows = values.reshape(-1, values.shape[-1])
        self.mean.copy_(rows.mean(dim=0))
        deviation = rows.std(dim=0, correction=0)
        self.deviation.copy_(torch.where(deviation > 0, deviation, torch.ones_like(deviation)))

    def forward(self, features: HeadedFeatures) -> Tensor:
        """Returns the cost on the machine of each sample, [n]; lower is faster."""
        values = torch.from_numpy(features.values)
        hidden = self.first((values - self.mean) / self.deviation)
        if self.attention is not None:
            padding = torch.from_numpy((features.values == 0.0).all(axis=2))
            attended, _ = self.attention(hidden, hidden, hidden, padding, need_weights=False)
            hidden = hidden + attended
            for layer in self.layers:
                hidden = hidden + layer(hidden)
            # The sum over primitives, as in TLP.
            hidden = torch.where(padding[:, :, None], 0.0, hidden).sum(dim=1)
        else:
            for layer in self.layers:
                hidden = hidden + layer(hidden)
        machines = torch.from_numpy(features.machines)
        costs: Tensor = self.heads(hidden).gather(1, machines[:, None])[:, 0]
        return costs
