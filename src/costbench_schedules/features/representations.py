"""The representations of schedules by name, computed for any configurations or once for a small space."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from costbench.errors import SpaceTooLargeError, choose
from costbench.search.space import Rows
from costbench_schedules.features.context import ContextBatch, context_features
from costbench_schedules.features.trees import loop_trees
from costbench_schedules.features.vectors import config_features, flattened_features, relation_features
from costbench_schedules.spaces.nest import nest_batch
from costbench_schedules.spaces.space import ScheduleSpace

Featurizer = Callable[[ScheduleSpace, Rows], Any]
"""Configurations of a space to their features, an array [n, F] or `LoopTrees`."""
_LARGEST = 1 << 16


def _of_loops(represent: Callable[[ContextBatch], Any]) -> Featurizer:
    return lambda space, rows: represent(context_features(nest_batch(space, rows)))


REPRESENTATIONS: Mapping[str, Featurizer] = {
    "config": config_features,
    "flattened": _of_loops(flattened_features),
    "relation": _of_loops(relation_features),
    "tree": _of_loops(loop_trees),
}


@dataclass(frozen=True, eq=False)
class Precomputed:
    """The features of all configurations of a space, for searches that are repeated.

    Attributes:
        space: the configurations.
        features: of each, in the order of their numbers.
    """

    space: ScheduleSpace
    features: Any

    def __call__(self, rows: Rows) -> Any:
        """Returns the features of some configurations, as the representation does."""
        return self.features[np.array(self.space.numbers(rows), dtype=np.int64)]


def precomputed(space: ScheduleSpace, representation: str) -> Precomputed:
    """Returns the features of a whole space.

    Args:
        space: of at most 65,536 configurations.
        representation: a name of `REPRESENTATIONS`.

    Raises:
        ChoiceError: for an unknown representation.
        SpaceTooLargeError: for a larger space.
    """
    represent = choose(REPRESENTATIONS, representation, "representation")
    if space.size > _LARGEST:
        text = space.operator.text
        raise SpaceTooLargeError(
            f"{space.size} configurations", where=text, expected=f"at most {_LARGEST}, see `sub_space`"
        )
    return Precomputed(space, represent(space, space.rows(range(space.size))))
