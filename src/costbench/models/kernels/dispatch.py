"""Decides whether compiled kernels compute a network on a batch, and returns the function that does.

The rest of the package calls only `compiled_forward`. The plain PyTorch network (`models.networks`) defines
the results; the function returned here computes the same on a CPU in float32, equal up to rounding
(`tests/models/kernels/test_dispatch.py`), with fused kernels where there are any and torch modules between
them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, cast

import torch
from torch import Tensor

from costbench.models.batch.graph_batch import GraphBatch
from costbench.models.execution import choose_products, compiled_allowed
from costbench.models.kernels.attention import kernel_transformer
from costbench.models.kernels.gat.hop_kernel import gat_steps
from costbench.models.kernels.layer_kernels import head_steps, join_steps, stack_steps
from costbench.models.kernels.lstm.last_state import lstm_steps
from costbench.models.kernels.register_tiles import NARROW
from costbench.models.kernels.residual import residual_steps
from costbench.models.kernels.sage.hop_kernel import sage_steps
from costbench.models.kernels.statistics import segment_statistics
from costbench.models.kernels.steps import Step, run_steps
from costbench.models.net_spec import NetSpec
from costbench.models.networks.cost_network import CostNetwork
from costbench.models.networks.encoders import GraphAttention, NoGraph
from costbench.models.networks.graphsage import GraphSage
from costbench.models.networks.reductions import (
    AttentionSum,
    ColumnWise,
    LastState,
    PerNode,
    gather_sum,
)
from costbench.models.networks.residual import PREFIX as RESIDUAL
from costbench.models.networks.residual import ResidualHops

WIDEST = 256
"""Largest width of states with compiled kernels; matrix libraries are made for wider products."""

Forward = Callable[[GraphBatch], Tensor]
ComputedBy = Literal["compiled", "plain"]
"""What computed a result: compiled kernels, or the plain network. Results are recorded with it."""


def compiled_forward(network: CostNetwork, batch: GraphBatch) -> Forward | None:
    """Returns a function from a batch like this one to costs [K, C], or None if compiled kernels cannot run.

    They cannot on a GPU, in other types than float32, under autocast, if `Execution.compiled` is False, for
    widths that are above 256 or not a multiple of 16, and for layers that `_has_kernels` excludes.
    """
    tensors = (batch.node_features, batch.config_features, network.input.own.weight)
    fits = all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in tensors)
    if not fits or not compiled_allowed() or torch.is_autocast_enabled("cpu"):
        return None
    if not _has_kernels(network.spec) or type(network.encoder) not in _ENCODERS:
        return None
    return lambda given: _forward(network, given)


def _has_kernels(spec: NetSpec) -> bool:
    lstm = spec.lstm_layers == 1 and _is_width(spec.lstm_width or spec.hidden)
    return (
        _is_width(spec.hidden)
        and not spec.biases
        and (spec.encoder.removeprefix(RESIDUAL) != "graphsage" or spec.aggregation != "max")
        and (spec.reduction != "lstm" or lstm)
    )


def _is_width(width: int) -> bool:
    return width % NARROW == 0 and width <= WIDEST


def _forward(network: CostNetwork, batch: GraphBatch) -> Tensor:
    at_nodes = network.joined(batch, "node")
    configs = at_nodes.shape[1]
    # Chosen before any product, so that the choice for the last batch does not affect this one.
    choose_products(len(batch.opcodes) * (1 if _is_fused(network) else batch.mask.shape[1]))
    steps = [
        *join_steps(network.input, at_nodes, batch.kernel_of_node, 1),
        *_ENCODERS[type(network.encoder)](network, batch, configs),
        *stack_steps(network.final),
        *_REDUCTIONS[type(network.reduction)](network, batch, configs),
    ]
    return network.complete(run_steps(network.node_inputs(batch), steps), batch)


def _is_fused(network: CostNetwork) -> bool:
    """Whether fused kernels run all products over decisions, so that torch multiplies one row per node."""
    spec = network.spec
    drops = network.training and spec.dropout > 0.0
    if spec.encoder == f"{RESIDUAL}gcn":
        return False
    return not spec.module_layers and not drops and spec.reduction != "transformer" and spec.lstm_layers == 1


def _sage(network: CostNetwork, batch: GraphBatch, configs: int) -> list[Step]:
    return sage_steps(cast(GraphSage, network.encoder), batch.edges)


def _gat(network: CostNetwork, batch: GraphBatch, configs: int) -> list[Step]:
    return gat_steps(cast(GraphAttention, network.encoder).gat, batch.edges, configs)


def _residual(network: CostNetwork, batch: GraphBatch, configs: int) -> list[Step]:
    return residual_steps(cast(ResidualHops, network.encoder), batch.edges)


def _no_graph(network: CostNetwork, batch: GraphBatch, configs: int) -> list[Step]:
    return []


def _per_node(network: CostNetwork, batch: GraphBatch, configs: int) -> list[Step]:
    rows = batch.kernel_of_node
    head = cast(PerNode, network.reduction).head
    costs = head_steps(head, network.joined(batch, "kernel"), rows, configs)
    return [*costs, lambda of_nodes: gather_sum(of_nodes, rows, batch.num_kernels)]


def _column_wise(network: CostNetwork, batch: GraphBatch, configs: int) -> list[Step]:
    reduction = cast(ColumnWise, network.reduction)
    statistics = lambda states: segment_statistics(states, batch.node_counts, reduction.columns)  # noqa: E731
    return [statistics, *head_steps(reduction.head, network.joined(batch, "kernel"), None, configs)]


def _last_state(network: CostNetwork, batch: GraphBatch, configs: int) -> list[Step]:
    reduction = cast(LastState, network.reduction)
    costs = head_steps(reduction.head, network.joined(batch, "kernel"), None, configs)
    return [*lstm_steps(reduction.lstm, batch.node_counts), *costs]


def _attention_sum(network: CostNetwork, batch: GraphBatch, configs: int) -> list[Step]:
    reduction = cast(AttentionSum, network.reduction)
    costs = head_steps(reduction.head, network.joined(batch, "kernel"), None, configs)
    return [lambda states: kernel_transformer(reduction.transformer, states, batch.node_counts), *costs]


_Steps = Callable[[CostNetwork, GraphBatch, int], list[Step]]
_ENCODERS: dict[type, _Steps] = {
    GraphAttention: _gat,
    GraphSage: _sage,
    NoGraph: _no_graph,
    ResidualHops: _residual,
}
_REDUCTIONS: dict[type, _Steps] = {
    AttentionSum: _attention_sum,
    ColumnWise: _column_wise,
    LastState: _last_state,
    PerNode: _per_node,
}
