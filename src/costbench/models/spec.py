"""Hyper-parameters of networks and settings for running them, as frozen values that need no torch.

The names of `NetSpec` follow lpm2021, section 3 and tables 5 to 7; the defaults are the paper's fixed
choices, except for the widths, which suit two CPU cores (the paper: opcode embedding 256, hidden 512 to
1024). `LayoutNetSpec` follows tpugraphs2023, section 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from costbench.compiler.estimate_quality import QUALITIES
from costbench.execution.dotted import is_part
from costbench.limits import MAX_LAYERS, MAX_WIDTH
from costbench.params import later

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
_BOUNDED = frozenset(
    {*_COUNTS, "node_final_layers", "kernel_layers", "module_layers", "input_layers", "head_layers"}
) - {"max_neighbors"}


def _require_bounded(spec: NetSpec | LayoutNetSpec) -> None:
    """Raises ValueError for a number of layers or heads, or a width, that no network needs."""
    for declared in fields(spec):
        value = getattr(spec, declared.name)
        limit = MAX_LAYERS if declared.name.endswith("layers") else MAX_WIDTH
        if declared.name in _BOUNDED and value is not None and value > limit:
            raise ValueError(f"{declared.name} is {value}, must be at most {limit}")


@dataclass(frozen=True)
class NetSpec:
    """Hyper-parameters of a `LearnedCostNet`.

    Attributes:
        encoder: the graph network: key of `encoders.ENCODERS`, `residual.graphsage` or `residual.gcn`,
            `pyg.NAME(argument=value, ...)`, a convolution of PyTorch Geometric, or a class of your own,
            `module:Class(argument=value, ...)`.
        reduction: way from node states to one prediction: key of `reductions.REDUCTIONS`, or a class of your
            own, `module:Class(argument=value, ...)`.
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
        estimate: quality of the estimate that a hybrid corrects, one of `features.estimates`; empty for that
            of the chip's compiler.
        gat_heads: attention heads of a GAT hop; they divide `hidden`.
        lstm_layers: layers of the LSTM reduction.
        lstm_width: width of its states; null for `hidden`.
        transformer_layers: layers of the Transformer reduction.
        transformer_heads: attention heads of each; they divide `hidden`.
        transformer_width: width inside its feed-forward parts; null for `hidden`.
        features: further features of nodes that the network reads, one of `features.nodes`; empty for none.
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
    estimate: str = ""
    gat_heads: int = 4
    lstm_layers: int = 1
    lstm_width: int | None = None
    transformer_layers: int = 1
    transformer_heads: int = 4
    transformer_width: int | None = None
    features: str = later("")

    @property
    def parts(self) -> dict[str, str]:
        """Returns the dotted paths of the parts that are a user's own, by the names of their fields."""
        names = ("encoder", "reduction", "features")
        return {name: text for name in names if is_part(text := getattr(self, name))}

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
        _require_bounded(self)
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout is {self.dropout}, must be in [0, 1)")
        if not self.columns or len(set(self.columns)) != len(self.columns):
            raise ValueError(f"columns are {list(self.columns)}, must be one or more different statistics")
        if self.estimate and (self.residual == "none" or self.estimate not in QUALITIES):
            expected = f"empty, or with `residual: analytical` one of {', '.join(QUALITIES)}"
            raise ValueError(f"estimate is {self.estimate!r}, must be {expected}")
        if self.features and not is_part(self.features):
            raise ValueError(f"features is {self.features!r}, must be empty or module:function")
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

    def joined(self, spec: NetSpec, placement: Placement) -> int:
        """Returns the number of features that enter at `placement` beside those of the nodes."""
        decision = self.decision if spec.decision_features == placement else 0
        static = self.static if spec.static_features == placement else 0
        return decision + static


Pooling = Literal["configurable-mean", "configurable-max", "mean", "max"]
"""A statistic over node states: of the configurable nodes, or of all."""

LAYOUT_ENCODERS = ("gcn", "graphsage", "none")
"""Encoders with a name of their own; others are `pyg.NAME(...)` or `module:Class(...)`."""
OptionEncoding = Literal["one-hot", "scaled"]
AcrossConfigs = Literal["none", "softmax"]


@dataclass(frozen=True)
class LayoutNetSpec:
    """Hyper-parameters of a `network.LayoutNetwork`.

    Attributes:
        encoder: `graphsage` (mean of neighbours), `gcn`, `none` for a network without messages,
            `pyg.NAME(argument=value, ...)`, a convolution of PyTorch Geometric, or a convolution of your own,
            `module:Class(argument=value, ...)`.
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
        _require_bounded(self)
        if self.prune_hops is not None and self.prune_hops < 0:
            raise ValueError(f"prune_hops is {self.prune_hops}, must not be negative")
        if not self.pooling or len(set(self.pooling)) != len(self.pooling):
            raise ValueError(f"pooling is {list(self.pooling)}, must be one or more different statistics")

    @property
    def pools_all_nodes(self) -> bool:
        """Whether pooling reads nodes that are not configurable."""
        return any(not name.startswith("configurable") for name in self.pooling)

    @property
    def parts(self) -> dict[str, str]:
        """Returns the dotted paths of the parts that are a user's own, by the names of their fields."""
        return {"encoder": self.encoder} if is_part(self.encoder) else {}

    @property
    def hops(self) -> int:
        """Number of layers that pass messages."""
        return 0 if self.encoder == "none" else self.encoder_layers

    @property
    def tags(self) -> dict[str, str]:
        """What tracked runs are found by."""
        return {"encoder": self.encoder, "reduction": "+".join(self.pooling)}


Accelerator = Literal["cpu", "gpu", "auto"]
"""Where a network runs: on a CPU, on a CUDA GPU, or on a GPU where there is one."""


@dataclass(frozen=True)
class Execution:
    """CPU settings; they change speed, and results in the last bits only.

    Attributes:
        threads: OpenMP threads of torch. Two processes of one thread beat one process of two here.
        onednn_matmul: multiply fp32 matrices with oneDNN on processors where that stays fp32.
        keep_memory: let glibc keep freed memory for the next tensor.
        compiled: use compiled kernels where `costbench_kernels` has them for the network.
    """

    threads: int = 1
    onednn_matmul: bool = True
    keep_memory: bool = True
    compiled: bool = True

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"threads is {self.threads}, must be at least 1")


DEFAULT_EXECUTION = Execution()
