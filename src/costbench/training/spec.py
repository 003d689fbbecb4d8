"""Hyper-parameters of trainings and their results, as plain values: all that they depend on beside data.

Modules that only read them need not load torch.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar, get_type_hints

from costbench.execution.dotted import is_part
from costbench.features.normalizer import Transform
from costbench.features.schema import DECISION_FEATURES, NODE_FEATURES, STATIC_FEATURES
from costbench.models.spec import (
    LAYOUT_ENCODERS,
    Accelerator,
    Execution,
    LayoutNetSpec,
    NetSpec,
    Predicts,
)
from costbench.params import later
from costbench.tasks import LEARNED
from costbench.training.validation import (
    VALIDATION_APE,
    VALIDATION_MAPE,
    VALIDATION_OPA,
    VALIDATION_SLOWDOWN,
    VALIDATION_TAU,
)

_FEATURES = (*NODE_FEATURES, *DECISION_FEATURES, *STATIC_FEATURES)
Precision = Literal["fp32", "bf16"]
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
PREDICTS: Mapping[str, Predicts] = {
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


def _require_loss(loss: str, known: Collection[str]) -> None:
    if loss not in known and not is_part(loss):
        near = difflib.get_close_matches(loss, known, n=1)
        hint = f", did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"loss is {loss!r}{hint}, must be one of {', '.join(known)}, or module:function")


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
    """Optimiser and learning rate.

    Attributes:
        method: `adam`; `muon`, which makes the steps of weight matrices orthogonal; or `soap`, which takes
            Adam's in the directions in which their gradients vary. Both leave other parameters to Adam;
            learning rates are alike.
        learning_rate: learning rate at the start.
        schedule: `exponential` multiplies by `decay` after every epoch (lpm2021, table 6); `cosine` falls
            from `learning_rate` to `decay` times that over the whole training.
        decay: factor of the learning rate, after every epoch or at the end; see `schedule`.
        gradient_clip_norm: largest norm of a step's gradient; null for none.
        averaging: share of the weights' running average that a step keeps, the rest being the new weights;
            the average is what is validated and kept. With 0 it is the weights themselves.
        weight_decay: factor by which every step shrinks the weights, times the learning rate (AdamW).
    """

    method: Literal["adam", "muon", "soap"] = later("adam")
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
class PretrainedSpec:
    """The model whose weights training starts from: a trained cell of the same split and seed.

    Attributes:
        experiment: experiment that trained it.
        chip: chip that it was trained for.
        variant: variant of that experiment, whose network is the same.
    """

    experiment: str
    chip: str
    variant: str = "main"


@dataclass(frozen=True)
class TrainSpec:
    """Everything that a training run depends on, beside its data.

    Attributes:
        seed: seed of initial weights, batches, validation sample and dropout.
        net: the network.
        loss: loss by its name in `losses.LOSSES`, or a function of your own, `module:function`.
        batch: how training batches are drawn.
        validation: what is validated on after every epoch.
        optimizer: optimiser, its learning rate and clipping.
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
        max_kernels: largest number of training kernels, drawn evenly from all applications; those of a
            smaller number are among those of a larger. 0 for all.
        pretrained: model that training starts from, with its scaling of features; null for drawn weights.
    """

    seed: int = 0
    net: NetSpec = field(default_factory=NetSpec)
    loss: LossName | str = "hinge"
    batch: BatchSpec = field(default_factory=BatchSpec)
    validation: ValidationSpec = field(default_factory=ValidationSpec)
    optimizer: OptimizerSpec = field(default_factory=OptimizerSpec)
    epochs: int = 20
    patience: int = 8
    monitor: Monitor = "tau"
    start: Literal["mean", "zero"] = "mean"
    transform: Transform = "log1p"
    drop_features: tuple[str, ...] = ()
    precision: Precision = "fp32"
    accelerator: Accelerator = "cpu"
    execution: Execution = field(default_factory=Execution)
    max_kernels: int = later(0)
    pretrained: PretrainedSpec | None = later(None)  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        for name in ("epochs", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least 1")
        if self.max_kernels < 0:
            raise ValueError(f"max_kernels is {self.max_kernels}, must not be negative")
        _require_loss(self.loss, PREDICTS)
        # What a loss of a user's own predicts is known once it is loaded.
        if self.monitor == "mape" and PREDICTS.get(self.loss, "log_runtime_ns") != "log_runtime_ns":
            raise ValueError(f"monitor is mape, which needs absolute runtimes; loss {self.loss} ranks")
        for ending in self.drop_features:
            if not any(feature.name.endswith(ending) for feature in _FEATURES):
                raise ValueError(f"drop_features: no feature's name ends with {ending!r}")

    @property
    def steps_per_epoch(self) -> int:
        """Steps between two validations."""
        return self.batch.per_epoch

    @property
    def estimate(self) -> str:
        """Quality of the estimates that training reads; empty for that of the chip's compiler."""
        return self.net.estimate

    @property
    def features(self) -> str:
        """Further features of nodes that training reads, by dotted path; empty for none."""
        return self.net.features

    @property
    def parts(self) -> dict[str, str]:
        """Returns the dotted paths of the parts that are a user's own, by the names of their fields."""
        parts = {f"net.{name}": text for name, text in self.net.parts.items()}
        return parts | ({"loss": self.loss} if is_part(self.loss) else {})

    @property
    def per_step(self) -> tuple[int, int]:
        """Kernels per step, and decisions of each at most."""
        return self.batch.kernels, self.batch.configs


def monitored_metric(monitor: Monitor) -> tuple[str, bool]:
    """Returns the name of a monitored metric among those of an epoch, and whether larger is better."""
    return _MONITORS[monitor], monitor in ("tau", "opa")


LayoutLoss = Literal["hinge", "listmle", "logistic", "mse"]
LAYOUT_PREDICTS: Mapping[str, Predicts] = {
    "hinge": "score",
    "listmle": "score",
    "logistic": "score",
    "mse": "log_runtime_ns",
}
"""What a network trained with a loss of `losses.layout_loss` predicts."""

LayoutMonitor = Literal["opa", "tau"]


@dataclass(frozen=True)
class SamplingSpec:
    """How the configs of a step are drawn.

    Attributes:
        graphs: graphs per step, each with configs of its own; losses are averaged.
        configs: configs per graph, or all of a graph that has fewer.
        method: `uniform`, or `spread`: one from each of `configs` equal parts of the configs sorted by
            runtime, so that every step has fast, slow and middling ones.
        deduplicate: whether equal configs count once, at the mean of their runtimes.
        pool: number of configs of a graph that are trained on at all, drawn once; 0 for all.
    """

    graphs: int = 1
    configs: int = 32
    method: Literal["uniform", "spread"] = "spread"
    deduplicate: bool = True
    pool: int = 0

    def __post_init__(self) -> None:
        if self.graphs < 1:
            raise ValueError(f"graphs is {self.graphs}, must be at least 1")
        if self.configs < 2:
            raise ValueError(f"configs is {self.configs}, must be at least 2 to compare")
        if self.pool < 0 or self.pool == 1:
            raise ValueError(f"pool is {self.pool}, must be 0 for all or at least 2")


@dataclass(frozen=True)
class SegmentSpec:
    """Graph segment training: forward through the whole graph, backward through one segment of it.

    Attributes:
        nodes: length of a segment in nodes, in topological order; 0 for the whole graph. The segment begins
            at a node drawn in every step (tpugraphs2023, appendix B; 5,000 there).
        historical: pool the other parts as they were when a config was last drawn, instead of computing
            them again (Cao et al., 2023, section 3.3). Segments are then the parts of the network's graph,
            `LayoutNetSpec.part_nodes`, and `nodes` says nothing.
        dropout: share of historical parts that are left out of a step, the trained part counting more
            (section 3.4 there, "stale embedding dropout").
    """

    nodes: int = 0
    historical: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.nodes < 0:
            raise ValueError(f"nodes is {self.nodes}, must not be negative")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout is {self.dropout}, must be in [0, 1)")
        if self.dropout and not self.historical:
            raise ValueError("dropout is of historical parts, which are off")


@dataclass(frozen=True)
class HoldOutSpec:
    """Shares of a graph's configs that are kept apart when no other graphs are given for validation.

    Attributes:
        validation: configs that choose the best model.
        unseen: configs that the training never sees, for the caller to score (`hold_out_configs`).
    """

    validation: float = 0.1
    unseen: float = 0.2

    def __post_init__(self) -> None:
        if min(self.validation, self.unseen) < 0.0 or self.validation + self.unseen >= 1.0:
            raise ValueError(
                f"shares {self.validation} and {self.unseen} must be 0 or more and below 1 in sum"
            )


@dataclass(frozen=True)
class LayoutTrainSpec:
    """A training of a layout network.

    Attributes:
        seed: seed of weights, draws, and the division of configs where there are no validation graphs.
        net: the network.
        loss: `hinge` and `logistic` over pairs, `listmle`, `mse` of log runtime, or a function of your own,
            `module:function`.
        margin: margin of `hinge`, by which a slower config should score higher.
        margin_grows: multiply the margin of a pair by its difference of log runtime in units of the step's
            standard deviation, so that far pairs should lie farther apart.
        sampling: how configs are drawn.
        segments: what a step's gradient goes through.
        hold_out: which configs are kept apart where there are no validation graphs.
        optimizer: optimiser, its learning rate, clipping and weight averaging.
        steps_per_epoch: steps between two validations.
        epochs: largest number of epochs.
        patience: number of epochs without a better validation metric after which training stops.
        monitor: validation metric: `opa`, ordered-pair accuracy (tpugraphs2023, section 4.3), or `tau`, mean
            over graphs.
        validation_configs: configs of each graph that are validated on, evenly spaced by runtime.
        transform: transformation of node features before scaling.
        execution: threads and matrix library on a CPU.
        accelerator: `cpu`, `gpu`, or `auto` for a GPU where there is one; predictions run there, too.
    """

    seed: int = 0
    net: LayoutNetSpec = field(default_factory=LayoutNetSpec)
    loss: LayoutLoss | str = "hinge"
    margin: float = 1.0
    margin_grows: bool = False
    sampling: SamplingSpec = field(default_factory=SamplingSpec)
    segments: SegmentSpec = field(default_factory=SegmentSpec)
    hold_out: HoldOutSpec = field(default_factory=HoldOutSpec)
    optimizer: OptimizerSpec = field(default_factory=lambda: OptimizerSpec(averaging=0.99))
    steps_per_epoch: int = 200
    epochs: int = 20
    patience: int = 8
    monitor: LayoutMonitor = "opa"
    validation_configs: int = 1000
    transform: Transform = "log1p"
    execution: Execution = field(default_factory=Execution)
    accelerator: Accelerator = later("cpu")  # noqa: RUF009 - frozen

    def __post_init__(self) -> None:
        for name in ("steps_per_epoch", "epochs", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least 1")
        _require_loss(self.loss, LAYOUT_PREDICTS)
        if self.validation_configs < 2:
            raise ValueError(f"validation_configs is {self.validation_configs}, must be at least 2")
        if not (math.isfinite(self.margin) and self.margin > 0.0):
            raise ValueError(f"margin is {self.margin}, must be above zero")
        if self.segments.historical and not self.net.part_nodes:
            raise ValueError("segments.historical needs net.part_nodes, the parts whose states are kept")
        if self.segments.historical and any(not name.endswith("mean") for name in self.net.pooling):
            raise ValueError(f"segments.historical needs pooling by means, not {list(self.net.pooling)}")
        if (self.segments.nodes or self.segments.historical) and self.net.encoder not in LAYOUT_ENCODERS:
            raise ValueError(f"segments need encoder graphsage, gcn or none, not {self.net.encoder}")

    @property
    def precision(self) -> Precision:
        """Precision of the training."""
        return "fp32"

    @property
    def estimate(self) -> str:
        """Quality of the estimates that training reads: there are none of layouts."""
        return ""

    @property
    def features(self) -> str:
        """Further features of nodes that training reads: there are none of layouts."""
        return ""

    @property
    def parts(self) -> dict[str, str]:
        """Returns the dotted paths of the parts that are a user's own, by the names of their fields."""
        parts = {f"net.{name}": text for name, text in self.net.parts.items()}
        return parts | ({"loss": self.loss} if is_part(self.loss) else {})

    @property
    def per_step(self) -> tuple[int, int]:
        """Graphs per step, and configs of each at most."""
        return self.sampling.graphs, self.sampling.configs


AnyTrainSpec = TrainSpec | LayoutTrainSpec
AnySpec = TypeVar("AnySpec", bound=AnyTrainSpec)


@dataclass(frozen=True)
class TrainParams:
    """Section `train`: settings that the variants of experiments change. Seeds are given by the experiments.

    Attributes:
        cache_mb: memory of a process for kernels, which are read repeatedly, in MB.
        tile: network, loss, batches and optimiser for the choice of tile sizes.
        fusion: network, loss, batches and optimiser for runtimes of fused kernels.
        layout: network, loss, samples and optimiser for the layouts of whole programs.
    """

    cache_mb: int
    tile: TrainSpec
    fusion: TrainSpec
    layout: LayoutTrainSpec

    def __post_init__(self) -> None:
        for name in LEARNED:
            if getattr(self, name).seed != 0:
                raise ValueError(f"{name}.seed is taken from experiments, and must be left out")


@dataclass(frozen=True)
class SweptModels:
    """The settings that trials change, by task; None for tasks that are not swept.

    Attributes:
        tile: changes to `train.tile`.
        fusion: changes to `train.fusion`.
        layout: changes to `train.layout`.
    """

    tile: TrainSpec | None = None
    fusion: TrainSpec | None = None
    layout: LayoutTrainSpec | None = None

    @property
    def by_task(self) -> dict[str, AnyTrainSpec]:
        """Return the settings of the tasks that are swept."""
        settings = {name: getattr(self, name) for name in LEARNED}
        return {name: spec for name, spec in settings.items() if spec is not None}


SPECS: Mapping[str, type[AnyTrainSpec]] = {
    name: hint for name, hint in get_type_hints(TrainParams).items() if name in LEARNED
}
"""Type of the settings by task; parameter files are checked against them."""


@dataclass(frozen=True)
class FitResult:
    """A finished training.

    Attributes:
        checkpoint: folder of the best model, for `models.checkpoint.load_checkpoint`; of a layout network for
            `models.layout.model.load_layout_model`.
        best_metric: the monitored validation metric of that model.
        best_epoch: the epoch of that model, from 0.
        steps: number of training steps.
        seconds: wall time of this call; not part of any result.
        execution: GPU, or matrix library and threads; see `execution.describe_execution`.
        computed_by: what computed the network, `compiled` kernels or the `plain` network; empty where there
            is one implementation only.
    """

    checkpoint: Path
    best_metric: float
    best_epoch: int
    steps: int
    seconds: float
    execution: str
    computed_by: str
