"""Size of networks of several heads; needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class HeadedSpec:
    """Size of a network.

    Attributes:
        kind: `rows` for a perceptron of rows, `primitives` for attention over sequences.
        hidden: units of a layer.
        layers: residual layers after the first.
        attention_heads: of the attention over primitives.
        machines: outputs.
    """

    kind: Literal["rows", "primitives"] = "rows"
    hidden: int = 128
    layers: int = 2
    attention_heads: int = 4
    machines: int = 1
