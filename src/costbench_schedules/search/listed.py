"""A part of a schedule space as a search space: the configurations on a list."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from costbench.arrays import I64, Bool
from costbench.search.space import Rows, Seen, keys
from costbench_schedules.search.problems import Schedules


@dataclass(frozen=True, eq=False)
class Listed(Schedules):
    """A `SearchSpace` of some configurations of a schedule space, int64 [n, m], numbered as there.

    Attributes:
        listed: the configurations that are legal, [k, m], distinct.
    """

    listed: I64

    @cached_property
    def _keys(self) -> frozenset[bytes]:
        return frozenset(keys(self.listed))

    def legal(self, rows: Rows) -> Bool:
        """Returns which configurations are on the list, bool [n]."""
        return np.array([key in self._keys for key in keys(rows.astype(np.int64))], dtype=np.bool_)

    def draw(self, rng: np.random.Generator, count: int, seen: Seen) -> I64:
        """Returns up to `count` configurations of the list that are not in `seen`, in random order."""
        return rng.permutation(self.listed[seen.fresh(self.listed)])[:count]

    def step(self, rows: Rows, rng: np.random.Generator) -> I64:
        """Returns for each configuration a listed one that differs in one knob; itself if there is none."""
        moves = rows.astype(np.int64)
        for place, row in enumerate(moves.copy()):
            near = np.flatnonzero((self.listed != row).sum(axis=1) == 1)
            if len(near):
                moves[place] = self.listed[rng.choice(near)]
        return moves

    def cross(self, first: Rows, second: Rows, rng: np.random.Generator) -> I64:
        """Returns children with each choice from one parent; the first parent where a child is not listed."""
        children = np.where(rng.random(first.shape) < 0.5, first, second).astype(np.int64)
        return np.where(self.legal(children)[:, None], children, first.astype(np.int64))
