"""Reductions, which map the states of a kernel's nodes to one cost per decision.

- `per-node`: a cost for every node; the kernel's cost is their sum.
- `column-wise`: column-wise mean, maximum or sum over the nodes, concatenated, then one linear layer.
- `lstm`: the last state of an LSTM over the nodes in topological order, then one linear layer.
- `transformer`: a Transformer encoder over the nodes, summed, then one linear layer.
- `module:Class(...)`: a user's own; see `user_modules`.

All but the last are of lpm2021, section 3.2. A reduction is built from a `NetSpec` and the number of features
that join after the graph network, and maps states [N, 1 or C, hidden] and joined features [K, 1 or C, J] to
costs [K, 1 or C]. A new one is one class and one row of `REDUCTIONS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from costbench.errors import choose
from costbench.execution.dotted import Part, is_part, load_part
from costbench.models.graph_batch import GraphBatch
from costbench.models.networks.layers import FeedForwardStack, JoinedFeedForward
from costbench.models.networks.lstm import KernelLstm
from costbench.models.networks.transformer import KernelTransformer
from costbench.models.networks.user_modules import UserPooling, UserReduction
from costbench.models.spec import NetSpec


class Head(nn.Module):
    """Cost of an embedding: `kernel_layers` feed-forward layers, then a linear layer without activation.

    Features that join here (lpm2021, figure 3, option 2) pass through a feed-forward layer with the
    embedding in any case. Without it the cost would be a term that depends on the kernel plus a term that
    depends on the decision, and every kernel would rank its tile sizes alike.

    Shape: embeddings [R, 1 or C, width] and joined [K, 1 or C, J] to [R, 1 or C].
    """

    def __init__(self, width: int, joined: int, spec: NetSpec) -> None:
        super().__init__()
        layers = max(spec.kernel_layers, 1 if joined else 0)
        self.join = JoinedFeedForward(width, joined, spec) if layers else None
        self.more = FeedForwardStack(max(layers - 1, 0), spec)
        self.cost = nn.Linear(spec.hidden if layers else width, 1, bias=spec.biases)

    def forward(self, embeddings: Tensor, joined: Tensor, kernel_of_row: Tensor | None = None) -> Tensor:
        if self.join is not None:
            embeddings = self.more(self.join(embeddings, joined, kernel_of_row))
        cost: Tensor = self.cost(embeddings)
        return cost.squeeze(-1)


class PerNode(nn.Module):
    """cost(k) = sum over the nodes i of kernel k of head(e_i)."""

    def __init__(self, spec: NetSpec, joined: int) -> None:
        super().__init__()
        self.head = Head(spec.hidden, joined, spec)

    def forward(self, states: Tensor, joined: Tensor, batch: GraphBatch) -> Tensor:
        costs = self.head(states, joined, batch.kernel_of_node)
        return segment_sum(costs, batch.kernel_of_node, batch.num_kernels)


class ColumnWise(nn.Module):
    """cost(k) = head(concat of column-wise statistics of the e_i of kernel k)."""

    def __init__(self, spec: NetSpec, joined: int) -> None:
        super().__init__()
        self.columns = spec.columns
        self.head = Head(spec.hidden * len(spec.columns), joined, spec)

    def forward(self, states: Tensor, joined: Tensor, batch: GraphBatch) -> Tensor:
        statistics = segment_statistics(states, batch, self.columns)
        cost: Tensor = self.head(statistics, joined)
        return cost


class LastState(nn.Module):
    """cost(k) = head(last state of an LSTM over the e_i of kernel k), nodes in topological order.

    Where decisions join late, the LSTM runs once per kernel.
    """

    def __init__(self, spec: NetSpec, joined: int) -> None:
        super().__init__()
        self.lstm = KernelLstm(spec)
        self.head = Head(self.lstm.width, joined, spec)

    def forward(self, states: Tensor, joined: Tensor, batch: GraphBatch) -> Tensor:
        cost: Tensor = self.head(self.lstm(states, batch.node_counts), joined)
        return cost


class AttentionSum(nn.Module):
    """cost(k) = head(sum over the nodes of a Transformer encoder over the e_i of kernel k)."""

    def __init__(self, spec: NetSpec, joined: int) -> None:
        super().__init__()
        self.transformer = KernelTransformer(spec)
        self.head = Head(spec.hidden, joined, spec)

    def forward(self, states: Tensor, joined: Tensor, batch: GraphBatch) -> Tensor:
        cost: Tensor = self.head(self.transformer(states, batch.node_counts), joined)
        return cost


class Pooled(nn.Module):
    """cost(k) = head(a user's pooling of the e_i of kernel k)."""

    def __init__(self, part: Part, spec: NetSpec, joined: int) -> None:
        super().__init__()
        self.pooling = UserPooling(part, spec.hidden)
        self.head = Head(self.pooling.width, joined, spec)

    def forward(self, states: Tensor, joined: Tensor, batch: GraphBatch) -> Tensor:
        cost: Tensor = self.head(self.pooling(states, batch), joined)
        return cost


REDUCTIONS: Mapping[str, Callable[[NetSpec, int], nn.Module]] = {
    "column-wise": ColumnWise,
    "lstm": LastState,
    "per-node": PerNode,
    "transformer": AttentionSum,
}
"""Name in `NetSpec.reduction` to class."""


def build_reduction(spec: NetSpec, joined: int) -> nn.Module:
    """Builds the reduction that `spec.reduction` names, for `joined` features that join behind the encoder.

    Raises:
        ChoiceError: for an unknown reduction.
        ParamsError: for a class of a user's own that cannot be a reduction.
    """
    if is_part(spec.reduction):
        part = load_part(spec.reduction, "reduction")
        return (UserReduction if "spec" in part.parameters else Pooled)(part, spec, joined)
    return choose(REDUCTIONS, spec.reduction, "reduction")(spec, joined)


def segment_sum(values: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    """Returns out[r] = sum of values[i] over the i with rows[i] = r. Shape: [N, ...] to [num_rows, ...]."""
    return values.new_zeros((num_rows, *values.shape[1:])).index_add(0, rows, values)


def segment_statistics(states: Tensor, batch: GraphBatch, names: Sequence[str]) -> Tensor:
    """Returns mean, maximum or sum of each column over a kernel's nodes, concatenated as in `names`.

    Nodes that reach a maximum share its gradient evenly.

    Shape: [N, C, H] to [K, C, H len(names)].
    """
    statistics = {}
    if "max" in names:
        index = batch.kernel_of_node.view(-1, 1, 1).expand_as(states)
        lowest = states.new_full((batch.num_kernels, *states.shape[1:]), -torch.inf)
        statistics["max"] = lowest.scatter_reduce(0, index, states, "amax")
    if "sum" in names or "mean" in names:
        statistics["sum"] = segment_sum(states, batch.kernel_of_node, batch.num_kernels)
        statistics["mean"] = statistics["sum"] / states.new_tensor(batch.node_counts).view(-1, 1, 1)
    return torch.cat([statistics[name] for name in names], dim=-1)
