"""What of a program's runs is accepted: how long they may take, and how far results may be from others."""

from __future__ import annotations

from costbench.errors import CostbenchError
from costbench.hlo.module import HloModule
from costbench.hlo.shape import ElementType

MAX_RUN_S = 2.0
"""A program whose run takes longer is not measured."""
_NARROW = frozenset({ElementType.BF16, ElementType.F16})
_TOLERANCE, _NARROW_TOLERANCE = 1e-3, 5e-2


class LeftOutError(CostbenchError):
    """A program that takes too long, or that XLA does not compile."""


def tolerance_of(module: HloModule) -> float:
    """Returns how far results of a fusion config may be from those of the unfused program.

    Norm of the difference over the norm of a result (`backend.largest_difference`): 0.001, and 0.05 for
    programs with 16-bit floats, which fusions keep in 32 bits between instructions.
    """
    types = {inst.shape.element_type for body in module.computations for inst in body.instructions}
    return _NARROW_TOLERANCE if types & _NARROW else _TOLERANCE
