"""A perceptron of rows of features, trained by the rank loss on whole groups of schedules at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from costbench import rng
from costbench.arrays import F32, F64, I64
from costbench_schedules.models.learner import Samples
from costbench_schedules.models.training import predict_in_chunks, rank_loss

_SAMPLES_OF_GROUP = 32
"""Samples of one group in a step, at most."""
_CHUNK = 1024
"""Schedules that are predicted at a time."""


class Perceptron(nn.Module):
    """Cost of each schedule: a layer, then residual layers, then one number.

    Args:
        columns: number of features.
        hidden: number of units of a layer.
        layers: number of residual layers after the first layer.
    """

    def __init__(self, columns: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.zeros(columns))
        self.deviation = nn.Buffer(torch.ones(columns))
        self.first = nn.Sequential(nn.Linear(columns, hidden), nn.ReLU())
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU()) for _ in range(layers)
        )
        self.head = nn.Linear(hidden, 1)

    def scale_like(self, rows: Tensor) -> None:
        """Takes the mean and deviation of samples [n, columns], which inputs are scaled by."""
        deviation = rows.std(dim=0, correction=0)
        self.mean.copy_(rows.mean(dim=0))
        self.deviation.copy_(torch.where(deviation > 0, deviation, torch.ones_like(deviation)))

    def forward(self, rows: Tensor) -> Tensor:
        """Returns the cost of each sample [n, columns], [n]; lower is faster."""
        hidden = self.first((rows - self.mean) / self.deviation)
        for layer in self.layers:
            hidden = hidden + layer(hidden)
        costs: Tensor = self.head(hidden)[:, 0]
        return costs


@dataclass(frozen=True)
class PerceptronLearner:
    """A `Learner` of rows of features.

    Attributes:
        steps: number of steps of Adam; the learning rate falls to zero by a cosine.
        hidden: number of units of a layer.
        layers: number of residual layers after the first layer.
        groups: number of groups whose samples a step compares, at most 32 of each.
        learning_rate: learning rate at the start.

    Raises:
        ValueError: for numbers out of range.
    """

    steps: int = 300
    hidden: int = 128
    layers: int = 2
    groups: int = 4
    learning_rate: float = 3e-3

    def __post_init__(self) -> None:
        if self.steps < 1 or self.groups < 1 or self.learning_rate <= 0.0:
            raise ValueError("steps, groups, learning_rate: above 0")

    def fit(self, features: F32, samples: Samples, seed: int, /) -> TrainedPerceptron:
        """Returns a trained network of rows [n, columns]."""
        rows = torch.from_numpy(features)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(rng.stream(seed, "headed", "weights").integers(2**31)))
            net = Perceptron(features.shape[1], self.hidden, self.layers)
        net.scale_like(rows)
        optimizer = torch.optim.Adam(net.parameters(), lr=self.learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        draws = rng.stream(seed, "headed", "batches")
        members = [np.flatnonzero(samples.groups == group) for group in np.unique(samples.groups)]
        members = [indices for indices in members if len(indices) > 1]
        for _ in range(self.steps if members else 0):
            indices = self._draw_batch(members, draws)
            loss = rank_loss(net(rows[indices]), samples.select(indices))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        return TrainedPerceptron(net.eval())

    def _draw_batch(self, members: list[I64], draws: np.random.Generator) -> I64:
        """Returns the indices of samples of some groups, which are drawn by their size."""
        sizes = np.array([len(indices) for indices in members], dtype=np.float64)
        count = min(self.groups, len(members))
        chosen = draws.choice(len(members), size=count, replace=False, p=sizes / sizes.sum())
        parts = [draws.permutation(members[group])[:_SAMPLES_OF_GROUP] for group in chosen]
        return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class TrainedPerceptron:
    """A `ScheduleModel` of rows of features.

    Attributes:
        net: trained network.
    """

    net: Perceptron

    def predict(self, features: F32, /) -> F64:
        """Returns the costs of rows [n, columns], float64 [n]."""
        rows = torch.from_numpy(features)

        def predict_some(indices: I64) -> F64:
            costs: F64 = self.net(rows[indices]).numpy().astype(np.float64)
            return costs

        with torch.inference_mode():
            return predict_in_chunks(predict_some, len(features), _CHUNK)
