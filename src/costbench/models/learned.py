"""The learned cost model of lpm2021 as a `CostModel`.

`LearnedCostNet` is the network over batches; `LearnedCostModel` adds scaling and feature extraction.

A hybrid (`NetSpec.residual`) adds the network's output to the logarithm of the analytical model's estimate,
so it learns only what that model gets wrong; lpm2021 compares the two models and does not combine them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.tiling.sizes import TileSizes
from costbench.errors import DataError
from costbench.features.config import decision_features
from costbench.features.graph_tensors import KernelGraph, ProgramFeatureCache, kernel_graph
from costbench.features.packed_kernels import PackedKernels
from costbench.models.batch.graph_batch import (
    Collator,
    FeatureScaling,
    FloatArray,
    GraphBatch,
    KernelSamples,
    packed_samples,
)
from costbench.models.cost_model import CostModel
from costbench.models.execution import applied, choose_products
from costbench.models.execution_spec import DEFAULT_EXECUTION, Execution
from costbench.models.kernels.dispatch import ComputedBy, compiled_forward
from costbench.models.net_spec import Predicts
from costbench.models.networks.cost_network import CostNetwork


class LearnedCostNet(CostNetwork):
    """`CostNetwork`, computed by compiled kernels where there are any.

    Attributes:
        computed_by: what computed the last batch; None before the first.
    """

    computed_by: ComputedBy | None = None

    def forward(self, batch: GraphBatch) -> Tensor:
        """Costs [K, C] of a batch; those of padding mean nothing.

        Raises:
            DataError: if a hybrid is given kernels without analytical estimates.
        """
        compiled = compiled_forward(self, batch)
        self.computed_by = "plain" if compiled is None else "compiled"
        if compiled is not None:
            return compiled(batch)
        # Before any product: what the last batch chose must not matter to this one.
        choose_products(len(batch.opcodes) * batch.mask.shape[1])
        return super().forward(batch)


CHUNK_CONFIGS = 500
"""Decisions per pass of the network: enough to be fast, few enough for the caches."""
CHUNK_ROWS = 131_072
"""Largest number of (node, decision) pairs per pass: bounds memory for kernels of thousands of nodes."""
_LARGEST_EXPONENT = 700.0


class LearnedCostModel:
    """A trained network as a `CostModel`, runtimes in nanoseconds where it was trained on those.

    Args:
        net: the network.
        scaling: scalers that it was trained with.
        predicts: what its output means.
        execution: how to run it on a CPU.
        analytical: the model whose errors a hybrid has learned, for the chip that is predicted for; asked for
            kernels that come without its estimates.
        device: where to run the network.
    """

    def __init__(
        self,
        net: LearnedCostNet,
        scaling: FeatureScaling,
        predicts: Predicts,
        execution: Execution = DEFAULT_EXECUTION,
        analytical: CostModel | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self._device = torch.device(device)
        self.net = net.eval().to(self._device)
        self.scaling = scaling
        self.predicts = predicts
        self._execution = execution
        self._analytical = analytical
        self._collator = Collator(scaling, net.spec.max_neighbors, net.spec.neighbors)
        self._features = ProgramFeatureCache()

    def predict(self, kernel: Kernel, decisions: TileSizes) -> npt.NDArray[np.float64]:
        """Cost of each tile size, float64 [n]; lower is faster.

        Raises:
            UnsupportedKernelError: for an opcode without a cost rule.
            DataError: for a hybrid that was given no analytical model.
        """
        graph, features = (
            kernel_graph(kernel, self._features),
            decision_features(loop_nest(kernel), decisions),
        )
        return self.predict_graph(graph, features, self.estimates(kernel, decisions))

    def estimates(self, kernel: Kernel, decisions: TileSizes) -> npt.NDArray[np.float64] | None:
        """Nanoseconds that a hybrid corrects, float64 [n]; None where there is nothing to ask."""
        if self.net.spec.residual == "none" or self._analytical is None:
            return None
        return self._analytical.predict(kernel, decisions)

    def predict_graph(
        self,
        graph: KernelGraph,
        config_features: FloatArray,
        analytical_ns: npt.NDArray[np.float64] | None = None,
    ) -> npt.NDArray[np.float64]:
        """Costs for extracted features: config_features float32 [n, F], estimates float64 [n] to float64 [n].

        Raises:
            DataError: for a hybrid without estimates.
        """
        step = max(1, min(CHUNK_CONFIGS, CHUNK_ROWS // graph.num_nodes))
        whole = KernelSamples(
            graph, config_features, np.ones(len(config_features)), group="", analytical_ns=analytical_ns
        )
        places = np.arange(len(whole))
        starts = range(0, len(whole), step)
        with applied(self._execution), torch.inference_mode():
            chunks = [self._costs([whole.select(places[start : start + step])])[0] for start in starts]
        return self._runtimes(np.concatenate([np.empty(0), *chunks]))

    def predict_kernels(self, samples: Sequence[KernelSamples]) -> list[npt.NDArray[np.float64]]:
        """Costs of the decisions of each of several kernels, float64 [c] each; small ones share a pass."""
        if not samples:
            return []
        groups: list[list[KernelSamples]] = [[]]
        rows = 0
        for sample in samples:
            own = sample.graph.num_nodes * len(sample)
            if groups[-1] and rows + own > CHUNK_ROWS:
                groups.append([])
                rows = 0
            groups[-1].append(sample)
            rows += own
        with applied(self._execution), torch.inference_mode():
            return [self._runtimes(costs) for group in groups for costs in self._costs(group)]

    def predict_packed(self, kernels: PackedKernels) -> npt.NDArray[np.float64]:
        """Costs of the decisions of kernels that lie end to end, float64 [D], in one pass of the network."""
        with applied(self._execution), torch.inference_mode():
            costs, mask = self._network_costs(kernels)
        return self._runtimes(costs[mask])

    def _costs(self, samples: Sequence[KernelSamples]) -> list[npt.NDArray[np.float64]]:
        costs, _ = self._network_costs(packed_samples(samples))
        return [row[: len(sample)] for row, sample in zip(costs[: len(samples)], samples, strict=True)]

    def _network_costs(self, kernels: PackedKernels) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
        """Costs and mask [K, C] of a batch of all kernels; padded to few sizes where oneDNN multiplies."""
        on_cpu = self._device.type == "cpu"
        batch = self._collator.collate(kernels, even=on_cpu)
        costs: Tensor = self.net(batch if on_cpu else batch.to(self._device))
        return costs.cpu().numpy().astype(np.float64), batch.mask.numpy()

    def _runtimes(self, costs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        if not np.isfinite(costs).all():
            raise DataError("the network's costs are not finite", field="costs", expected="finite numbers")
        if self.predicts == "log_runtime_ns":
            return np.exp(np.minimum(costs, _LARGEST_EXPONENT))
        return costs
