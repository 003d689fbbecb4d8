"""Trains networks of several heads on measured schedules by the rank loss, whole groups at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from costbench import rng
from costbench.arrays import F64, I64
from costbench_schedules.models.headed.features import HeadedFeatures
from costbench_schedules.models.headed.network import HeadedNet
from costbench_schedules.models.headed.spec import HeadedSpec
from costbench_schedules.models.learner import Samples
from costbench_schedules.models.training import rank_loss

_LARGEST_SHARE = 32
_CHUNK = 1024


@dataclass(frozen=True)
class HeadedLearner:
    """A `Learner` of `HeadedFeatures`.

    Attributes:
        spec: of the network.
        steps: of Adam; the learning rate falls to zero by a cosine.
        groups: groups whose samples a step compares, at most 32 of each.
        learning_rate: at the start.

    Raises:
        ValueError: for numbers out of range.
    """

    spec: HeadedSpec = field(default_factory=HeadedSpec)
    steps: int = 300
    groups: int = 4
    learning_rate: float = 3e-3

    def __post_init__(self) -> None:
        if self.steps < 1 or self.groups < 1 or self.learning_rate <= 0.0:
            raise ValueError("steps, groups, learning_rate: above 0")

    def fit(self, features: HeadedFeatures, samples: Samples, seed: int, /) -> TrainedHeaded:
        """Returns a trained network; samples of one group have to be of one machine."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(rng.stream(seed, "headed", "weights").integers(2**31)))
            net = HeadedNet(self.spec, features.values.shape[1:])
        net.scale_like(torch.from_numpy(features.values))
        optimizer = torch.optim.Adam(net.parameters(), lr=self.learning_rate)
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps)
        draws = rng.stream(seed, "headed", "batches")
        members = [np.flatnonzero(samples.groups == group) for group in np.unique(samples.groups)]
        members = [places for places in members if len(places) > 1]
        for _ in range(self.steps if members else 0):
            places = self._batch(members, draws)
            loss = rank_loss(net(features[places]), samples.select(places))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            falling.step()
        return TrainedHeaded(net.eval())

    def _batch(self, members: list[I64], draws: np.random.Generator) -> I64:
        """Returns the places of some groups, drawn by their size."""
        sizes = np.array([len(places) for places in members], dtype=np.float64)
        count = min(self.groups, len(members))
        chosen = draws.choice(len(members), size=count, replace=False, p=sizes / sizes.sum())
        parts = [draws.permutation(members[group])[:_LARGEST_SHARE] for group in chosen]
        return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class TrainedHeaded:
    """A `ScheduleModel` of `HeadedFeatures`.

    Attributes:
        net: trained.
    """

    net: HeadedNet

    def predict(self, features: HeadedFeatures, /) -> F64:
        """Returns costs, float64 [n], on the machine of each sample."""
        parts = [np.zeros(0)]
        with torch.inference_mode():
            for start in range(0, len(features), _CHUNK):
                places = np.arange(start, min(start + _CHUNK, len(features)))
                parts.append(self.net(features[places]).numpy().astype(np.float64))
        return np.concatenate(parts)
