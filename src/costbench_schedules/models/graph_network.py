"""The networks of the tile task (lpm2021, section 3) on schedules: a graph network and an LSTM.

Every schedule is a graph of loops and statements, and a kernel with one decision: what differs between
schedules is in the graph. Where a node of a kernel has its opcode, a node of a schedule has its kind: loop,
or which statement. docs/schedule_models.md says why the networks have these sizes.
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
from costbench.models.execution import apply_execution
from costbench.models.graph_batch import Collator, FeatureScaling
from costbench.models.learned import LearnedCostModel, LearnedCostNet
from costbench.models.spec import DEFAULT_EXECUTION, NetSpec
from costbench_schedules.features.context import FEATURE_NAMES
from costbench_schedules.features.trees import LoopTrees, loop_graphs
from costbench_schedules.models.learner import Objective, Samples
from costbench_schedules.models.training import SampleLoss, TrainingSpec, predict_in_chunks, train

GNN = NetSpec(
    encoder="graphsage",
    reduction="column-wise",
    hidden=32,
    opcode_embedding=8,
    encoder_layers=2,
    node_final_layers=1,
    decision_features="off",
)
"""GraphSAGE, and mean and maximum over nodes."""
GNN_TRAINING = TrainingSpec(epochs=60, batch=64, learning_rate=5e-3, max_steps=1200)
LSTM = NetSpec(
    encoder="none",
    reduction="lstm",
    hidden=32,
    opcode_embedding=8,
    node_final_layers=1,
    decision_features="off",
)
"""The last state of an LSTM over the nodes in program order."""
LSTM_TRAINING = TrainingSpec(epochs=60, batch=64, learning_rate=1e-2, max_steps=1200)


@dataclass(frozen=True)
class GraphLearner:
    """A `Learner` of `LoopTrees`.

    Attributes:
        objective: what the costs are fitted to.
        spec: size of the network; features of decisions and static features do not exist.
        training: length and pace of the training.
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

        def costs(indices: I64) -> Tensor:
            batch_costs: Tensor = net(collator.collate(pack_schedules(scaled[indices], scaling)))
            return batch_costs[:, 0]

        loss = SampleLoss(samples, self.objective, costs)
        with apply_execution(DEFAULT_EXECUTION):
            train(net, loss, self.training, rng.stream(seed, "graph_network", "batches"))
        return TrainedGraphNetwork(net, scaling)


class TrainedGraphNetwork:
    """A `ScheduleModel` of `LoopTrees`.

    Args:
        net: trained network.
        scaling: scaling of node features.
    """

    def __init__(self, net: LearnedCostNet, scaling: FeatureScaling) -> None:
        self.net, self.scaling = net, scaling
        self._model = LearnedCostModel(net, scaling, "score")

    def predict(self, features: LoopTrees, /) -> F64:
        """Returns costs, float64 [n]."""
        return predict_in_chunks(
            lambda indices: self._model.predict_packed(pack_schedules(features[indices])), len(features)
        )


def scaling_of(trees: LoopTrees) -> FeatureScaling:
    """Returns the scaling by the extremes of all nodes; context features are logarithms already."""
    return _node_scaling(MinMaxNormalizer.fit([trees.values[trees.depths > 0]], names=FEATURE_NAMES))


def restore_network(spec: NetSpec, scaler: Mapping[str, Any]) -> TrainedGraphNetwork:
    """Returns a network with the weights of a new one.

    Args:
        spec: size of the network.
        scaler: scaler of node features, as `MinMaxNormalizer.to_dict` describes it.

    Raises:
        DataError, ChoiceError or ParamsError: for a scaler or a network that cannot be.
    """
    scaling = _node_scaling(MinMaxNormalizer.from_dict(scaler))
    return TrainedGraphNetwork(LearnedCostNet(spec, scaling.sizes), scaling)


def _node_scaling(node: MinMaxNormalizer) -> FeatureScaling:
    """Returns the scaling of graphs: all features but those of nodes are one constant, which is dropped."""
    none = MinMaxNormalizer(np.zeros(1), np.zeros(1))
    return FeatureScaling(node, none, none)


def pack_schedules(trees: LoopTrees, scaled_by: FeatureScaling | None = None) -> PackedKernels:
    """Returns schedules as kernels of one decision each, in order, with runtimes of 1.

    Args:
        trees: loop trees of the schedules.
        scaled_by: scaling that was applied to their features; None for none.
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
