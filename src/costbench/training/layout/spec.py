"""Hyper-parameters of a layout training, as plain values: everything it depends on beside data and seed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from costbench.features.normalizer import Transform
from costbench.models.execution_spec import Accelerator, Execution
from costbench.models.layout.net_spec import LayoutNetSpec
from costbench.models.net_spec import Predicts
from costbench.training.spec import OptimizerSpec

LayoutLoss = Literal["hinge", "listmle", "logistic", "mse"]
LAYOUT_PREDICTS: Mapping[LayoutLoss, Predicts] = {
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
        unseen: configs that the training never sees, for the caller to score (`configs.held_out`).
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
        loss: loss: `hinge` and `logistic` over pairs, `listmle`, or `mse` of log runtime.
        margin: margin of `hinge`, by which a slower config should score higher.
        margin_grows: multiply the margin of a pair by its difference of log runtime in units of the step's
            standard deviation, so that far pairs should lie farther apart.
        sampling: how configs are drawn.
        segments: what a step's gradient goes through.
        hold_out: which configs are kept apart where there are no validation graphs.
        optimizer: Adam, its learning rate, clipping and weight averaging.
        steps_per_epoch: steps between two validations.
        epochs: largest number of epochs.
        patience: number of epochs without a better validation metric after which training stops.
        monitor: validation metric: `opa`, ordered-pair accuracy (tpugraphs2023, section 4.3), or `tau`, mean
            over graphs.
        validation_configs: configs of each graph that are validated on, evenly spaced by runtime.
        transform: transformation of node features before scaling.
        execution: threads and matrix library.
    """

    seed: int = 0
    net: LayoutNetSpec = field(default_factory=LayoutNetSpec)
    loss: LayoutLoss = "hinge"
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

    def __post_init__(self) -> None:
        for name in ("steps_per_epoch", "epochs", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least 1")
        if self.validation_configs < 2:
            raise ValueError(f"validation_configs is {self.validation_configs}, must be at least 2")
        if not (math.isfinite(self.margin) and self.margin > 0.0):
            raise ValueError(f"margin is {self.margin}, must be above zero")
        if self.segments.historical and not self.net.part_nodes:
            raise ValueError("segments.historical needs net.part_nodes, the parts whose states are kept")
        if self.segments.historical and any(not name.endswith("mean") for name in self.net.pooling):
            raise ValueError(f"segments.historical needs pooling by means, not {list(self.net.pooling)}")
        if (self.segments.nodes or self.segments.historical) and self.net.encoder.startswith("pyg."):
            raise ValueError(f"segments need encoder graphsage, gcn or none, not {self.net.encoder}")

    @property
    def accelerator(self) -> Accelerator:
        """Where it is trained and predicts: layout networks run on processors."""
        return "cpu"

    @property
    def per_step(self) -> tuple[int, int]:
        """Graphs per step, and configs of each at most."""
        return self.sampling.graphs, self.sampling.configs
