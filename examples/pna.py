"""Principal neighbourhood aggregation: four statistics of neighbours, scaled by degree (Corso et al., 2020).

    net.encoder: examples.pna:Pna

Searched by sweeps: `net.hidden`, `net.encoder_layers`, `net.dropout`. arXiv:2004.05718.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import PNAConv

DEGREES = (35, 32, 31, 2)
"""Percent of a kernel's nodes that have no, one, two or three neighbours in a direction."""


class Pna(nn.Module):
    """x'_i = W concat(x_i, s(d_i) a(messages of i)) over aggregators a and scalers s of the degree d_i.

    Aggregators are mean, maximum, minimum and standard deviation; scalers are 1, log(d + 1) / δ and its
    inverse, δ the mean of log(d + 1). costbench has one for each direction of edges.

    Shape: x [n, in_channels] and edge_index int64 [2, m], from sender to receiver, to [n, out_channels].
    """

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = PNAConv(
            in_channels,
            out_channels,
            aggregators=["mean", "max", "min", "std"],
            scalers=["identity", "amplification", "attenuation"],
            deg=torch.tensor(DEGREES),
        )

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Returns the new states."""
        return self.conv(x, edge_index)
