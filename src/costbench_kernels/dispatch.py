"""Decides whether compiled kernels compute a network on a batch, and returns the function that does.

costbench calls only `compiled_forward`. The plain PyTorch network (`costbench.models.networks`) defines the
results; the function returned here computes the same on a CPU in float32, equal up to rounding
(`tests/kernels/test_dispatch.py`), with fused kernels where there are any and torch modules between them.

An encoder or reduction needs no row here: without one, its networks run plain.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import cast

import torch
from torch import Tensor

from costbench.models.execution import choose_products, compiled_allowed
from costbench.models.graph_batch import GraphBatch
from costbench.models.networks.cost_network import CostNetwork
from costbench.models.networks.encoders import GraphAttention, NoGraph
from costbench.models.networks.graphsage import PREFIX as RESIDUAL
from costbench.models.networks.graphsage import GraphSage, ResidualHops
from costbench.models.networks.reductions import AttentionSum, ColumnWise, LastState, PerNode, segment_sum
from costbench.models.spec import NetSpec
from costbench_kernels.attention import gat_steps
from costbench_kernels.hops import residual_steps, sage_steps
from costbench_kernels.layers import head_steps, join_steps, stack_steps
from costbench_kernels.lstm import lstm_steps
from costbench_kernels.reductions import attend, segment_statistics
from costbench_kernels.register_tiles import NARROW
from costbench_kernels.steps import Step, run_steps

# Below costbench's logger, whose messages commands show.
_LOG = logging.getLogger("costbench.kernels")

MAX_WIDTH = 256
"""Largest width of states with compiled kernels; matrix libraries are made for wider products."""

Forward = Callable[[GraphBatch], Tensor]


def compiled_forward(network: CostNetwork, batch: GraphBatch) -> Forward | None:
    """Returns a function from a batch like this one to costs [K, C], or None if compiled kernels cannot run.

    They cannot on a GPU, in other types than float32, under autocast, if `Execution.compiled` is False, for
    widths that are above 256 or not a multiple of 16, and for layers that have none. An encoder or reduction
    without kernels is logged once in a process.
    """
    tensors = (batch.node_features, batch.config_features, network.input.own.weight)
    fits = all(tensor.device.type == "cpu" and tensor.dtype == torch.float32 for tensor in tensors)
    if not fits or not compiled_allowed() or torch.is_autocast_enabled("cpu"):
        return None
    encoder_steps = _ENCODERS.get(type(network.encoder))
    reduction_steps = _REDUCTIONS.get(type(network.reduction))
    if encoder_steps is None:
        _log_fallback("encoder", network.spec.encoder)
        return None
    if reduction_steps is None:
        _log_fallback("reduction", network.spec.reduction)
        return None
    if not _has_kernels(network.spec):
        return None
    return lambda same_kind: _forward(network, same_kind, encoder_steps, reduction_steps)


@cache
def _log_fallback(kind: str, name: str) -> None:
    _LOG.info("%s %s has no compiled kernels: the plain network runs", kind, name)


def _has_kernels(spec: NetSpec) -> bool:
    lstm = spec.lstm_layers == 1 and _is_width(spec.lstm_width or spec.hidden)
    return (
        _is_width(spec.hidden)
        and not spec.biases
        and (spec.encoder.removeprefix(RESIDUAL) != "graphsage" or spec.aggregation != "max")
        and (spec.reduction != "lstm" or lstm)
    )


def _is_width(width: int) -> bool:
    return width % NARROW == 0 and width <= MAX_WIDTH


_Steps = Callable[[CostNetwork, GraphBatch, int], list[Step]]
"""Builds the steps of a part of a network on a batch, for states of this many decisions."""


def _forward(
    network: CostNetwork, batch: GraphBatch, encoder_steps: _Steps, reduction_steps: _Steps
) -> Tensor:
    at_nodes = network.joined(batch, "node")
    configs = at_nodes.shape[1]
    # Chosen before any product, so that the choice for the last batch does not affect this one.
    choose_products(len(batch.opcodes) * (1 if _is_fused(network) else batch.mask.shape[1]))
    steps = [
        *join_steps(network.input, at_nodes, batch.kernel_of_node, 1),
        *encoder_steps(network, batch, configs),
        *stack_steps(network.final),
        *reduction_steps(network, batch, configs),
    ]
    return network.complete(run_steps(network.node_inputs(batch), steps), batch)


def _is_fused(network: CostNetwork) -> bool:
    """Returns whether fused kernels run all products over decisions: torch multiplies one row per node."""
    spec = network.spec
    drops = network.training and spec.dropout > 0.0
    if spec.encoder == f"{RESIDUAL}gcn":
        return False
    return not spec.module_layers and not drops and spec.reduction != "transformer" and spec.lstm_layers == 1


_ENCODERS: dict[type, _Steps] = {
    GraphAttention: lambda network, batch, configs: gat_steps(
        cast(GraphAttention, network.encoder).gat, batch.edges, configs
    ),
    GraphSage: lambda network, batch, _: sage_steps(cast(GraphSage, network.encoder), batch.edges),
    NoGraph: lambda _network, _batch, _configs: [],
    ResidualHops: lambda network, batch, _: residual_steps(cast(ResidualHops, network.encoder), batch.edges),
}


def _per_node(network: CostNetwork, batch: GraphBatch, configs: int) -> list[Step]:
    rows = batch.kernel_of_node
    head = cast(PerNode, network.reduction).head
    costs = head_steps(head, network.joined(batch, "kernel"), rows, configs)
    return [*costs, lambda node_costs: segment_sum(node_costs, rows, batch.num_kernels)]


def _column_wise(network: CostNetwork, batch: GraphBatch, configs: int) -> list[Step]:
    reduction = cast(ColumnWise, network.reduction)
    costs = head_steps(reduction.head, network.joined(batch, "kernel"), None, configs)
    return [lambda states: segment_statistics(states, batch.node_counts, reduction.columns), *costs]


def _last_state(network: CostNetwork, batch: GraphBatch, configs: int) -> list[Step]:
    reduction = cast(LastState, network.reduction)
    costs = head_steps(reduction.head, network.joined(batch, "kernel"), None, configs)
    return [*lstm_steps(reduction.lstm, batch.node_counts), *costs]


def _attention_sum(network: CostNetwork, batch: GraphBatch, configs: int) -> list[Step]:
    reduction = cast(AttentionSum, network.reduction)
    costs = head_steps(reduction.head, network.joined(batch, "kernel"), None, configs)
    return [lambda states: reduction.transformer(states, batch.node_counts, attend), *costs]


_REDUCTIONS: dict[type, _Steps] = {
    AttentionSum: _attention_sum,
    ColumnWise: _column_wise,
    LastState: _last_state,
    PerNode: _per_node,
}
