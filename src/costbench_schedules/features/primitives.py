"""Schedules as sequences of schedule primitives, without their programs (tlp2022).

A primitive is what a schedule calls to transform a program: split, reorder, parallel, and so on, with its
parameters as numbers. A sequence has one line for each axis that is split, then one for each other knob.
"""

from __future__ import annotations

import numpy as np

from costbench.arrays import F32
from costbench.search.space import Rows
from costbench_schedules.spaces.space import SPATIAL_LEVELS, ScheduleSpace, tile_name

SPLITS = ("spatial", "reduce")
OTHERS = ("order", "cache", "vectorize", "unroll", "parallel", "padding")
_AXES = 10
_PARAMETERS = 1 + SPATIAL_LEVELS
LENGTH = _AXES + len(OTHERS)
"""Lines of a sequence; those of axes that an operator does not have are zeros."""
WIDTH = len(SPLITS) + len(OTHERS) + 1 + _PARAMETERS


def primitive_sequences(space: ScheduleSpace, rows: Rows) -> F32:
    """Returns the primitives of configurations [n, m] of a space, float32 [n, LENGTH, WIDTH].

    A line is a one-hot kind, the place of an axis counted from the last one over the number of lines, and up
    to five parameters: of a split log2 of the extent and of each factor, outermost first; of a number
    log2(1 + it); of a choice among names a one-hot column for each.
    """
    sequences = np.zeros((len(rows), LENGTH, WIDTH), dtype=np.float32)
    operator = space.operator
    knob_of = {knob.name: index for index, knob in enumerate(space.knobs)}
    first = len(SPLITS) + len(OTHERS)
    # The last axes of operators have most in common: they stand at the same lines.
    for line, axis in enumerate(reversed(operator.axes)):
        knob = knob_of[tile_name(axis)]
        factors = np.log2(np.array(space.knobs[knob].values, dtype=np.float64))[rows[:, knob]]
        sequences[:, line, SPLITS.index(axis.kind)] = 1.0
        sequences[:, line, first] = line / LENGTH
        sequences[:, line, first + 1] = np.log2(axis.extent)
        sequences[:, line, first + 2 : first + 2 + factors.shape[1]] = factors
    for line, name in enumerate(OTHERS, _AXES):
        knob = knob_of[name]
        values = space.knobs[knob].values
        sequences[:, line, len(SPLITS) + OTHERS.index(name)] = 1.0
        if isinstance(values[0], int):
            numbers = np.log2(1.0 + np.array(values, dtype=np.float64))
            sequences[:, line, first + 1] = numbers[rows[:, knob]]
        else:
            sequences[:, line, first + 1 : first + 1 + len(values)] = np.eye(len(values))[rows[:, knob]]
    return sequences
