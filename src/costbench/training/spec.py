"""Hyper-parameters of a training run, as plain values: everything it depends on beside its data.

Modules that only read them need not load torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from costbench.features.normalizer import Transform
from costbench.features.schema import DECISION_FEATURES, NODE_FEATURES, STATIC_FEATURES
from costbench.models.execution_spec import Accelerator, Execution
from costbench.models.net_spec import NetSpec, Predicts
from costbench.training.validation import (
    VALIDATION_APE,
    VALIDATION_MAPE,
    VALIDATION_OPA,
    VALIDATION_SLOWDOWN,
    VALIDATION_TAU,
)

_FEATURES = (*NODE_FEATURES, *DECISION_FEATURES, *STATIC_FEATURES)
Monitor = Literal["tau", "ape", "slowdown", "mape", "opa"]
"""Metric of `validation.ValidationScores`."""
_MONITORS: Mapping[Monitor, str] = {
    "tau": VALIDATION_TAU,
    "ape": VALIDATION_APE,
    "slowdown": VALIDATION_SLOWDOWN,
    "mape": VALIDATION_MAPE,
    "opa": VALIDATION_OPA,
}


LossName = Literal[
    "hinge",
    "hinge-listnet",
    "huber",
    "kernel-mse",
    "listmle",
    "listnet",
    "logistic",
    "logistic-listnet",
    "mse",
]
PREDICTS: Mapping[LossName, Predicts] = {
    "hinge": "score",
    "hinge-listnet": "score",
    "huber": "log_runtime_ns",
    "kernel-mse": "log_runtime_ns",
    "listmle": "score",
    "listnet": "score",
    "logistic": "score",
    "logistic-listnet": "score",
    "mse": "log_runtime_ns",
}
"""What a network trained with a loss of `losses.LOSSES` predicts."""


@dataclass(frozen=True)
class BatchSpec:
    """How batches are drawn.

    Attributes:
        kernels: kernels per batch.
        configs: decisions per kernel, or all of a kernel that has fewer.
        balanced: whether kernels are drawn evenly from each application; else in proportion to their numbers
            of decisions.
        per_epoch: batches per epoch.
    """

    kernels: int = 8
    configs: int = 32
    balanced: bool = True
    per_epoch: int = 200

    def __post_init__(self) -> None:
        for name in ("kernels", "configs", "per_epoch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least 1")


@dataclass(frozen=True)
class ValidationSpec:
    """The size of the validation sample: enough for a steady metric, little enough to run every epoch.

    Attributes:
        kernels: largest number of kernels, which are drawn once.
        configs: largest number of decisions of a kernel, which are drawn once.
    """

    kernels: int = 512
    configs: int = 128

    def __post_init__(self) -> None:
        if self.kernels < 1 or self.configs < 1:
            raise ValueError(f"{self.kernels} kernels of {self.configs} decisions, must be 1 of 1 or more")


@dataclass(frozen=True)
class OptimizerSpec:
    """Adam and its learning rate.

    Attributes:
        learning_rate: learning rate at the start.
        schedule: `exponential` multiplies by `decay` after every epoch (lpm2021, table 6); `cosine` falls
            from `learning_rate` to `decay` times that over the whole training.
        decay: factor of the learning rate, after every epoch or at the end; see `schedule`.
        gradient_clip_norm: largest norm of a step's gradient; null for none.
        averaging: share of the weights' running average that a step keeps, the rest being the new weights;
            the average is what is validated and kept. With 0 it is the weights themselves.
        weight_decay: factor by which every step shrinks the weights, times the learning rate (AdamW).
    """

    learning_rate: float = 1e-3
    schedule: Literal["exponential", "cosine"] = "cosine"
    decay: float = 0.02
    gradient_clip_norm: float | None = 1.0
    averaging: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        if self.learning_rate <= 0.0:
            raise ValueError(f"learning_rate is {self.learning_rate}, must be above zero")
        if not 0.0 < self.decay <= 1.0:
            raise ValueError(f"decay is {self.decay}, must be in (0, 1]")
        if not 0.0 <= self.averaging < 1.0:
            raise ValueError(f"averaging is {self.averaging}, must be in [0, 1)")
        if self.weight_decay < 0.0:
            raise ValueError(f"weight_decay is {self.weight_decay}, must not be negative")
        if self.gradient_clip_norm is not None and self.gradient_clip_norm <= 0.0:
            raise ValueError(f"gradient_clip_norm is {self.gradient_clip_norm}, must be above zero or null")

    def rate(self, step: int, steps_per_epoch: int, epochs: int) -> float:
        """Returns the learning rate of a step, a function of its number alone: resuming needs no state."""
        if self.schedule == "exponential":
            return float(self.learning_rate * self.decay ** (step // steps_per_epoch))
        progress = min(1.0, step / (steps_per_epoch * epochs))
        factor = self.decay + (1.0 - self.decay) * 0.5 * (1.0 + math.cos(math.pi * progress))
        return self.learning_rate * factor

    def kept_of_average(self, step: int) -> float:
        """Returns the share of the average that a step (from 0) keeps: less at first, to forget the start."""
        return min(self.averaging, (1.0 + step) / (10.0 + step))


@dataclass(frozen=True)
class TrainSpec:
    """Everything that a training run depends on, beside its data.

    Attributes:
        seed: seed of initial weights, batches, validation sample and dropout.
        net: the network.
        loss: loss by its name in `losses.LOSSES`.
        batch: how training batches are drawn.
        validation: what is validated on after every epoch.
        optimizer: Adam, its learning rate and clipping.
        epochs: largest number of epochs.
        patience: number of epochs without a better validation metric after which training stops.
        monitor: validation metric: `tau` or `opa` (larger is better), `ape`, `slowdown` or `mape` (smaller is
            better; `mape` needs a loss of runtimes).
        start: what a network that predicts log runtimes starts at: the `mean` over the training data, a
            constant beside the weights, or `zero`, as in the papers. Rank losses ignore it.
        transform: transformation of features before scaling.
        drop_features: endings of the names of features that the network does not read.
        precision: `fp32`, or `bf16` for mixed precision.
        accelerator: `cpu`, `gpu`, or `auto` for a GPU where there is one; predictions run there, too.
        execution: threads and matrix library on a CPU.
    """

    seed: int = 0
    net: NetSpec = field(default_factory=NetSpec)
    loss: LossName = "hinge"
    batch: BatchSpec = field(default_factory=BatchSpec)
    validation: ValidationSpec = field(default_factory=ValidationSpec)
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    epochs: int = 20
    patience: int = 8
    monitor: Monitor = "tau"
    start: Literal["mean", "zero"] = "mean"
    transform: Transform = "log1p"
    drop_features: tuple[str, ...] = ()
    precision: Literal["fp32", "bf16"] = "fp32"
    accelerator: Accelerator = "cpu"
    execution: Execution = field(default_factory=Execution)

    def __post_init__(self) -> None:
        for name in ("epochs", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least 1")
        if self.monitor == "mape" and PREDICTS[self.loss] != "log_runtime_ns":
            raise ValueError(f"monitor is mape, which needs absolute runtimes; loss {self.loss} ranks")
        for ending in self.drop_features:
            if not any(feature.name.endswith(ending) for feature in _FEATURES):
                raise ValueError(f"drop_features: no feature's name ends with {ending!r}")

    @property
    def steps_per_epoch(self) -> int:
        """Steps between two validations."""
        return self.batch.per_epoch

    @property
    def per_step(self) -> tuple[int, int]:
        """Kernels per step, and decisions of each at most."""
        return self.batch.kernels, self.batch.configs


def monitored(monitor: Monitor) -> tuple[str, bool]:
    """Returns the name of a monitored metric among those of an epoch, and whether larger is better."""
    return _MONITORS[monitor], monitor in ("tau", "opa")
