"""The networks that benchmarks measure: every encoder with every reduction, one cell each."""

from __future__ import annotations

from itertools import product

from costbench.models.networks.encoders import ENCODERS
from costbench.models.networks.reductions import REDUCTIONS


def cells(only: str | None = None) -> list[tuple[str, str]]:
    """Returns encoder and reduction of every cell, or of the one that is called ENCODER/REDUCTION."""
    every = product(sorted(ENCODERS), sorted(REDUCTIONS))
    return [(encoder, reduction) for encoder, reduction in every if only in (None, f"{encoder}/{reduction}")]
