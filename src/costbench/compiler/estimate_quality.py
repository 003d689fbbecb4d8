"""What the compiler's hand-written cost model knows of kernels: named settings, from crude to expert.

A compiler chooses tile sizes before it generates code, so its model goes by rules of thumb where code would
tell (lpm2021, appendix A). Each field of `Knowledge` is one such rule, and a *quality* is a name for a
setting of all. How good a hand-written model is decides whether a learned one is worth its training, so it is
varied like any other setting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args, get_type_hints

import numpy as np

from costbench.arrays import F64
from costbench.errors import choose

Refetch = Literal["order", "moved", "every"]
LoopOrder = Literal["generated", "physical"]
BoxPadding = Literal["native", "lanes", "none"]
Overlap = Literal["maximum", "sum"]
Directions = Literal["shared", "separate"]
Units = Literal["side-by-side", "in-turn"]


@dataclass(frozen=True)
class Knowledge:
    """What a model of tile sizes knows; the defaults are all that a model without generated code can know.

    Attributes:
        refetch: how often a tile is copied. `order`: whenever a loop at or outside of the innermost one that
            moves it advances, as the machine does. `moved`: once for each tile, as if the loops that do not
            move it ran inside. `every`: in every iteration, if any loop moves it. The middle way needs the
            order of the loops, which the code generator decides.
        loop_order: order of the loops that `refetch: order` goes by. `generated`: that of the generated code,
            the columns of a contraction outermost. `physical`: that of the result in memory, which is all
            that is settled before.
        box_padding: to what the elements of a tile are rounded up, for bytes and for vector work. `native`:
            to native tiles. `lanes`: the minor axis only, as the second-minor one depends on the layout of
            the value inside the kernel. `none`: not at all.
        halo: whether tiles under windows overlap. Without, a window reads what lies under its own outputs;
            how much overlaps depends on strides, dilation and padding of all windows on the way to an input.
        matrix_padding: whether depth and columns of a product are rounded up to the size of the matrix unit.
        overlap: how transfer and compute combine. `maximum`: the longer one hides the other. `sum`: nothing
            is hidden, as for a kernel whose dependencies are not known yet.
        directions: whether reads and writes share the bandwidth (`shared`), or each direction has all of it
            (`separate`): models cannot tell how well bi-directional transfers go together.
        transfer_size: whether small transfers reach less of the bandwidth.
        control: whether an iteration takes time by itself.
        units: whether matrix and vector unit work `side-by-side`, or `in-turn`: what can be scheduled
            together follows from the dependencies of instructions that do not exist yet.
        operation_costs: whether transcendentals, divisions and sorts take more than one operation.
        moves: whether instructions that only move data (copies, transposes, slices, pads, concatenations,
            gathers) are work. Which of them move registers is known once layouts inside a kernel are.
        epilogue: whether what follows a contraction runs once for each tile of the result, and not in every
            iteration.
    """

    refetch: Refetch = "order"
    loop_order: LoopOrder = "generated"
    box_padding: BoxPadding = "native"
    halo: bool = True
    matrix_padding: bool = True
    overlap: Overlap = "maximum"
    directions: Directions = "shared"
    transfer_size: bool = True
    control: bool = True
    units: Units = "side-by-side"
    operation_costs: bool = True
    moves: bool = True
    epilogue: bool = True


ROOFLINE, TILES, COMPILER, CODEGEN, EXPERT = "roofline", "tiles", "compiler", "codegen", "expert"

_CODEGEN = Knowledge(directions="separate")
_COMPILER = replace(
    _CODEGEN,
    loop_order="physical",
    box_padding="lanes",
    halo=False,
    transfer_size=False,
    epilogue=False,
)
_TILES = replace(
    _COMPILER,
    refetch="moved",
    box_padding="none",
    matrix_padding=False,
    operation_costs=False,
    moves=False,
)
QUALITIES: Mapping[str, Knowledge] = {
    ROOFLINE: replace(_TILES, control=False),
    TILES: _TILES,
    COMPILER: _COMPILER,
    CODEGEN: _CODEGEN,
    EXPERT: Knowledge(),
}
"""Every quality by name, from crude to expert; each knows all that those before it know.

- `roofline`: bytes over bandwidth or multiplications over peak, whichever is longer.
- `tiles`: that each iteration takes time besides.
- `compiler`: what is settled when XLA chooses tile sizes. As good as XLA's model in lpm2021, a setting found
  without the test programs of the splits `random` and `manual` (docs/decisions/0048).
- `codegen`: what follows from generated code: loop order, native tiles, halos, sizes of transfers, epilogues.
- `expert`: also that both directions share the bandwidth.
"""

RULES = tuple(field.name for field in fields(Knowledge))
_CHOICES = {
    name: get_args(hint) if get_args(hint) else (False, True)
    for name, hint in get_type_hints(Knowledge).items()
}


def knowledge_of(quality: str) -> Knowledge:
    """Returns what a model of a quality knows.

    Raises:
        ChoiceError: for an unknown quality.
    """
    return choose(QUALITIES, quality, "estimate")


def rule_numbers(knowledge: Knowledge) -> F64:
    """Returns the fields as compiled code reads them: the number of each value among its field's choices."""
    return np.array([_CHOICES[name].index(getattr(knowledge, name)) for name in RULES], dtype=np.float64)
