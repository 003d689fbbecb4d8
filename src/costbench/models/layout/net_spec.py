"""Hyper-parameters of a layout network, as frozen values that need no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Pooling = Literal["configurable-mean", "configurable-max", "mean", "max"]
"""A statistic over node states: of the configurable nodes, or of all."""

LAYOUT_ENCODERS = ("gcn", "graphsage", "none")
"""Encoders with a name of their own; others are `pyg.NAME(...)`."""
OptionEncoding = Literal["one-hot", "scaled"]
AcrossConfigs = Literal["none", "softmax"]


@dataclass(frozen=True)
class LayoutNetSpec:
    """Hyper-parameters of a `network.LayoutNetwork`.

    Attributes:
        encoder: `graphsage` (mean of neighbours), `gcn`, `none` for a network without messages, or
            `pyg.NAME(argument=value, ...)`, a convolution of PyTorch Geometric.
        hidden: width of every hidden layer.
        opcode_embedding: width of the opcode embedding.
        input_layers: feed-forward layers of a node's own inputs before messages are passed, at least 1.
        encoder_layers: hops of the graph network.
        head_layers: hidden layers between pooling and the score.
        options: how a node's layouts enter: an embedding of each of the 18 axis numbers (`one-hot`), or the
            18 features scaled to [0, 1] (`scaled`, as in tpugraphs2023). Zero where not configurable.
        pooling: statistics that are concatenated. Without `mean` and `max` only configurable nodes are read.
        directed: `graphsage` and `pyg`: separate weights for messages of producers and of consumers.
        residual: add a layer's input to its output.
        prune_hops: leave out nodes that are further than this from any configurable node; null for none.
        part_nodes: cut the graph into parts of at most this many nodes, in topological order and at the
            boundaries of computations if possible; no messages between parts. 0 for one part.
        across_configs: `softmax`: each pooled column is also multiplied by its softmax over the configs of a
            set, so that a config is seen beside others. Scores then depend on the set.
        set_size: number of configs in such a set when a model predicts.
    """

    encoder: str = "graphsage"
    hidden: int = 64
    opcode_embedding: int = 32
    input_layers: int = 2
    encoder_layers: int = 3
    head_layers: int = 1
    options: OptionEncoding = "one-hot"
    pooling: tuple[Pooling, ...] = ("configurable-mean", "mean")
    directed: bool = True
    residual: bool = True
    prune_hops: int | None = None
    part_nodes: int = 0
    across_configs: AcrossConfigs = "none"
    set_size: int = 64

    def __post_init__(self) -> None:
        for name in ("hidden", "opcode_embedding", "input_layers", "encoder_layers", "set_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least 1")
        for name in ("head_layers", "part_nodes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}, must not be negative")
        if self.prune_hops is not None and self.prune_hops < 0:
            raise ValueError(f"prune_hops is {self.prune_hops}, must not be negative")
        if not self.pooling or len(set(self.pooling)) != len(self.pooling):
            raise ValueError(f"pooling is {list(self.pooling)}, must be one or more different statistics")

    @property
    def pools_all_nodes(self) -> bool:
        """Whether pooling reads nodes that are not configurable."""
        return any(not name.startswith("configurable") for name in self.pooling)

    @property
    def hops(self) -> int:
        """Number of layers that pass messages."""
        return 0 if self.encoder == "none" else self.encoder_layers

    @property
    def tags(self) -> dict[str, str]:
        """What tracked runs are found by."""
        return {"encoder": self.encoder, "reduction": "+".join(self.pooling)}
