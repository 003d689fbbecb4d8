"""The learned cost model of lpm2021 as a `CostModel`: features, scaling, network, costs.

`LearnedCostNet` maps batches to costs; `LearnedCostModel` extracts features, scales them and builds the
batches.

A hybrid (`NetSpec.residual`) adds the network's output to the logarithm of the analytical model's estimate,
so that it learns only the errors of that model; lpm2021 compares the two models and does not combine them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from costbench.arrays import F32, F64, Bool
from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.spaces import TileSizes
from costbench.errors import DataError
from costbench.features.decision_features import decision_features
from costbench.features.graph_tensors import KernelGraph, ProgramFeatureCache, kernel_graph
from costbench.features.packed_kernels import PackedKernels
from costbench.features.user_features import load_user_features
from costbench.models.cost_model import CostModel
from costbench.models.execution import apply_execution, choose_products
from costbench.models.graph_batch import Collator, FeatureScaling, GraphBatch, KernelSamples, pack_samples
from costbench.models.networks.cost_network import CostNetwork
from costbench.models.spec import DEFAULT_EXECUTION, Execution, Predicts

_LOG = logging.getLogger(__name__)

ComputedBy = Literal["compiled", "plain"]
"""What computed a result: compiled kernels, or the plain network. Results are recorded with it."""
_Forward = Callable[[GraphBatch], Tensor]


@cache
def find_kernels() -> Callable[[CostNetwork, GraphBatch], _Forward | None] | None:
    """Returns `costbench_kernels.dispatch.compiled_forward`, or None where that package is not installed.

    This is the one place where costbench meets its compiled kernels.
    """
    try:
        # At the first batch, since they import the networks that this module builds on.
        from costbench_kernels.dispatch import compiled_forward
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "costbench_kernels":
            raise
        _LOG.info("costbench_kernels is not installed: plain networks run")
        return None
    return compiled_forward


class LearnedCostNet(CostNetwork):
    """A `CostNetwork` that runs through compiled kernels on a CPU where they exist (`costbench_kernels`).

    Attributes:
        computed_by: what computed the last batch; None before the first.
    """

    computed_by: ComputedBy | None = None

    def forward(self, batch: GraphBatch) -> Tensor:
        """Returns the costs [K, C] of a batch; those of padding are meaningless.

        Raises:
            DataError: if a hybrid is given kernels without analytical estimates.
        """
        find_forward = find_kernels()
        forward = None if find_forward is None else find_forward(self, batch)
        self.computed_by = "plain" if forward is None else "compiled"
        if forward is not None:
            return forward(batch)
        # Chosen before any product, so that the choice for the last batch does not affect this one.
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
        execution: settings for running it on a CPU.
        analytical: the analytical model of the chip, whose errors a hybrid has learned; called for kernels
            that come without its estimates.
        device: device to run the network on.
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

    def predict(self, kernel: Kernel, decisions: TileSizes) -> F64:
        """Returns the cost of each tile size, float64 [n]; lower is faster.

        Raises:
            UnsupportedKernelError: for an opcode without a cost rule.
            DataError: for a hybrid that was given no analytical model.
        """
        return self.predict_graph(*self.inputs(kernel, decisions), self.estimates(kernel, decisions))

    def inputs(self, kernel: Kernel, decisions: TileSizes) -> tuple[KernelGraph, F32]:
        """Returns the graph of a kernel and the features of tile sizes, float32 [n, F], before scaling.

        Raises:
            UnsupportedKernelError: for an opcode without a cost rule.
            ParamsError: for features of a user's own that cannot be computed.
        """
        return self.graph(kernel, self._features), decision_features(loop_nest(kernel), decisions)

    def graph(self, kernel: Kernel, cache: ProgramFeatureCache) -> KernelGraph:
        """Returns the graph of a kernel, with the further features of nodes that the network reads.

        Raises:
            UnsupportedKernelError: for an opcode without a cost rule.
            ParamsError: for features of a user's own that cannot be computed.
        """
        graph, extra = kernel_graph(kernel, cache), self.net.spec.features
        return load_user_features(extra).extend(graph, kernel) if extra else graph

    def estimates(self, kernel: Kernel, decisions: TileSizes) -> F64 | None:
        """Returns the estimates that a hybrid corrects, in ns, float64 [n]; None if there are none."""
        if self.net.spec.residual == "none" or self._analytical is None:
            return None
        return self._analytical.predict(kernel, decisions)

    def predict_graph(
        self,
        graph: KernelGraph,
        config_features: F32,
        analytical_ns: F64 | None = None,
    ) -> F64:
        """Returns the costs of extracted features: float32 [n, F], and estimates float64 [n], to float64 [n].

        Raises:
            DataError: for a hybrid without estimates.
        """
        step = max(1, min(CHUNK_CONFIGS, CHUNK_ROWS // graph.num_nodes))
        whole = KernelSamples(
            graph, config_features, np.ones(len(config_features)), group="", analytical_ns=analytical_ns
        )
        indices = np.arange(len(whole))
        starts = range(0, len(whole), step)
        with apply_execution(self._execution), torch.inference_mode():
            chunks = [self._costs([whole.select(indices[start : start + step])])[0] for start in starts]
        return self._runtimes(np.concatenate([np.empty(0), *chunks]))

    def predict_kernels(self, samples: Sequence[KernelSamples]) -> list[F64]:
        """Returns the costs of each kernel's decisions, float64 [c]; small kernels share a network pass."""
        if not samples:
            return []
        groups: list[list[KernelSamples]] = [[]]
        rows = 0
        for sample in samples:
            sample_rows = sample.graph.num_nodes * len(sample)
            if groups[-1] and rows + sample_rows > CHUNK_ROWS:
                groups.append([])
                rows = 0
            groups[-1].append(sample)
            rows += sample_rows
        with apply_execution(self._execution), torch.inference_mode():
            return [self._runtimes(costs) for group in groups for costs in self._costs(group)]

    def predict_packed(self, kernels: PackedKernels) -> F64:
        """Returns the costs of all D decisions of packed kernels, float64 [D], in one network pass."""
        with apply_execution(self._execution), torch.inference_mode():
            costs, mask = self._network_costs(kernels)
        return self._runtimes(costs[mask])

    def _costs(self, samples: Sequence[KernelSamples]) -> list[F64]:
        costs, _ = self._network_costs(pack_samples(samples))
        return [row[: len(sample)] for row, sample in zip(costs[: len(samples)], samples, strict=True)]

    def _network_costs(self, kernels: PackedKernels) -> tuple[F64, Bool]:
        """Returns costs and mask [K, C] of one batch, padded to a few sizes on a CPU (see `even_size`)."""
        on_cpu = self._device.type == "cpu"
        batch = self._collator.collate(kernels, even=on_cpu)
        costs: Tensor = self.net(batch if on_cpu else batch.to(self._device))
        return costs.cpu().numpy().astype(np.float64), batch.mask.numpy()

    def _runtimes(self, costs: F64) -> F64:
        if not np.isfinite(costs).all():
            raise DataError("the network's costs are not finite", field="costs", expected="finite numbers")
        if self.predicts == "log_runtime_ns":
            return np.exp(np.minimum(costs, _LARGEST_EXPONENT))
        return costs
