"""Graph networks (encoders), which pass messages between the nodes of a kernel.

- `none`: no graph network, so that a node's state depends on the node alone.
- `graphsage`: GraphSAGE with directed messages (lpm2021, section 3.2).
- `gat`: graph attention with several heads (lpm2021, section 5.3 and table 4).
- `residual.graphsage`, `residual.gcn`: hops added to their input; see `graphsage.ResidualHops`.
- `pyg.NAME(...)`: any convolution of PyTorch Geometric; see `pyg_convolutions`.
- `module:Class(...)`: a user's own; see `user_modules`.

An encoder is built from a `NetSpec` and maps states [N, 1 or C, hidden] to states of the same shape, given
the batch for its edges. A new one is one class and one row of `ENCODERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import Tensor, nn

from costbench.errors import ChoiceError, nearest
from costbench.execution.dotted import is_part, load_part
from costbench.models.graph_batch import GraphBatch
from costbench.models.networks.gat import Gat
from costbench.models.networks.graphsage import PREFIX as RESIDUAL
from costbench.models.networks.graphsage import RESIDUAL_HOPS, GraphSage, ResidualHops
from costbench.models.networks.pyg_convolutions import PREFIX, PygConvolutions
from costbench.models.networks.user_modules import UserEncoder
from costbench.models.spec import NetSpec


class NoGraph(nn.Module):
    """Returns the states as they are."""

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()

    def forward(self, states: Tensor, batch: GraphBatch) -> Tensor:
        return states


class GraphAttention(nn.Module):
    """`encoder_layers` GAT hops; see `gat.Gat`. Attention replaces the aggregation."""

    def __init__(self, spec: NetSpec) -> None:
        super().__init__()
        self.gat = Gat(spec)

    def forward(self, states: Tensor, batch: GraphBatch) -> Tensor:
        attended: Tensor = self.gat(states, batch.edges)
        return attended


ENCODERS: Mapping[str, Callable[[NetSpec], nn.Module]] = {
    "gat": GraphAttention,
    "graphsage": GraphSage,
    "none": NoGraph,
}
"""Name in `NetSpec.encoder` to class."""


def build_encoder(spec: NetSpec) -> nn.Module:
    """Builds the encoder that `spec.encoder` names.

    Raises:
        ChoiceError: for an unknown encoder or convolution.
        ParamsError: for a convolution that cannot be an encoder; see `pyg_convolutions.PygConvolutions`.
    """
    if is_part(spec.encoder):
        part = load_part(spec.encoder, "encoder")
        return UserEncoder(part, spec) if "spec" in part.parameters else PygConvolutions(spec)
    if spec.encoder.startswith(PREFIX):
        return PygConvolutions(spec)
    if spec.encoder.startswith(RESIDUAL):
        return ResidualHops(spec)
    if spec.encoder not in ENCODERS:
        residual = (f"{RESIDUAL}{name}" for name in RESIDUAL_HOPS)
        names = ", ".join(
            (
                *sorted(ENCODERS),
                *residual,
                f"{PREFIX}NAME (a convolution of torch_geometric.nn)",
                "module:Class (your own)",
            )
        )
        near = nearest(spec.encoder, ENCODERS)
        raise ChoiceError(f"unknown encoder {spec.encoder!r}{near}", expected=f"one of {names}")
    return ENCODERS[spec.encoder](spec)
