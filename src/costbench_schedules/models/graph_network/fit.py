"""Trains the networks of the tile task (lpm2021, section 3) on schedules: a graph for every schedule.

A schedule is a kernel with one decision: what differs between schedules is in the graph. Where a node of a
kernel has its opcode, a node of a schedule has its kind: loop, or which statement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from costbench import rng
from costbench.arrays import F64, I64
from costbench.features.normalizer import MinMaxNormalizer
from costbench.features.packed_kernels import PackedKernels
from costbench.models.batch.graph_batch import Collator, FeatureScaling
from costbench.models.execution import applied
from costbench.models.execution_spec import DEFAULT_EXECUTION
from costbench.models.learned import LearnedCostModel, LearnedCostNet
from costbench.models.net_spec import NetSpec
from costbench_schedules.features.context import FEATURE_NAMES
from costbench_schedules.features.graphs import loop_graphs
from costbench_schedules.features.trees import LoopTrees
from costbench_schedules.models.graph_network.presets import GNN, GNN_TRAINING
from costbench_schedules.models.learner import Objective, Samples
from costbench_schedules.models.training import Fitted, TrainingSpec, predicted, train


@dataclass(frozen=True)
class GraphLearner:
    """A `Learner` of `LoopTrees`.

    Attributes:
        objective: of the costs.
        spec: of the network; features of decisions and static features do not exist.
        training: how long it is trained.
    """

    objective: Objective = "rank"
    spec: NetSpec = GNN
    training: TrainingSpec = GNN_TRAINING

    def fit(self, features: LoopTrees, samples: Samples, seed: int, /) -> TrainedGraphNetwork:
        """Returns a trained network.

        Its level (`CostNetwork`) is the mean of what is fitted by the regression objective.
        """
        scaling = scaling_of(features)
        with torch.random.fork_rng(devices=[]):
            weights = int(rng.stream(seed, "graph_network", "weights").integers(2**31))
            net = LearnedCostNet(self.spec, scaling.sizes, weights)
        if self.objective == "regression":
            net.level.fill_(float(np.mean(-samples.speed - samples.start)))
        collator = Collator(scaling, self.spec.max_neighbors, self.spec.neighbors)
        # Scaled once, and not in every epoch.
        scaled = replace(features, values=scaling.node(features.values))

        def costs(places: I64) -> Tensor:
            found: Tensor = net(collator.collate(packed(scaled[places], scaling)))
            return found[:, 0]

        fitted = Fitted(samples, self.objective, costs)
        with applied(DEFAULT_EXECUTION):
            train(net, fitted, self.training, rng.stream(seed, "graph_network", "batches"))
        return TrainedGraphNetwork(net, scaling)


class TrainedGraphNetwork:
    """A `ScheduleModel` of `LoopTrees`.

    Args:
        net: trained.
        scaling: of its nodes.
    """

    def __init__(self, net: LearnedCostNet, scaling: FeatureScaling) -> None:
        self.net, self.scaling = net, scaling
        self._model = LearnedCostModel(net, scaling, "score")

    def predict(self, features: LoopTrees, /) -> F64:
        """Returns costs, float64 [n]."""
        return predicted(lambda places: self._model.predict_packed(packed(features[places])), len(features))


def scaling_of(trees: LoopTrees) -> FeatureScaling:
    """Returns the scaling by the extremes of all nodes; context features are logarithms already."""
    return _node_scaling(MinMaxNormalizer.fit([trees.values[trees.depths > 0]], names=FEATURE_NAMES))


def restored(spec: NetSpec, scaler: Mapping[str, Any]) -> TrainedGraphNetwork:
    """Returns a network with the weights of a new one.

    Args:
        spec: of the network.
        scaler: of its nodes, as `MinMaxNormalizer.to_dict` describes it.

    Raises:
        DataError, ChoiceError or ParamsError: for a scaler or a network that cannot be.
    """
    scaling = _node_scaling(MinMaxNormalizer.from_dict(scaler))
    return TrainedGraphNetwork(LearnedCostNet(spec, scaling.sizes), scaling)


def _node_scaling(node: MinMaxNormalizer) -> FeatureScaling:
    """Returns the scaling of graphs: all features but those of nodes are one constant, which is dropped."""
    none = MinMaxNormalizer(np.zeros(1), np.zeros(1))
    return FeatureScaling(node, none, none)


def packed(trees: LoopTrees, scaled_by: FeatureScaling | None = None) -> PackedKernels:
    """Returns schedules as kernels of one decision each, in order, with runtimes of 1.

    Args:
        trees: the schedules.
        scaled_by: what has scaled their features; None if nothing has.
    """
    graphs, count = loop_graphs(trees), len(trees)
    none = np.zeros((count, 1 if scaled_by is None else 0), np.float32)
    return PackedKernels(
        opcodes=graphs.kinds,
        node_features=graphs.values,
        node_counts=graphs.counts,
        edges=graphs.edges,
        static_features=none,
        config_features=none,
        config_counts=np.ones(count, np.int64),
        runtime_ns=np.ones(count),
        scaled_by=scaled_by,
    )
