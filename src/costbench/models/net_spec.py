"""Hyper-parameters of the learned cost model's network, as frozen values.

The names follow lpm2021, section 3 and tables 5 to 7; the defaults are the paper's fixed choices, except
for the widths, which suit two CPU cores (the paper: opcode embedding 256, hidden 512 to 1024).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Placement = Literal["node", "kernel"]
"""Where features of the whole kernel enter: at every node ('option 1'), or after the graph network."""

Predicts = Literal["score", "log_runtime_ns"]
"""What a trained network's output is: a score that only ranks, or the natural logarithm of a runtime."""


_COUNTS = (
    "hidden",
    "opcode_embedding",
    "encoder_layers",
    "max_neighbors",
    "gat_heads",
    "lstm_layers",
    "lstm_width",
    "transformer_layers",
    "transformer_heads",
    "transformer_width",
)


@dataclass(frozen=True)
class NetSpec:
    """Hyper-parameters of a `LearnedCostNet`.

    Attributes:
        encoder: the graph network: key of `encoders.ENCODERS`, `residual.graphsage` or `residual.gcn`, or
            `pyg.NAME(argument=value, ...)`, a convolution of PyTorch Geometric.
        reduction: way from node states to one prediction: key of `reductions.REDUCTIONS`.
        hidden: width of every hidden layer.
        opcode_embedding: width of the opcode embedding.
        encoder_layers: hops of the graph network.
        node_final_layers: feed-forward layers between graph network and reduction.
        kernel_layers: feed-forward layers between reduction and the last linear layer; lpm2021 has none, or
            one where features join there.
        module_layers: hidden layers added inside each feed-forward module.
        aggregation: how the messages of a node's neighbours are combined.
        directed: whether there are separate feed-forward modules for producers and consumers, or one for
            both.
        max_neighbors: neighbours kept per node and direction.
        neighbors: which ones of a node that has more: the `first`, in node order, or drawn at `random`, for a
            kernel once.
        l2_normalize: whether node states are scaled to unit length after every hop.
        columns: column-wise statistics that the column-wise reduction concatenates.
        decision_features: where the decision's features (tile size) enter, if at all; without them a network
            prices all decisions of a kernel alike, so they may be off only where there is one (lpm2021 on the
            fusion task).
        static_features: where the four static performance features enter, if at all.
        dropout: probability of zeroing an activation of a feed-forward module in training.
        biases: whether layers have biases.
        residual: `analytical` adds the network to the logarithm of the analytical model's estimate, so it
            learns what that model gets wrong (a hybrid); `none` leaves everything to the network.
        gat_heads: attention heads of a GAT hop; they divide `hidden`.
        lstm_layers: layers of the LSTM reduction.
        lstm_width: width of its states; null for `hidden`.
        transformer_layers: layers of the Transformer reduction.
        transformer_heads: attention heads of each; they divide `hidden`.
        transformer_width: width inside its feed-forward parts; null for `hidden`.
    """

    encoder: str = "graphsage"
    reduction: str = "column-wise"
    hidden: int = 64
    opcode_embedding: int = 64
    encoder_layers: int = 3
    node_final_layers: int = 3
    kernel_layers: int = 0
    module_layers: int = 0
    aggregation: Literal["mean", "sum", "max"] = "mean"
    directed: bool = True
    max_neighbors: int = 20
    neighbors: Literal["first", "random"] = "first"
    l2_normalize: bool = False
    columns: tuple[Literal["mean", "max", "sum"], ...] = ("mean", "max")
    decision_features: Literal["off", "node", "kernel"] = "node"
    static_features: Literal["off", "node", "kernel"] = "off"
    dropout: float = 0.0
    biases: bool = False
    residual: Literal["none", "analytical"] = "none"
    gat_heads: int = 4
    lstm_layers: int = 1
    lstm_width: int | None = None
    transformer_layers: int = 1
    transformer_heads: int = 4
    transformer_width: int | None = None

    @property
    def tags(self) -> dict[str, str]:
        """What tracked runs are found by."""
        return {"encoder": self.encoder, "reduction": self.reduction}

    def __post_init__(self) -> None:
        for name in _COUNTS:
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}, must be at least 1")
        for name in ("node_final_layers", "kernel_layers", "module_layers"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}, must not be negative")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout is {self.dropout}, must be in [0, 1)")
        if not self.columns or len(set(self.columns)) != len(self.columns):
            raise ValueError(f"columns are {list(self.columns)}, must be one or more different statistics")
        self._require_whole_heads("gat_heads", self.encoder == "gat")
        self._require_whole_heads("transformer_heads", self.reduction == "transformer")

    def _require_whole_heads(self, name: str, used: bool) -> None:
        if used and self.hidden % getattr(self, name):
            raise ValueError(f"{name} is {getattr(self, name)}, must divide hidden, {self.hidden}")


@dataclass(frozen=True)
class InputSizes:
    """Features per node, per decision and per kernel that a network reads, after scaling."""

    node: int
    decision: int
    static: int

    def joined(self, spec: NetSpec, place: Placement) -> int:
        """Returns the number of features that enter at `place` beside those of the nodes."""
        decision = self.decision if spec.decision_features == place else 0
        static = self.static if spec.static_features == place else 0
        return decision + static
