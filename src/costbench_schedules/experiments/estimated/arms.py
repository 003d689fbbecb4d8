"""The ways of searching that are compared: what starts a search, what its trees read, who proposes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

First = Literal["random", "crop", "draft"]
Rows = Literal["", "loops", "parts", "both"]


@dataclass(frozen=True)
class Arm:
    """A way of searching; trees that learn while the search goes on guide all but two.

    Attributes:
        reads: what the trees read: context relation features of `loops`, `parts` of the analytical estimate,
            or both; empty without trees: programs are then measured in the order of `first`.
        first: programs of the first batch: drawn at random, those that the analytical model finds fastest,
            or drawn at random from a draft by it.
        residual: whether trees learn what the logarithm of the analytical estimate leaves over; it then
            chooses the first batch.
        draft: whether the analytical model proposes the candidates of each batch, of which trees choose.
    """

    reads: Rows = "loops"
    first: First = "random"
    residual: bool = False
    draft: bool = False


ARMS: Mapping[str, Arm] = {
    "random": Arm(reads=""),
    "crop": Arm(reads="", first="crop"),
    # With features of loops, as in autotvm2018: what the others are compared with.
    "trees": Arm(),
    "trees-crop-first": Arm(first="crop"),
    "trees-parts": Arm("parts"),
    "trees-both": Arm("both"),
    "hybrid": Arm("parts", residual=True),
    "hybrid-both": Arm("both", residual=True),
    "draft-verify": Arm(first="draft", draft=True),
}
"""By name; reports know them under the same names."""
