"""Prices kernels by a trained model; not in `kernel_costs`, since importing torch takes a second."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from costbench.arrays import F64
from costbench.autotuning.kernel_costs import TiledKernels
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.estimate_quality import knowledge_of
from costbench.compiler.kernel import Kernel
from costbench.errors import DataError
from costbench.features.decision_features import decision_features
from costbench.features.graph_tensors import ProgramFeatureCache
from costbench.models.graph_batch import KernelSamples
from costbench.models.learned import LearnedCostModel

_UNKNOWN_NS = np.ones(1)


@dataclass(frozen=True, eq=False)
class LearnedKernels:
    """Kernel costs by a trained model of absolute runtimes.

    Attributes:
        tiled: lowering and choice of tiles of the kernels.
        model: predicts nanoseconds.

    Raises:
        DataError: for a model of relative scores, which cannot be summed over kernels.
    """

    tiled: TiledKernels
    model: LearnedCostModel
    _features: ProgramFeatureCache = field(default_factory=lambda: ProgramFeatureCache(1))

    def __post_init__(self) -> None:
        if self.model.predicts != "log_runtime_ns":
            raise DataError(
                "costs of kernels do not add up",
                field="predicts",
                expected="log_runtime_ns: a model of the fusion task",
            )

    def costs(self, kernels: Sequence[Kernel]) -> F64:
        """Returns predicted nanoseconds, float64 [k]; all kernels form one batch."""
        costs_ns = np.full(len(kernels), np.inf)
        spec, estimator = self.model.net.spec, None
        if spec.residual != "none":
            knowledge = knowledge_of(spec.estimate) if spec.estimate else None
            estimator = AnalyticalModel(self.tiled.architecture, knowledge)
        indices, samples = [], []
        for index, space, extents in self.tiled.tiled(kernels):
            kernel, tile = kernels[index], space.nest.tile_sizes(extents[None])
            graph = self.model.graph(kernel, self._features)
            features = decision_features(space.nest, tile)
            # What a hybrid corrects is computed here, where the kernel is lowered already.
            estimates = estimator.predict_nest(space.nest, tile) if estimator else None
            samples.append(KernelSamples(graph, features, _UNKNOWN_NS, "", estimates))
            indices.append(index)
        for index, costs in zip(indices, self.model.predict_kernels(samples), strict=True):
            costs_ns[index] = costs[0]
        return costs_ns
