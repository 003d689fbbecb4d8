"""What every library of boosted trees is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from costbench.arrays import F64

Derivatives = Callable[[F64], tuple[F64, F64]]
"""Costs [n] to the first and second derivatives of the objective by each, float64 [n] both."""


@dataclass(frozen=True)
class BoostingSpec:
    """Number and size of trees. Depth, rate and penalty are those of AutoTVM's own tuner.

    Attributes:
        trees: boosting rounds.
        depth: of a tree, at most.
        learning_rate: factor of every tree.
        l2: penalty of leaf values.
        feature_share: of the features, drawn for each tree.

    Raises:
        ValueError: for numbers out of range.
    """

    trees: int = 100
    depth: int = 3
    learning_rate: float = 0.3
    l2: float = 1.0
    feature_share: float = 1.0

    def __post_init__(self) -> None:
        if self.trees < 1 or self.depth < 1:
            raise ValueError("trees, depth: at least 1")
        if self.learning_rate <= 0.0 or self.l2 < 0.0:
            raise ValueError("learning_rate: above 0, l2: not negative")
        if not 0.0 < self.feature_share <= 1.0:
            raise ValueError(f"feature_share is {self.feature_share}, must be above 0 and at most 1")
