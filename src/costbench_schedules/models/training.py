"""Trains networks on measured schedules, from scratch, by either objective."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from costbench.arrays import F64, I64
from costbench_schedules.models.learner import Objective, Samples

CHUNK = 512
"""Schedules that are predicted at a time."""


@dataclass(frozen=True)
class TrainingSpec:
    """Length and pace of a training by Adam.

    Attributes:
        epochs: passes over the measurements.
        batch: schedules per step; the rank loss compares those of one step.
        learning_rate: of Adam.
        max_steps: after which a training on many measurements ends; None for no limit.

    Raises:
        ValueError: for numbers out of range.
    """

    epochs: int = 60
    batch: int = 64
    learning_rate: float = 5e-3
    max_steps: int | None = None

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 2 or (self.max_steps is not None and self.max_steps < 1):
            raise ValueError("epochs, max_steps: at least 1, batch: at least 2")
        if self.learning_rate <= 0.0:
            raise ValueError("learning_rate: above 0")


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a network is fitted to.

    Attributes:
        samples: the measurements.
        objective: of the costs.
        costs: returns the network's costs of some of the samples, by their places: int64 [b] to [b].
    """

    samples: Samples
    objective: Objective
    costs: Callable[[I64], Tensor]

    def loss(self, places: I64) -> Tensor:
        """Returns the loss of some samples, a scalar."""
        own, costs = self.samples.select(places), self.costs(places)
        costs = costs + torch.from_numpy(own.start.astype(np.float32)).to(costs.device)
        if self.objective == "rank":
            return rank_loss(costs, own)
        speed = torch.from_numpy(own.speed.astype(np.float32)).to(costs.device)
        return functional.mse_loss(costs, -speed)


def train(net: nn.Module, fitted: Fitted, spec: TrainingSpec, draws: np.random.Generator) -> None:
    """Changes the weights of a network.

    Args:
        net: whose weights are trained.
        fitted: what to.
        spec: how long.
        draws: the order of the samples in every epoch.
    """
    optimizer = torch.optim.Adam(net.parameters(), lr=spec.learning_rate)
    for places in islice(_steps(len(fitted.samples), spec, draws), spec.max_steps):
        loss = fitted.loss(places)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def rank_loss(costs: Tensor, samples: Samples) -> Tensor:
    """Returns the mean over pairs of one group with c_i > c_j of log(1 + exp(-(f_i - f_j))), a scalar.

    This is equation 2 of autotvm2018 for runtimes c and costs f; 0 without pairs. Shape: costs [n].
    """
    runtimes, groups = samples.runtime_ns, samples.groups
    slower = (runtimes[:, None] > runtimes) & (groups[:, None] == groups)
    first, second = (torch.from_numpy(places).to(costs.device) for places in np.nonzero(slower))
    terms = functional.softplus(costs[second] - costs[first])
    return terms.sum() / max(len(first), 1)


def predicted(costs: Callable[[I64], F64], count: int) -> F64:
    """Returns the costs of `count` schedules, float64 [count], asked for a part at a time."""
    return np.concatenate([np.zeros(0), *(costs(places) for places in _chunks(count))])


def _chunks(count: int) -> Iterator[I64]:
    for start in range(0, count, CHUNK):
        yield np.arange(start, min(start + CHUNK, count))


def _steps(count: int, spec: TrainingSpec, draws: np.random.Generator) -> Iterator[I64]:
    """Yields the places of each step: every epoch in an order of its own, in parts of even size."""
    for _ in range(spec.epochs):
        yield from np.array_split(draws.permutation(count), -(-count // spec.batch))
