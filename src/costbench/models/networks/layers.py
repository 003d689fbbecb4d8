"""Building blocks of the learned model: feed-forward modules, and the moves between nodes and kernels.

States have shape [nodes, configurations, width]: one graph carries all decisions of its kernel at once. A
quantity that does not depend on the decision has 1 in the middle, and additions broadcast it, so what the
decisions share is computed once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from costbench.models.execution import runs_compiled
from costbench.models.kernels.elementwise import join, join_gradient, sum_and_max, sum_and_max_gradient
from costbench.models.kernels.feed_forward import aligned, stack_backward, stack_forward
from costbench.models.kernels.fused import FloatArray, Pass, array_of, run_passes, stacked
from costbench.models.net_spec import NetSpec


class FeedForward(nn.Module):
    """relu(W x), followed by `module_layers` more layers of the same width.

    Shape: [..., inputs] to [..., spec.hidden].
    """

    def __init__(self, inputs: int, spec: NetSpec) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, spec.hidden, bias=spec.biases)
        self.more = _hidden_layers(spec)
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, states: Tensor) -> Tensor:
        return _activate(self.first(states), self.more, self.dropout)


class JoinedFeedForward(nn.Module):
    """relu(W x + V k): a feed-forward module over node features x and kernel features k, concatenated.

    Multiplying both by one matrix of width |x| + |k| is the same function, but W x is needed once per node
    and V k once per decision, not both for every pair (lpm2021, figure 3, either option).

    Shape: x [R, 1 or C, inputs] and k [rows or R, 1 or C, joined] to [R, 1 or C, spec.hidden].
    """

    def __init__(self, inputs: int, joined: int, spec: NetSpec) -> None:
        super().__init__()
        self.own = nn.Linear(inputs, spec.hidden, bias=spec.biases)
        self.joined = nn.Linear(joined, spec.hidden, bias=False) if joined else None
        self.more = _hidden_layers(spec)
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, states: Tensor, joined: Tensor, rows: Tensor | None = None) -> Tensor:
        """With `rows` [R], row r of `states` is joined by `joined[rows[r]]`, else by `joined[r]`."""
        return run_passes(*self.begin(states, joined, rows))

    def begin(self, states: Tensor, joined: Tensor, rows: Tensor | None) -> tuple[Tensor, list[Pass]]:
        """As `forward`, but for compiled passes that are still to come over what is returned."""
        mixed: Tensor = self.own(states)
        if self.joined is None:
            return _activate(mixed, self.more, self.dropout), []
        addend: Tensor = self.joined(joined)
        if rows is None or mixed.shape[1] >= addend.shape[1] or not runs_compiled(mixed, addend):
            mixed = mixed + (addend if rows is None else spread(addend, rows))
            return _activate(mixed, self.more, self.dropout), []
        join = JoinPass(addend, rows)
        if not self.more and not (self.training and self.dropout.p > 0.0):
            return mixed, [join]
        return _deepen(self.dropout(run_passes(mixed, [join])), self.more, self.dropout), []


class PairFeedForward(nn.Module):
    """relu(W concat(x, y)) of two states of width `spec.hidden`, as W_x x + W_y y.

    Shape: two [N, C, spec.hidden] to [N, C, spec.hidden].
    """

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.both = nn.Linear(2 * spec.hidden, spec.hidden, bias=spec.biases)
        self.more = _hidden_layers(spec)
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        for_left, for_right = self.both.weight.chunk(2, dim=1)
        mixed = nn.functional.linear(left, for_left, self.both.bias)
        return _activate(mixed.add_(nn.functional.linear(right, for_right)), self.more, self.dropout)


def _hidden_layers(spec: NetSpec) -> nn.ModuleList:
    widths = range(spec.module_layers)
    return nn.ModuleList(nn.Linear(spec.hidden, spec.hidden, bias=spec.biases) for _ in widths)


def _activate(states: Tensor, more: nn.ModuleList, dropout: nn.Dropout) -> Tensor:
    # In place: neither a linear layer nor relu needs the value before relu for its gradient.
    return _deepen(dropout(torch.relu_(states)), more, dropout)


def _deepen(states: Tensor, more: nn.ModuleList, dropout: nn.Dropout) -> Tensor:
    for layer in more:
        states = dropout(torch.relu_(layer(states)))
    return states


class JoinPass:
    """relu(own + joined[rows]) by `node_passes`: [N, 1, H] and [K, C, H] to [N, C, H]."""

    def __init__(self, joined: Tensor, rows: Tensor) -> None:
        self.weights = [joined]
        self._rows = rows.numpy()

    def forward(self, states: FloatArray, keep: bool) -> FloatArray:
        """See `compiled_passes.Pass`."""
        joined = array_of(self.weights[0])
        out = aligned(len(states) * joined.shape[1], joined.shape[2]).reshape(len(states), *joined.shape[1:])
        join(states[:, 0], joined, self._rows, out)
        self._out = out
        return out

    def backward(self, gradient: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
        """See `compiled_passes.Pass`."""
        d_own = np.zeros((len(gradient), 1, gradient.shape[2]), np.float32)
        d_joined = np.zeros(self.weights[0].shape, np.float32)
        join_gradient(gradient, self._out, self._rows, d_own[:, 0], d_joined)
        return d_own, [d_joined]


class _Rectified(torch.autograd.Function):
    """relu(W_n ... relu(W_1 x)), rows [R, H]; rectifiers are undone in place in the gradient."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, *weights: Tensor) -> Tensor:
        outputs = [rows]
        for weight in weights:
            outputs.append((outputs[-1] @ weight.t()).relu_())
        ctx.save_for_backward(*outputs, *weights)
        return outputs[-1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        count = len(ctx.saved_tensors) // 2
        outputs, weights = ctx.saved_tensors[: count + 1], ctx.saved_tensors[count + 1 :]
        # The first is not ours to overwrite; those after it were made here.
        gradient = torch.ops.aten.threshold_backward(gradient, outputs[-1], 0.0)
        d_weights = []
        for place in range(count - 1, -1, -1):
            before = outputs[place]
            d_weights.append(gradient.t() @ before)
            gradient = gradient @ weights[place]
            if place:
                torch.ops.aten.threshold_backward.grad_input(gradient, before, 0.0, grad_input=gradient)
        return gradient, *reversed(d_weights)


class StackPass:
    """The same as `_Rectified` by `layer_passes`, over all but the last axis of the states."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        self.weights = weights

    def forward(self, states: FloatArray, keep: bool) -> FloatArray:
        """See `compiled_passes.Pass`."""
        self._rows = states.reshape(-1, states.shape[-1])
        self._stacked = stacked(self.weights)
        self._configs = states.shape[-2]
        self._outputs = stack_forward(self._rows, self._stacked, self._configs)
        last: FloatArray = self._outputs[-1].reshape(states.shape)
        return last

    def backward(self, gradient: FloatArray) -> tuple[FloatArray, list[FloatArray]]:
        """See `compiled_passes.Pass`."""
        d_outputs = gradient.reshape(self._rows.shape)
        d_rows, found = stack_backward(d_outputs, self._rows, self._outputs, self._stacked, self._configs)
        return d_rows.reshape(gradient.shape), list(found)


class FeedForwardStack(nn.ModuleList):
    """Feed-forward modules one after another, in one differentiable operation where they are plain."""

    def __init__(self, count: int, spec: NetSpec) -> None:
        super().__init__(FeedForward(spec.hidden, spec) for _ in range(count))
        self._dropout = spec.dropout
        self._plain = spec.module_layers == 0 and not spec.biases

    def forward(self, states: Tensor) -> Tensor:
        """Shape: [..., spec.hidden] kept."""
        passes = self.passes(states)
        if passes is not None:
            return run_passes(states, passes)
        if self._is_plain(states):
            rows = states.reshape(-1, states.shape[-1]).contiguous()
            found = cast(Tensor, _Rectified.apply(rows, *self._weights()))  # type: ignore[no-untyped-call]
            return found.view(states.shape)
        for layer in self:
            states = layer(states)
        return states

    def passes(self, states: Tensor) -> list[Pass] | None:
        """What it does to such states, compiled; None where that is not possible."""
        if not len(self):
            return []
        weights = self._weights()
        return [StackPass(weights)] if self._is_plain(states) and runs_compiled(states, *weights) else None

    def _weights(self) -> list[Tensor]:
        return [cast(FeedForward, layer).first.weight for layer in self]

    def _is_plain(self, states: Tensor) -> bool:
        dropping = self.training and self._dropout > 0.0
        return self._plain and not dropping and not torch.is_autocast_enabled(states.device.type)


def spread(values: Tensor, rows: Tensor) -> Tensor:
    """`values[rows]`: each kernel's values at its nodes. Shape: [K, ...] to [N, ...]."""
    return values.index_select(0, rows)


def gather_sum(values: Tensor, rows: Tensor, num_rows: int) -> Tensor:
    """out[r] = sum of values[i] over the i with rows[i] = r. Shape: [N, ...] to [num_rows, ...]."""
    return values.new_zeros((num_rows, *values.shape[1:])).index_add_(0, rows, values)


class _SegmentStatistics(torch.autograd.Function):
    """Column-wise statistics; a maximum's gradient is shared evenly by the nodes that reach it.

    Segments go by one after another, which suits the caches where a node has many numbers.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, counts: tuple[int, ...], names: tuple[str, ...]) -> Tensor:
        width = states.shape[2]
        result = states.new_empty(len(counts), states.shape[1], len(names) * width)
        for out, part in zip(result, torch.split(states, list(counts)), strict=True):
            for column, name in zip(out.split(width, dim=-1), names, strict=True):
                column.copy_(_STATISTICS[name](part))
        ctx.counts, ctx.names = counts, names
        ctx.save_for_backward(states, result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        states, result = ctx.saved_tensors
        d_states = torch.empty_like(states)
        parts = (torch.split(tensor, list(ctx.counts)) for tensor in (d_states, states))
        for d_part, part, found, received in zip(*parts, result, gradient, strict=True):
            columns = [tensor.split(states.shape[2], dim=-1) for tensor in (found, received)]
            _segment_gradient(d_part, part, dict(zip(ctx.names, zip(*columns, strict=True), strict=True)))
        return d_states, None, None


def _segment_gradient(out: Tensor, states: Tensor, columns: dict[str, tuple[Tensor, Tensor]]) -> None:
    """Fill `out` [n, C, H] by statistic: what was found and the gradient received, each [C, H]."""
    evenly = torch.zeros_like(out[0])
    if "mean" in columns:
        evenly += columns["mean"][1] / len(states)
    if "sum" in columns:
        evenly += columns["sum"][1]
    if "max" in columns:
        largest, received = columns["max"]
        torch.eq(states, largest, out=out)
        torch.addcmul(evenly, out, received / out.sum(dim=0), out=out)
    else:
        out.copy_(evenly)


class _NarrowSegmentStatistics(torch.autograd.Function):
    """The same for states of one decision, all segments at once: a loop would cost more than its sums."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, counts: tuple[int, ...], names: tuple[str, ...]) -> Tensor:
        values = states.squeeze(1)
        lengths = torch.tensor(counts, device=states.device)
        rows = torch.repeat_interleave(torch.arange(len(counts), device=states.device), lengths)
        shares = lengths.to(values.dtype).reciprocal().unsqueeze(1)
        size = len(counts), values.shape[1]
        found = {}
        if "max" in names:
            index = rows.unsqueeze(1).expand_as(values)
            found["max"] = values.new_full(size, -torch.inf).scatter_reduce_(0, index, values, "amax")
        if "sum" in names or "mean" in names:
            found["sum"] = values.new_zeros(size).index_add_(0, rows, values)
            found["mean"] = found["sum"] * shares
        ctx.names = names
        ctx.save_for_backward(values, rows, shares, found.get("max"))
        return torch.cat([found[name] for name in names], dim=1).unsqueeze(1)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        values, rows, shares, largest = ctx.saved_tensors
        columns = gradient.squeeze(1).chunk(len(ctx.names), dim=1)
        received = dict(zip(ctx.names, columns, strict=True))
        evenly = torch.zeros_like(columns[0])
        if "sum" in received:
            evenly = evenly + received["sum"]
        if "mean" in received:
            evenly = evenly + received["mean"] * shares
        d_states = evenly.index_select(0, rows)
        if "max" in received:
            reach = (values == largest.index_select(0, rows)).to(values.dtype)
            ties = torch.zeros_like(evenly).index_add_(0, rows, reach)
            d_states.addcmul_(reach, (received["max"] / ties).index_select(0, rows))
        return d_states.unsqueeze(1), None, None


class _CompiledStatistics(torch.autograd.Function):
    """The same as `_SegmentStatistics` by `node_passes`."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, counts: tuple[int, ...], names: tuple[str, ...]) -> Tensor:
        states = states.contiguous()
        starts = torch.zeros(len(counts) + 1, dtype=torch.int64)
        torch.cumsum(torch.tensor(counts), 0, out=starts[1:])
        shape = len(counts), *states.shape[1:]
        total, largest, ties = (states.new_empty(shape) for _ in range(3))
        arrays = (tensor.flatten(1).numpy() for tensor in (total, largest, ties))
        sum_and_max(states.flatten(1).numpy(), starts.numpy(), *arrays)
        shares = torch.diff(starts).to(states.dtype).reciprocal().view(-1, 1, 1)
        ctx.names = names
        ctx.save_for_backward(states, starts, largest, ties, shares)
        found = {"sum": total, "max": largest, "mean": total * shares}
        return torch.cat([found[name] for name in names], dim=2)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        states, starts, largest, ties, shares = ctx.saved_tensors
        columns = dict(zip(ctx.names, gradient.chunk(len(ctx.names), dim=2), strict=True))
        nothing = torch.zeros_like(largest)
        evenly = columns.get("sum", nothing) + columns.get("mean", nothing) * shares
        shared = columns.get("max", nothing) / ties
        d_states = torch.empty_like(states)
        flat = (tensor.flatten(1).numpy() for tensor in (largest, evenly, shared, d_states))
        sum_and_max_gradient(states.flatten(1).numpy(), starts.numpy(), *flat)
        return d_states, None, None


_STATISTICS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "max": lambda states: states.amax(dim=0),
    "mean": lambda states: states.mean(dim=0),
    "sum": lambda states: states.sum(dim=0),
}


def segment_statistics(states: Tensor, counts: tuple[int, ...], names: tuple[str, ...]) -> Tensor:
    """Statistics over each run of `counts[k]` rows, concatenated. Shape: [N, C, H] to [K, C, H len(names)].

    Args:
        states: of the nodes.
        counts: rows of each kernel, at least one.
        names: different ones of max, mean and sum.
    """
    function: type[torch.autograd.Function]
    if runs_compiled(states):
        function = _CompiledStatistics
    else:
        function = _NarrowSegmentStatistics if states.shape[1] == 1 else _SegmentStatistics
    found = function.apply(states, counts, names)  # type: ignore[no-untyped-call]
    return cast(Tensor, found)


def initialize(net: nn.Module, seed: int) -> None:
    """Draw all weights of `net` from one seeded generator, in order of name.

    Layers without biases shrink what passes through unless their scale fits the rectifiers: He's uniform
    initialisation keeps it; without a rectifier (attention, the gates of an LSTM) half the variance does.
    Embeddings are normal with the spread of features in [0, 1], norms start as the identity.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in sorted(net.named_parameters()):
            if weight.dim() < 2:
                weight.fill_(1.0 if name.endswith("norm.weight") else 0.0)
            elif "embedding" in name:
                weight.normal_(0.0, EMBEDDING_STD, generator=generator)
            else:
                follows: Literal["linear", "relu"] = "linear" if _LINEAR.search(name) else "relu"
                nn.init.kaiming_uniform_(weight, nonlinearity=follows, generator=generator)


_LINEAR = re.compile(r"gates_of|attention_|attend_|narrow")
EMBEDDING_STD = 0.3
