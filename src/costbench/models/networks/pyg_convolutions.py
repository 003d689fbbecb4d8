"""Any convolution of PyTorch Geometric as an encoder, by name: `pyg.GATv2Conv(heads=2)`, `pyg.GCNConv`.

The name is that of a class of `torch_geometric.nn` that passes messages, or a dotted path, `mynet:MyConv`;
arguments are those of its constructor, as Python literals. costbench sets the widths (`NetSpec.hidden`) and
gives a convolution that needs a network (`nn`, as GINConv does) a multilayer perceptron of two layers. Edges
have no features; a convolution that is to read some (`edge_dim`) reads ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch_geometric.nn as pyg_nn
from torch import Tensor, nn

from costbench.errors import ChoiceError, ParamsError, nearest
from costbench.execution.dotted import Part, is_part, load_part, split_arguments
from costbench.models.graph_batch import GraphBatch
from costbench.models.networks.layers import MessagePassing
from costbench.models.networks.user_modules import UserModule
from costbench.models.spec import NetSpec

PREFIX = "pyg."
_SPELLING = "pyg.Name or pyg.Name(argument=value, ...)"
CONVOLUTION = (
    "a module (in_channels, out_channels, ...) from states [n, in_channels] and edges [2, m] alone to "
    "[n, out_channels], with such arguments as it takes"
)
"""What a convolution has to be, for errors."""
_WIDTHS = ("in_channels", "out_channels", "channels", "hidden_channels")
# Set by costbench; a cache would hold the edges of the first batch, and `flow` is what `directed` says.
_OURS = {*_WIDTHS, "nn", "cached", "flow", "node_dim", "kwargs", "self"}
# Without an argument that says so, this one reads edge features all the same.
_NEEDS_EDGE_FEATURES = {"GINEConv"}
Arguments = Mapping[str, Any]


@dataclass(frozen=True)
class Convolution:
    """A convolution as a parameter file names it.

    Attributes:
        kind: class of `torch_geometric.nn`, or a user's.
        arguments: arguments of its constructor beside those that costbench sets.
        text: its name, for errors.
    """

    kind: Callable[..., nn.Module]
    arguments: Arguments
    text: str

    def layer(self, hidden: int) -> nn.Module:
        """Builds a layer from `hidden` to `hidden` units and tries it on two nodes, where they have values.

        Raises:
            ParamsError: naming the convolution, if it cannot be built, or does not map nodes and edges alone
                to states of that width.
        """
        part = Part("encoder", self.text, self.kind, {})
        # Each class raises what it likes, and all of it means that it cannot be the encoder.
        with part.checked(CONVOLUTION):
            layer = self.kind(**self._with_widths(hidden))
            if torch.get_default_device().type == "meta":  # without values, which a layer may read
                return layer
            states = layer(torch.ones(2, hidden), torch.tensor([[0], [1]]), **self.edge_features(1))
        shape = list(states.shape) if isinstance(states, Tensor) else type(states).__name__
        if shape != [2, hidden]:
            raise part.refuse(f"gives {shape} for two nodes", f"[2, {hidden}]")
        return layer

    def edge_features(self, num_edges: int) -> dict[str, Tensor]:
        """Ones of width `edge_dim`, for a convolution that was asked to read edge features."""
        width = self.arguments.get("edge_dim")
        return {} if width is None else {"edge_attr": torch.ones(num_edges, width)}

    def _with_widths(self, hidden: int) -> dict[str, Any]:
        parameters = inspect.signature(self.kind).parameters
        arguments: dict[str, Any] = {name: hidden for name in _WIDTHS if name in parameters}
        if "heads" in parameters and "concat" in parameters:
            heads, concat = (
                self.arguments.get(name, parameters[name].default) for name in ("heads", "concat")
            )
            if concat and hidden % heads:
                raise ValueError(f"heads is {heads}, must divide hidden, {hidden}")
            # Heads side by side make up the width, as they do in the encoder `gat`.
            arguments["out_channels"] = hidden // heads if concat else hidden
        if "nn" in parameters and parameters["nn"].default is inspect.Parameter.empty:
            arguments["nn"] = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, hidden))
        return arguments | dict(self.arguments)


def convolutions() -> dict[str, type[nn.Module]]:
    """Returns the classes of `torch_geometric.nn` that pass messages, by name."""
    members = {name: getattr(pyg_nn, name) for name in pyg_nn.conv.__all__}
    return {
        name: kind
        for name, kind in sorted(members.items())
        if isinstance(kind, type) and issubclass(kind, MessagePassing) and kind is not MessagePassing
    }


def find_convolution(encoder: str) -> Convolution:
    """Returns the convolution that `pyg.Name(argument=value, ...)` or a dotted path names, not built yet.

    Raises:
        ParamsError: for another spelling, an argument that its constructor has not or that costbench sets,
            and a dotted path that cannot be imported.
        ChoiceError: for a class that `torch_geometric.nn` has not or that passes no messages.
    """
    if is_part(encoder):
        return user_convolution(load_part(encoder, "encoder"))
    try:
        name, arguments = split_arguments(encoder.removeprefix(PREFIX))
    except ValueError:
        name, arguments = "", {}
    if not name.isidentifier():
        raise ParamsError(f"{encoder!r} is no convolution", field="encoder", expected=_SPELLING)
    known = convolutions()
    if name not in known:
        problem = f"unknown convolution {name!r}{nearest(name, known)}"
        raise ChoiceError(problem, expected="one of " + ", ".join(known))
    parameters = inspect.signature(known[name]).parameters
    free = {*parameters, *(("aggr",) if "kwargs" in parameters else ())} - _OURS
    for argument in arguments:
        if argument not in free:
            problem = f"{PREFIX}{name}: " + ("set by costbench" if argument in _OURS else "no argument")
            expected = "some of " + ", ".join(sorted(free))
            raise ParamsError(f"{problem}: {argument!r}", field="encoder", expected=expected)
    edges = {"edge_dim": 1} if name in _NEEDS_EDGE_FEATURES else {}
    return Convolution(known[name], edges | arguments, encoder)


def user_convolution(part: Part) -> Convolution:
    """Returns the convolution that is a user's class; it is not built yet.

    Raises:
        ParamsError: if it is no class of modules that takes the widths of its states.
    """
    is_module = isinstance(part.value, type) and issubclass(part.value, nn.Module)
    if not is_module or not part.parameters >= {"in_channels", "out_channels"}:
        problem = "takes no in_channels and out_channels" if is_module else "is no class of torch.nn.Module"
        raise part.refuse(problem, CONVOLUTION)
    return Convolution(part.value, part.arguments, part.text)


class DirectedConvolution(nn.ModuleList):
    """A convolution by name for each direction of messages, whose results are added.

    x' = conv(x, edges to consumers) + conv'(x, edges to producers), or undirected conv(x, all edges).

    Args:
        encoder: name of the convolution, see `find_convolution`.
        hidden: width of the states.
        directed: whether the directions have a convolution each.

    Raises:
        ParamsError, ChoiceError: see `find_convolution` and `Convolution.layer`.

    Shape: states [N, C, hidden] kept.
    """

    def __init__(self, encoder: str, hidden: int, *, directed: bool) -> None:
        convolution = find_convolution(encoder)
        # Building and trying a layer draws random numbers, which must not change later draws of the process.
        with torch.random.fork_rng(devices=[]):
            super().__init__(_layer(convolution, hidden) for _ in range(1 + directed))
        self._convolution = convolution

    def forward(self, states: Tensor, edge_indices: Sequence[Tensor]) -> Tensor:
        """`edge_indices` are those of each convolution, between rows n C + c as `copy_edges` makes them."""
        rows, sums = states.flatten(0, 1), []
        for layer, edge_index in zip(self, edge_indices, strict=True):
            ones = self._convolution.edge_features(edge_index.shape[1])
            features = {name: values.to(rows) for name, values in ones.items()}
            sums.append(layer(rows, edge_index, **features))
        return torch.stack(sums).sum(dim=0).view_as(states)


def _layer(convolution: Convolution, hidden: int) -> nn.Module:
    if not is_part(convolution.text):
        return convolution.layer(hidden)
    part = Part("encoder", convolution.text, convolution.kind, {})
    return UserModule(part, partial(convolution.layer, hidden), CONVOLUTION)


class PygConvolutions(nn.Module):
    """`encoder_layers` hops of a convolution, each followed by a ReLU (and dropout, and l2, if asked for):

    e^k = l2(dropout(relu(conv^k(e^(k-1), to consumers) + conv'^k(e^(k-1), to producers))))

    Directed, one convolution has the edges from producers to consumers and another one those back, and their
    results are added; undirected, one convolution has both. PyG's layers take states [nodes, hidden], so each
    decision gets its own copy of the graph: row n C + c is node n under decision c. That equals running the
    convolution on each decision alone, whatever it does, and needs the memory of C graphs.

    Args:
        spec: hyper-parameters; `encoder` names the convolution.

    Raises:
        ParamsError, ChoiceError: see `DirectedConvolution`.

    Shape: states [N, C, hidden] kept.
    """

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.spec = spec
        self.hops = nn.ModuleList(
            DirectedConvolution(spec.encoder, spec.hidden, directed=spec.directed)
            for _ in range(spec.encoder_layers)
        )
        self.dropout = nn.Dropout(spec.dropout)

    def forward(self, states: Tensor, batch: GraphBatch) -> Tensor:
        edge_indices = batch.edges.edge_indices(directed=self.spec.directed)
        copies = [copy_edges(edge_index, states.shape[1]) for edge_index in edge_indices]
        for hop in self.hops:
            states = self.dropout(hop(states, copies).relu())
            if self.spec.l2_normalize:
                states = nn.functional.normalize(states, dim=-1)
        return states


def draw_weights(module: nn.Module, seed: int) -> None:
    """Draws the weights of PyG's layers and of a user's by the rules of their own classes, from one seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for layer in module.modules():
            if isinstance(layer, UserModule):
                layer.draw()
            elif isinstance(layer, MessagePassing):
                layer.reset_parameters()


def copy_edges(edge_index: Tensor, num_decisions: int) -> Tensor:
    """Returns edges [2, E C] between rows n C + c: a copy for each decision c of edges [2, E] of nodes n."""
    decisions = torch.arange(num_decisions, device=edge_index.device)
    return (edge_index[:, :, None] * num_decisions + decisions).flatten(1)
