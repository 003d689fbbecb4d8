"""HLO text, as XLA prints it."""

from __future__ import annotations

from costbench.errors import HloError
from costbench.hlo.module import HloModule


def looks_like_text(text: str) -> bool:
    """Whether it begins as HLO text does."""
    return text.lstrip().startswith("HloModule")


def module_from_text(text: str, *, where: str) -> HloModule:
    """The module that a text describes. Raises: HloError."""
    raise HloError(f"text of {len(text)} characters", where=where, expected="a binary HloModuleProto")
