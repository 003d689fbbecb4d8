"""Representations of schedules by name, among them the features of a schedule as one row, for trees.

Three representations as rows, of growing invariance:

- `config_features`: the choices themselves. They mean little in another space.
- `flattened_features`: the loops' context features side by side. They mean the same for loops at the same
  place, so in all workloads of one operator.
- `relation_features`: what holds between features over all loops, wherever they stand (autotvm2018, section
  4). They mean the same for every operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from costbench.arrays import F32, AnyFloat, Bool
from costbench.errors import DataError, SpaceTooLargeError, choose
from costbench.search.space import Rows
from costbench_schedules.features.context import FEATURE_NAMES, NUM_FEATURES, ContextBatch, context_features
from costbench_schedules.features.trees import loop_trees
from costbench_schedules.spaces.nest import STATEMENTS, nest_batch
from costbench_schedules.spaces.space import ScheduleSpace

THRESHOLDS = tuple(2.0 ** (3 * t) for t in range(1, 11))
"""beta_1 to beta_10 of the relation features: 8 to 2^30, in iterations or bytes."""
BOUNDED_BY = (
    "top_down",
    "bottom_up",
    "working_set",
    "touched_written",
    "touched_first",
    "touched_second",
)
"""Features j that select loops by Z_kj < beta_t: those that say how much runs or is touched inside a loop."""
_CHUNK = 64


def config_features(space: ScheduleSpace, rows: Rows) -> F32:
    """Returns the choices of configurations [n, m] as numbers, float32 [n, sum of their widths].

    A tile is log2 of its factors, outermost first; a number is log2(1 + it); a choice among names is one
    column per name that the unrestricted space has.
    """
    columns: list[AnyFloat] = []
    full = ScheduleSpace(space.operator)
    for index, knob in enumerate(full.knobs):
        chosen = space.chosen[index][np.asarray(rows[:, index], dtype=np.int64)]
        if isinstance(knob.values[0], tuple):
            columns.append(np.log2(np.array(knob.values, dtype=np.float64))[chosen])
        elif isinstance(knob.values[0], int):
            columns.append(np.log2(1.0 + np.array(knob.values, dtype=np.float64))[chosen][:, None])
        else:
            columns.append(np.eye(len(knob.values))[chosen])
    return np.concatenate(columns, axis=1).astype(np.float32)


def flattened_features(contexts: ContextBatch) -> F32:
    """Returns which statements there are, then the computation's context features, outermost loop first.

    A loop of one iteration keeps its place and is all zeros. Shape: float32 [n, S + L F].
    """
    values = contexts.values[:, contexts.block("compute")]
    present = np.zeros((len(values), len(STATEMENTS)), dtype=np.float32)
    present[:, list(contexts.statements)] = contexts.present
    return np.concatenate([present, values.reshape(len(values), -1)], axis=1)


def fill_columns(features: F32, columns: int) -> F32:
    """Returns features [n, F] filled up with zeros to [n, columns]: what a model of wider rows can read.

    Raises:
        DataError: for more columns than that.
    """
    if features.shape[1] > columns:
        raise DataError(f"{features.shape[1]} columns", where="features", expected=f"at most {columns}")
    return np.pad(features, ((0, 0), (0, columns - features.shape[1])))


def relation_features(contexts: ContextBatch) -> F32:
    """Returns context relation features, float32 [n, (J T + 1) F]:

        R_t^(ij) = max over loops k with Z_kj < beta_t of Z_ki, and the same over all loops,

    for all F features i, the J features j of `BOUNDED_BY` and the T `THRESHOLDS` beta; 0 without such a loop.
    Columns are sorted by j, then t, then i. Source: autotvm2018, section 4; there j is any feature.
    """
    values, real = _move_to_front(contexts)
    bounds = np.log2(1.0 + np.array(THRESHOLDS)).astype(np.float32)
    selecting = [FEATURE_NAMES.index(name) for name in BOUNDED_BY]
    shape = (len(values), len(selecting) * len(bounds) + 1, NUM_FEATURES)
    result = np.zeros(shape, dtype=np.float32)
    for start in range(0, len(values), _CHUNK):
        part = slice(start, start + _CHUNK)
        _relations(values[part], real[part], selecting, bounds, result[part])
    return result.reshape(len(values), -1)


def _relations(values: F32, real: Bool, selecting: list[int], bounds: F32, result: F32) -> None:
    """Fills in [n, J T + 1, F] from values [n, K, F]."""
    count = len(bounds)
    for number, column in enumerate(selecting):
        # Loop k counts from the first threshold above its feature on: a running maximum over thresholds.
        first = np.searchsorted(bounds, values[:, :, column], side="right")
        first[~real] = count
        table = result[:, number * count : (number + 1) * count]
        for loop in range(values.shape[1]):
            rows = np.flatnonzero(first[:, loop] < count)
            thresholds = first[rows, loop]
            table[rows, thresholds] = np.maximum(table[rows, thresholds], values[rows, loop])
        np.maximum.accumulate(table, axis=1, out=table)
    result[:, -1] = values.max(axis=1, initial=0.0)


def _move_to_front(contexts: ContextBatch) -> tuple[F32, Bool]:
    """Returns the loops that are there, in order, moved to the first places."""
    num_loops = int(contexts.real.sum(axis=1).max(initial=0))
    order = np.argsort(~contexts.real, axis=1, kind="stable")[:, :num_loops]
    values = np.take_along_axis(contexts.values, order[:, :, None], axis=1)
    return values, np.take_along_axis(contexts.real, order, axis=1)


Featurizer = Callable[[ScheduleSpace, Rows], Any]
"""Configurations of a space to their features, an array [n, F] or `LoopTrees`."""
_MAX_PRECOMPUTED = 1 << 16


def _of_loops(represent: Callable[[ContextBatch], Any]) -> Featurizer:
    return lambda space, rows: represent(context_features(nest_batch(space, rows)))


REPRESENTATIONS: Mapping[str, Featurizer] = {
    "config": config_features,
    "flattened": _of_loops(flattened_features),
    "relation": _of_loops(relation_features),
    "tree": _of_loops(loop_trees),
}


@dataclass(frozen=True, eq=False)
class PrecomputedFeatures:
    """The features of all configurations of a space, for searches that are repeated.

    Attributes:
        space: space that the configurations are of.
        features: features of each configuration, in the order of their numbers.
    """

    space: ScheduleSpace
    features: Any

    def __call__(self, rows: Rows) -> Any:
        """Returns the features of some configurations, as the representation does."""
        return self.features[np.array(self.space.numbers(rows), dtype=np.int64)]


def precompute(space: ScheduleSpace, representation: str) -> PrecomputedFeatures:
    """Returns the features of a whole space.

    Args:
        space: space of at most 65,536 configurations.
        representation: key of `REPRESENTATIONS`.

    Raises:
        ChoiceError: for an unknown representation.
        SpaceTooLargeError: for a larger space.
    """
    represent = choose(REPRESENTATIONS, representation, "representation")
    if space.size > _MAX_PRECOMPUTED:
        text = space.operator.text
        raise SpaceTooLargeError(
            f"{space.size} configurations",
            where=text,
            expected=f"at most {_MAX_PRECOMPUTED}, see `sub_space`",
        )
    return PrecomputedFeatures(space, represent(space, space.rows(range(space.size))))
