"""Trains a TreeGRU on measured schedules, from scratch, by either objective."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from costbench import rng
from costbench.features.schedule.trees import LoopTrees
from costbench.models.schedule.learner import FloatArray, Objective, Samples
from costbench.models.schedule.tree_gru.network import TreeGru, TreeGruSpec, tree_batch

_CHUNK = 512


@dataclass(frozen=True)
class TreeGruLearner:
    """A `Learner` of `LoopTrees`.

    Attributes:
        objective: of the costs.
        spec: size of the network.
        epochs: passes over the measurements.
        batch: schedules per step; the rank loss compares those of one step.
        learning_rate: of Adam.
        device: where to train and predict.

    Raises:
        ValueError: for numbers out of range.
    """

    objective: Objective = "rank"
    spec: TreeGruSpec = field(default_factory=TreeGruSpec)
    epochs: int = 60
    batch: int = 64
    learning_rate: float = 5e-3
    device: str = "cpu"

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 2:
            raise ValueError("epochs: at least 1, batch: at least 2")
        if self.learning_rate <= 0.0:
            raise ValueError("learning_rate: above 0")

    def fit(self, features: LoopTrees, samples: Samples, seed: int, /) -> TrainedTreeGru:
        """Returns a trained network."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(rng.stream(seed, "tree_gru", "weights").integers(2**31)))
            net = TreeGru(self.spec).to(self.device)
        net.scale_like(tree_batch(features, self.device).values)
        optimizer = torch.optim.Adam(net.parameters(), lr=self.learning_rate)
        draws = rng.stream(seed, "tree_gru", "batches")
        for _ in range(self.epochs):
            for places in _batches(draws.permutation(len(samples)), self.batch):
                own = samples.select(places)
                costs = net(tree_batch(features[places], self.device))
                start = torch.from_numpy(own.start.astype(np.float32)).to(self.device)
                loss = self._loss(costs + start, own)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
        return TrainedTreeGru(net.eval(), self.device)

    def _loss(self, costs: Tensor, samples: Samples) -> Tensor:
        if self.objective == "rank":
            return rank_loss(costs, samples)
        speed = torch.from_numpy(samples.speed.astype(np.float32)).to(costs.device)
        return functional.mse_loss(costs, -speed)


def rank_loss(costs: Tensor, samples: Samples) -> Tensor:
    """Returns the mean over pairs of one group with c_i > c_j of log(1 + exp(-(f_i - f_j))), a scalar.

    This is equation 2 of autotvm2018 for runtimes c and costs f; 0 without pairs. Shape: costs [n].
    """
    runtimes, groups = samples.runtime_ns, samples.groups
    slower = (runtimes[:, None] > runtimes) & (groups[:, None] == groups)
    first, second = (torch.from_numpy(places).to(costs.device) for places in np.nonzero(slower))
    terms = functional.softplus(costs[second] - costs[first])
    return terms.sum() / max(len(first), 1)


@dataclass(frozen=True, eq=False)
class TrainedTreeGru:
    """A `ScheduleModel` of `LoopTrees`.

    Attributes:
        net: trained.
        device: where it lies.
    """

    net: TreeGru
    device: str = "cpu"

    def predict(self, features: LoopTrees, /) -> FloatArray:
        """Returns costs, float64 [n]."""
        parts = [np.zeros(0)]
        with torch.inference_mode():
            for start in range(0, len(features), _CHUNK):
                places = np.arange(start, min(start + _CHUNK, len(features)))
                costs = self.net(tree_batch(features[places], self.device))
                parts.append(costs.cpu().numpy().astype(np.float64))
        return np.concatenate(parts)


def _batches(order: npt.NDArray[np.int64], size: int) -> list[npt.NDArray[np.int64]]:
    """Returns an order in parts of even size, at most `size`."""
    return np.array_split(order, -(-len(order) // size))
