"""Networks of schedules with one output for each machine that runtimes were measured on (tlp2022, section 5).

Each machine is a task with a head of its own: a perceptron of rows, or TLP, attention over primitives. They
are trained by the rank loss, whole groups at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from costbench import rng
from costbench.arrays import F32, F64, I64
from costbench_schedules.models.learner import Samples
from costbench_schedules.models.training import predict_in_chunks, rank_loss

_CONSTANT = 1e-5
"""Deviation over mean up to which a column is constant but for rounding."""
_SAMPLES_OF_GROUP = 32
"""Samples of one group in a step, at most."""
_CHUNK = 1024
"""Schedules that are predicted at a time."""


@dataclass(frozen=True)
class MultiTaskSpec:
    """Size of a network.

    Attributes:
        kind: `rows` for a perceptron of rows, `primitives` for attention over sequences.
        hidden: number of units of a layer.
        layers: number of residual layers after the first layer.
        attention_heads: number of heads of the attention over primitives.
        machines: number of outputs, one for each machine.
    """

    kind: Literal["rows", "primitives"] = "rows"
    hidden: int = 128
    layers: int = 2
    attention_heads: int = 4
    machines: int = 1


@dataclass(frozen=True, eq=False)
class MultiTaskFeatures:
    """Features of n samples.

    Attributes:
        values: features of rows, float32 [n, F], or of sequences, float32 [n, T, F].
        machines: number of the machine that each sample was or will be measured on, int64 [n].
    """

    values: F32
    machines: I64

    def __len__(self) -> int:
        return len(self.machines)

    def __getitem__(self, indices: I64, /) -> MultiTaskFeatures:
        return MultiTaskFeatures(self.values[indices], self.machines[indices])


class MultiTaskNet(nn.Module):
    """Cost of each schedule on one machine.

    Args:
        spec: size of the network.
        shape: shape of a sample: (columns,) of a row, (lines, columns) of a sequence.
    """

    def __init__(self, spec: MultiTaskSpec, shape: tuple[int, ...]) -> None:
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

    def forward(self, features: MultiTaskFeatures) -> Tensor:
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


@dataclass(frozen=True)
class MultiTaskLearner:
    """A `Learner` of `MultiTaskFeatures`.

    Attributes:
        spec: size of the network.
        steps: number of steps of Adam; the learning rate falls to zero by a cosine.
        groups: number of groups whose samples a step compares, at most 32 of each.
        learning_rate: learning rate at the start.

    Raises:
        ValueError: for numbers out of range.
    """

    spec: MultiTaskSpec = field(default_factory=MultiTaskSpec)
    steps: int = 300
    groups: int = 4
    learning_rate: float = 3e-3

    def __post_init__(self) -> None:
        if self.steps < 1 or self.groups < 1 or self.learning_rate <= 0.0:
            raise ValueError("steps, groups, learning_rate: above 0")

    def fit(self, features: MultiTaskFeatures, samples: Samples, seed: int, /) -> TrainedMultiTask:
        """Returns a trained network; samples of one group have to be of one machine."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(rng.stream(seed, "headed", "weights").integers(2**31)))
            net = MultiTaskNet(self.spec, features.values.shape[1:])
        net.scale_like(torch.from_numpy(features.values))
        optimizer = torch.optim.Adam(net.parameters(), lr=self.learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        draws = rng.stream(seed, "headed", "batches")
        members = [np.flatnonzero(samples.groups == group) for group in np.unique(samples.groups)]
        members = [indices for indices in members if len(indices) > 1]
        for _ in range(self.steps if members else 0):
            indices = self._draw_batch(members, draws)
            loss = rank_loss(net(features[indices]), samples.select(indices))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
        return TrainedMultiTask(net.eval())

    def _draw_batch(self, members: list[I64], draws: np.random.Generator) -> I64:
        """Returns the indices of samples of some groups, which are drawn by their size."""
        sizes = np.array([len(indices) for indices in members], dtype=np.float64)
        count = min(self.groups, len(members))
        chosen = draws.choice(len(members), size=count, replace=False, p=sizes / sizes.sum())
        parts = [draws.permutation(members[group])[:_SAMPLES_OF_GROUP] for group in chosen]
        return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class TrainedMultiTask:
    """A `ScheduleModel` of `MultiTaskFeatures`.

    Attributes:
        net: trained network.
    """

    net: MultiTaskNet

    def predict(self, features: MultiTaskFeatures, /) -> F64:
        """Returns costs, float64 [n], on the machine of each sample."""

        def predict_some(indices: I64) -> F64:
            costs: F64 = self.net(features[indices]).numpy().astype(np.float64)
            return costs

        with torch.inference_mode():
            return predict_in_chunks(predict_some, len(features), _CHUNK)
