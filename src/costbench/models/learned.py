"""The learned cost model of lpm2021: opcode embedding, graph network, reduction, one cost per decision.

`LearnedCostNet` is the network over batches; `LearnedCostModel` adds scaling and feature extraction and is
a `CostModel`. Features that all nodes of a kernel share (tile size, static performance) enter at every node
('option 1' of figure 3) or join after the graph network ('option 2').

A hybrid (`NetSpec.residual`) adds the network's output to the logarithm of the analytical model's estimate,
so it learns only what that model gets wrong; lpm2021 compares the two models and does not combine them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.compiler.tiling.sizes import TileSizes
from costbench.errors import DataError, choose
from costbench.features.config import decision_features
from costbench.features.graph_tensors import KernelGraph, ProgramFeatureCache, kernel_graph
from costbench.features.packed_kernels import PackedKernels
from costbench.hlo.opcode import NUM_OPCODE_CODES
from costbench.models.batch.graph_batch import (
    Collator,
    FeatureScaling,
    FloatArray,
    GraphBatch,
    KernelSamples,
    packed_samples,
)
from costbench.models.cost_model import CostModel
from costbench.models.execution import applied, choose_products, runs_compiled
from costbench.models.execution_spec import DEFAULT_EXECUTION, Execution
from costbench.models.kernels.fused import Pass, run_passes
from costbench.models.net_spec import InputSizes, NetSpec, Placement, Predicts
from costbench.models.networks.encoders import ENCODERS
from costbench.models.networks.layers import FeedForwardStack, JoinedFeedForward, initialize
from costbench.models.networks.reductions import REDUCTIONS


class LearnedCostNet(nn.Module):
    """cost = level + reduction(final(encoder(f1(opcode embedding, node features, kernel features)))).

    The level is a constant: the mean of what is predicted over the training data where that is a logarithm of
    runtimes, else 0. Without it a network without biases, which scales with its inputs, spends most of a
    short training on learning that kernels take microseconds.

    With `spec.residual` cost = exp(w) * log(analytical estimate in ns) + that, w a weight that starts at 0: a
    rank loss asks for margins between costs that logarithms of runtimes do not have. A network that returns
    zeros thus ranks as the analytical model does.

    Args:
        spec: hyper-parameters.
        sizes: widths of the scaled features.
        seed: of the initial weights.

    Raises:
        ChoiceError: if the encoder or the reduction is unknown.
    """

    def __init__(self, spec: NetSpec, sizes: InputSizes, seed: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self.sizes = sizes
        self.opcode_embedding = nn.Embedding(NUM_OPCODE_CODES, spec.opcode_embedding)
        self.input = JoinedFeedForward(spec.opcode_embedding + sizes.node, sizes.joined(spec, "node"), spec)
        self.encoder = choose(ENCODERS, spec.encoder, "encoder")(spec)
        self.final = FeedForwardStack(spec.node_final_layers, spec)
        reduction = choose(REDUCTIONS, spec.reduction, "reduction")
        self.reduction = reduction(spec, sizes.joined(spec, "kernel"))
        self.level: Tensor
        self.register_buffer("level", torch.zeros(1))
        self.log_coefficient = nn.Parameter(torch.zeros(1)) if spec.residual == "analytical" else None
        initialize(self, seed)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Costs [K, C] of a batch; those of padding mean nothing.

        Raises:
            DataError: if a hybrid is given kernels without analytical estimates.
        """
        # Before any product: what the last batch chose must not matter to this one.
        choose_products(len(batch.opcodes) * (1 if self._is_compiled() else batch.mask.shape[1]))
        nodes = torch.cat([self.opcode_embedding(batch.opcodes), batch.node_features], dim=-1)
        costs: Tensor = self.reduction(self._read(nodes, batch), self._joined(batch, "kernel"), batch)
        costs = (costs + self.level).expand_as(batch.mask)
        if self.log_coefficient is None:
            return costs
        if batch.log_analytical is None:
            problem = "a hybrid needs the analytical model's estimates"
            raise DataError(problem, field="analytical_ns", expected="estimates of all kernels")
        # In doubles: costs of different estimates never come to be equal.
        return self.log_coefficient.double().exp() * batch.log_analytical + costs

    def _read(self, nodes: Tensor, batch: GraphBatch) -> Tensor:
        """From node features [N, inputs] to what the reduction reads, in one operation where possible."""
        joined = self._joined(batch, "node")
        states, passes = self.input.begin(nodes[:, None], joined, batch.kernel_of_node)
        # What the passes begun will make of them, as far as parts have to know it.
        alike = states.expand(-1, joined.shape[1], -1) if passes else states
        parts: tuple[tuple[Sequence[Pass] | None, Callable[[Tensor], Tensor]], ...] = (
            (self.encoder.passes(alike, batch), lambda given: self.encoder(given, batch)),
            (self.final.passes(alike), self.final),
            (self.reduction.passes(alike, batch), lambda given: self.reduction.read(given, batch)),
        )
        for more, module in parts:
            if more is None:
                states, passes = module(run_passes(states, passes)), []
            else:
                passes = [*passes, *more]
        return run_passes(states, passes)

    def _is_compiled(self) -> bool:
        """Whether compiled passes multiply all states of decisions: torch then multiplies a row per node."""
        spec = self.spec
        plain = not spec.biases and not spec.module_layers and not (self.training and spec.dropout)
        known = spec.reduction != "transformer" and spec.lstm_layers == 1 and spec.aggregation != "max"
        return plain and known and runs_compiled(self.input.own.weight.t())

    def _joined(self, batch: GraphBatch, place: Placement) -> Tensor:
        """Features that enter at `place`: [K, C, J], or [K, 1, J] where no decision is among them."""
        parts = []
        if self.spec.decision_features == place:
            parts.append(batch.config_features)
        if self.spec.static_features == place:
            parts.append(batch.static_features)
        if len(parts) == 2:
            parts[1] = parts[1].expand(-1, parts[0].shape[1], -1)
        return torch.cat(parts, dim=-1) if parts else batch.static_features[..., :0]


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
    """

    def __init__(
        self,
        net: LearnedCostNet,
        scaling: FeatureScaling,
        predicts: Predicts,
        execution: Execution = DEFAULT_EXECUTION,
        analytical: CostModel | None = None,
    ) -> None:
        self.net = net.eval()
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
        batch = self._collator.collate(kernels, even=True)
        with applied(self._execution), torch.inference_mode():
            costs = self.net(batch)[batch.mask].numpy().astype(np.float64)
        return self._runtimes(costs)

    def _costs(self, samples: Sequence[KernelSamples]) -> list[npt.NDArray[np.float64]]:
        batch = self._collator.collate(packed_samples(samples), even=True)
        costs = self.net(batch).numpy().astype(np.float64)[: len(samples)]
        return [row[: len(sample)] for row, sample in zip(costs, samples, strict=True)]

    def _runtimes(self, costs: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        if not np.isfinite(costs).all():
            raise DataError("the network's costs are not finite", field="costs", expected="finite numbers")
        if self.predicts == "log_runtime_ns":
            return np.exp(np.minimum(costs, _LARGEST_EXPONENT))
        return costs
