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


@dataclass(frozen=True)
class TrainingSpec:
    """Length and pace of a training by Adam.

    Attributes:
        epochs: number of passes over the measurements.
        batch: number of schedules per step; the rank loss compares those of one step.
        learning_rate: learning rate of Adam.
        max_steps: number of steps after which a training on many measurements ends; None for no limit.

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
class SampleLoss:
    """The loss of a network on some measurements.

    Attributes:
        samples: measurements that the network is fitted to.
        objective: what the costs are fitted to.
        costs: function of indices int64 [b] of samples to the network's costs of these, [b].
    """

    samples: Samples
    objective: Objective
    costs: Callable[[I64], Tensor]

    def __call__(self, indices: I64) -> Tensor:
        """Returns the loss of the samples with these indices, a scalar."""
        batch, costs = self.samples.select(indices), self.costs(indices)
        costs = costs + torch.from_numpy(batch.start.astype(np.float32)).to(costs.device)
        if self.objective == "rank":
            return rank_loss(costs, batch)
        speed = torch.from_numpy(batch.speed.astype(np.float32)).to(costs.device)
        return functional.mse_loss(costs, -speed)


def train(net: nn.Module, sample_loss: SampleLoss, spec: TrainingSpec, draws: np.random.Generator) -> None:
    """Trains the weights of a network in place.

    Args:
        net: network whose weights are trained.
        sample_loss: loss that is minimised.
        spec: length and pace.
        draws: random numbers that order the samples in every epoch.
    """
    optimizer = torch.optim.Adam(net.parameters(), lr=spec.learning_rate)
    for indices in islice(_batches(len(sample_loss.samples), spec, draws), spec.max_steps):
        loss = sample_loss(indices)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()


def rank_loss(costs: Tensor, samples: Samples) -> Tensor:
    """Returns the mean over pairs of one group with c_i > c_j of log(1 + exp(-(f_i - f_j))), a scalar.

    This is equation 2 of autotvm2018 for runtimes c and costs f; 0 without pairs. Shape: costs [n].
    """
    runtimes, groups = samples.runtime_ns, samples.groups
    slower = (runtimes[:, None] > runtimes) & (groups[:, None] == groups)
    first, second = (torch.from_numpy(indices).to(costs.device) for indices in np.nonzero(slower))
    terms = functional.softplus(costs[second] - costs[first])
    return terms.sum() / max(len(first), 1)


def predict_in_chunks(predict: Callable[[I64], F64], count: int, chunk: int = 512) -> F64:
    """Returns the costs of schedules, float64 [count].

    Args:
        predict: function of indices int64 [b] of schedules to their costs, float64 [b].
        count: number of schedules.
        chunk: number of schedules that are predicted at a time.
    """
    chunks = (np.arange(start, min(start + chunk, count)) for start in range(0, count, chunk))
    return np.concatenate([np.zeros(0), *map(predict, chunks)])


def _batches(count: int, spec: TrainingSpec, draws: np.random.Generator) -> Iterator[I64]:
    """Yields the indices of each step: every epoch in an order of its own, in parts of even size."""
    for _ in range(spec.epochs):
        yield from np.array_split(draws.permutation(count), -(-count // spec.batch))
