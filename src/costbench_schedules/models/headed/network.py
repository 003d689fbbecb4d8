"""Networks of several heads, one for each machine that runtimes were measured on (tlp2022, section 5)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from costbench_schedules.models.headed.features import HeadedFeatures
from costbench_schedules.models.headed.spec import HeadedSpec

_CONSTANT = 1e-5
"""Deviation over mean up to which a column is constant but for rounding."""


class HeadedNet(nn.Module):
    """Cost of each schedule on one machine.

    Args:
        spec: its size.
        shape: of a sample: (columns,) of a row, (lines, columns) of a sequence.
    """

    def __init__(self, spec: HeadedSpec, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.spec = spec
        self.mean = nn.Buffer(torch.zeros(shape))
        self.deviation = nn.Buffer(torch.ones(shape))
        self.first = nn.Sequential(nn.Linear(shape[-1], spec.hidden), nn.ReLU())
        self.attention = (
            nn.MultiheadAttention(spec.hidden, spec.attention_heads, batch_first=True)
            if spec.kind == "primitives"
            else None
        )
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(spec.hidden, spec.hidden), nn.ReLU()) for _ in range(spec.layers)
        )
        attending = spec.kind == "primitives"
        self.norms = nn.ModuleList(nn.LayerNorm(spec.hidden) for _ in range(attending * (2 + spec.layers)))
        self.heads = nn.Linear(spec.hidden, spec.machines)

    def scale_like(self, values: Tensor) -> None:
        """Takes the mean and deviation of samples [n, ...], which inputs are scaled by.

        A line of a sequence is scaled by those samples that have it: the same column of another line means
        something else. What is constant there, such as its kind, stays as it is.
        """
        if self.attention is None:
            mean, deviation = values.mean(dim=0), values.std(dim=0, correction=0)
            self.mean.copy_(mean)
        else:
            present = (values != 0.0).any(dim=2, keepdim=True)
            share = present / present.sum(dim=0).clamp(min=1)
            mean = (share * values).sum(dim=0)
            deviation = (share * (values - mean) ** 2).sum(dim=0).sqrt()
            deviation = torch.where(deviation > _CONSTANT * mean.abs(), deviation, 0.0)
            self.mean.copy_(torch.where(deviation > 0, mean, 0.0))
        self.deviation.copy_(torch.where(deviation > 0, deviation, torch.ones_like(deviation)))

    def forward(self, features: HeadedFeatures) -> Tensor:
        """Returns the cost on the machine of each sample, [n]; lower is faster."""
        values = torch.from_numpy(features.values)
        hidden = self.first((values - self.mean) / self.deviation)
        if self.attention is not None:
            padding = torch.from_numpy((features.values == 0.0).all(axis=2))
            scaled = self.norms[0](hidden)
            attended, _ = self.attention(scaled, scaled, scaled, padding, need_weights=False)
            hidden = hidden + attended
            for layer, norm in zip(self.layers, self.norms[1:-1], strict=True):
                hidden = hidden + layer(norm(hidden))
            # The sum over primitives, as in TLP.
            hidden = self.norms[-1](torch.where(padding[:, :, None], 0.0, hidden).sum(dim=1))
        else:
            for layer in self.layers:
                hidden = hidden + layer(hidden)
        machines = torch.from_numpy(features.machines)
        costs: Tensor = self.heads(hidden).gather(1, machines[:, None])[:, 0]
        return costs
