"""The whole network of lpm2021, section 3 (figure 3): opcode embedding, graph network, reduction, cost.

Features that all nodes of a kernel share (tile size, static performance) enter at every node ('option 1' of
figure 3) or join after the graph network ('option 2').
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from costbench.errors import DataError
from costbench.hlo.opcode import NUM_OPCODE_CODES
from costbench.models.graph_batch import GraphBatch
from costbench.models.networks.encoders import build_encoder
from costbench.models.networks.layers import FeedForwardStack, JoinedFeedForward, initialize
from costbench.models.networks.pyg_convolutions import draw_weights
from costbench.models.networks.reductions import build_reduction
from costbench.models.spec import InputSizes, NetSpec, Placement


class CostNetwork(nn.Module):
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
        seed: seed of the initial weights.

    Raises:
        ChoiceError: if the encoder or the reduction is unknown.
        ParamsError: if a convolution of PyG, or a class of a user's own, cannot be what it is named for.
    """

    def __init__(self, spec: NetSpec, sizes: InputSizes, seed: int = 0) -> None:
        super().__init__()
        self.spec = spec
        self.sizes = sizes
        self.opcode_embedding = nn.Embedding(NUM_OPCODE_CODES, spec.opcode_embedding)
        self.input = JoinedFeedForward(spec.opcode_embedding + sizes.node, sizes.joined(spec, "node"), spec)
        self.encoder = build_encoder(spec)
        self.final = FeedForwardStack(spec.node_final_layers, spec)
        self.reduction = build_reduction(spec, sizes.joined(spec, "kernel"))
        self.level: Tensor
        self.register_buffer("level", torch.zeros(1))
        self.log_coefficient = nn.Parameter(torch.zeros(1)) if spec.residual == "analytical" else None
        initialize(self, seed)
        draw_weights(nn.ModuleList([self.encoder, self.reduction]), seed)

    def forward(self, batch: GraphBatch) -> Tensor:
        """Returns the costs [K, C] of a batch; those of padding are meaningless.

        Raises:
            DataError: if a hybrid is given kernels without analytical estimates.
        """
        states = self.input(self.node_inputs(batch), self.joined(batch, "node"), batch.kernel_of_node)
        states = self.final(self.encoder(states, batch))
        return self.complete(self.reduction(states, self.joined(batch, "kernel"), batch), batch)

    def node_inputs(self, batch: GraphBatch) -> Tensor:
        """Returns opcode embeddings beside node features: [N, 1, opcode_embedding + sizes.node]."""
        return torch.cat([self.opcode_embedding(batch.opcodes), batch.node_features], dim=-1)[:, None]

    def joined(self, batch: GraphBatch, placement: Placement) -> Tensor:
        """Returns the features that enter at `placement`: [K, C, J]; [K, 1, J] without those of decisions."""
        parts = []
        if self.spec.decision_features == placement:
            parts.append(batch.config_features)
        if self.spec.static_features == placement:
            parts.append(batch.static_features)
        if len(parts) == 2:
            parts[1] = parts[1].expand(-1, parts[0].shape[1], -1)
        return torch.cat(parts, dim=-1) if parts else batch.static_features[..., :0]

    def complete(self, reduced: Tensor, batch: GraphBatch) -> Tensor:
        """Returns costs [K, C]: the reduction's output [K, 1 or C] plus the level and a hybrid's estimates.

        Raises:
            DataError: if a hybrid is given kernels without analytical estimates.
        """
        costs = (reduced + self.level).expand_as(batch.mask)
        if self.log_coefficient is None:
            return costs
        if batch.log_analytical is None:
            problem = "a hybrid needs the analytical model's estimates"
            raise DataError(problem, field="analytical_ns", expected="estimates of all kernels")
        # In double precision, so that different estimates do not round to equal costs.
        return self.log_coefficient.double().exp() * batch.log_analytical + costs
