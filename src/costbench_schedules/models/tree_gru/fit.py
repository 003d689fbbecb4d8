"""Trains a TreeGRU on measured schedules, from scratch, by either objective."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from costbench import rng
from costbench.arrays import F64
from costbench_schedules.features.trees import LoopTrees
from costbench_schedules.models.learner import Objective, Samples
from costbench_schedules.models.training import Fitted, TrainingSpec, predicted, train
from costbench_schedules.models.tree_gru.network import TreeGru, TreeGruSpec, tree_batch


@dataclass(frozen=True)
class TreeGruLearner:
    """A `Learner` of `LoopTrees`.

    Attributes:
        objective: of the costs.
        spec: size of the network.
        training: how long it is trained.
        device: where to train and predict.
    """

    objective: Objective = "rank"
    spec: TreeGruSpec = field(default_factory=TreeGruSpec)
    training: TrainingSpec = field(default_factory=TrainingSpec)
    device: str = "cpu"

    def fit(self, features: LoopTrees, samples: Samples, seed: int, /) -> TrainedTreeGru:
        """Returns a trained network."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(rng.stream(seed, "tree_gru", "weights").integers(2**31)))
            net = TreeGru(self.spec).to(self.device)
        net.scale_like(tree_batch(features, self.device).values)
        fitted = Fitted(
            samples, self.objective, lambda places: net(tree_batch(features[places], self.device))
        )
        train(net, fitted, self.training, rng.stream(seed, "tree_gru", "batches"))
        return TrainedTreeGru(net.eval(), self.device)


@dataclass(frozen=True, eq=False)
class TrainedTreeGru:
    """A `ScheduleModel` of `LoopTrees`.

    Attributes:
        net: trained.
        device: where it lies.
    """

    net: TreeGru
    device: str = "cpu"

    def predict(self, features: LoopTrees, /) -> F64:
        """Returns costs, float64 [n]."""
        return predicted(lambda places: self._costs(features[places]), len(features))

    @torch.inference_mode()
    def _costs(self, trees: LoopTrees) -> F64:
        costs: Tensor = self.net(tree_batch(trees, self.device))
        return costs.cpu().numpy().astype(np.float64)
