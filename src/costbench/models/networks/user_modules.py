"""Modules that a user names by dotted path: built, tried on two nodes, and seeded like the rest of a network.

Any `torch.nn.Module` will do, those of PyTorch Geometric included. Rows are nodes of one decision each, so a
module sees a plain graph and knows nothing of decisions.

- An encoder `MyConv(in_channels, out_channels)` is a convolution: `forward(x [n, in_channels], edge_index
  int64 [2, m])` to [n, out_channels]; see `pyg_convolutions`.
- A reduction `MyReduction(in_channels)` pools: `forward(x [n, in_channels], index int64 [n] ascending,
  dim_size=k)` to [k, any width], as the aggregations of PyG do.
- An encoder or a reduction with a parameter `spec` gets the `NetSpec` and has the whole batch, as those of
  `encoders.ENCODERS` and `reductions.REDUCTIONS`: `MyEncoder(spec)` and `forward(states [N, C, hidden],
  batch)` to the same shape, `MyReduction(spec, joined)` and `forward(states, joined [K, C, joined], batch)`
  to costs [K, C].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from costbench.execution.dotted import Part
from costbench.models.graph_batch import GraphBatch
from costbench.models.spec import NetSpec

ENCODER = "MyEncoder(spec), forward(states [N, C, hidden], batch) to [N, C, hidden]"
REDUCTION = "MyReduction(spec, joined), forward(states, joined, batch) to costs [K, C]"
POOLING = "MyReduction(in_channels), forward(x [n, in_channels], index [n], dim_size) to [dim_size, width]"


class UserModule(nn.Module):
    """A user's module, whose errors are one line with the parameter, the class and what was expected.

    Args:
        part: the dotted path that names it.
        build: function that builds it.
        expected: what it has to be.

    Raises:
        ParamsError: if it is no module or cannot be built, or from `forward` for any exception of its own.
    """

    def __init__(self, part: Part, build: Callable[[], nn.Module], expected: str) -> None:
        super().__init__()
        self.part, self.build, self.expected = part, build, expected
        # Random draws of its own leave those of the process as they were.
        with torch.random.fork_rng(devices=[]):
            self.module = self._built()

    def draw(self) -> None:
        """Draws its weights again, as its constructor does, from torch's generator."""
        self.module.load_state_dict(self._built().state_dict())

    def forward(self, *inputs: Any, **more: Any) -> Tensor:
        with self.part.checked(self.expected):
            output: Tensor = self.module(*inputs, **more)
        return output

    def _built(self) -> nn.Module:
        with self.part.checked(self.expected):
            module = self.build()
        if not isinstance(module, nn.Module):
            raise self.part.refuse(f"is a {type(module).__name__}", f"a torch.nn.Module, {self.expected}")
        return module


class UserEncoder(nn.Module):
    """A user's encoder that is built from the `NetSpec` and has the whole batch.

    Shape: states [N, C, hidden] kept.
    """

    def __init__(self, part: Part, spec: NetSpec) -> None:
        super().__init__()
        self.encoder = UserModule(part, partial(part.value, spec=spec, **part.arguments), ENCODER)

    def forward(self, states: Tensor, batch: GraphBatch) -> Tensor:
        encoded = self.encoder(states, batch)
        require_shape(self.encoder, encoded, states.shape)
        return encoded  # type: ignore[no-any-return]


class UserReduction(nn.Module):
    """A user's reduction that is built from the `NetSpec` and has the whole batch.

    Shape: states [N, C, hidden] and joined [K, 1 or C, joined] to costs [K, C].
    """

    def __init__(self, part: Part, spec: NetSpec, joined: int) -> None:
        super().__init__()
        build = partial(part.value, spec=spec, joined=joined, **part.arguments)
        self.reduction = UserModule(part, build, REDUCTION)

    def forward(self, states: Tensor, joined: Tensor, batch: GraphBatch) -> Tensor:
        costs = self.reduction(states, joined, batch)
        require_shape(self.reduction, costs, (batch.num_kernels, max(states.shape[1], joined.shape[1])))
        return costs  # type: ignore[no-any-return]


class UserPooling(nn.Module):
    """A user's pooling of the nodes of each kernel and decision.

    Args:
        part: the dotted path that names its class.
        hidden: width of the states.

    Attributes:
        width: width of what it gives.

    Raises:
        ParamsError: if it cannot be built, or does not map the nodes of two kernels to two rows.

    Shape: states [N, C, hidden] to [K, C, width].
    """

    def __init__(self, part: Part, hidden: int) -> None:
        super().__init__()
        takes = {"in_channels": hidden} if "in_channels" in part.parameters else {}
        self.pooling = UserModule(part, partial(part.value, **takes, **part.arguments), POOLING)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            pooled = self.pooling(torch.ones(4, hidden), torch.tensor([0, 0, 1, 1]), dim_size=2)
        if not isinstance(pooled, Tensor) or pooled.dim() != 2 or len(pooled) != 2:
            raise part.refuse(f"gives {_shape(pooled)} for two kernels of two nodes", POOLING)
        self.width = pooled.shape[1]

    def forward(self, states: Tensor, batch: GraphBatch) -> Tensor:
        kernels, decisions = batch.num_kernels, states.shape[1]
        # Rows by decision, then by kernel: in this order the index ascends.
        first = torch.arange(decisions, device=states.device)[:, None] * kernels
        index = (first + batch.kernel_of_node).flatten()
        pooled = self.pooling(states.transpose(0, 1).flatten(0, 1), index, dim_size=decisions * kernels)
        require_shape(self.pooling, pooled, (decisions * kernels, self.width))
        return pooled.view(decisions, kernels, self.width).transpose(0, 1)  # type: ignore[no-any-return]


def require_shape(module: UserModule, output: object, shape: tuple[int, ...]) -> None:
    """Checks what a user's module returned. Raises: ParamsError, for anything but a tensor of this shape."""
    if not isinstance(output, Tensor) or tuple(output.shape) != tuple(shape):
        raise module.part.refuse(f"gives {_shape(output)}, not {list(shape)}", module.expected)


def _shape(output: object) -> object:
    return list(output.shape) if isinstance(output, Tensor) else type(output).__name__
