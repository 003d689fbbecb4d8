"""What every space of decisions has in common: a size, numbered decisions, sampling and neighbours."""

from __future__ import annotations

from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

Decisions_co = TypeVar("Decisions_co", covariant=True)
IntArray = npt.NDArray[np.int64]


class DecisionSpace(Protocol[Decisions_co]):
    """The legal decisions of one kernel or program, numbered from 0.

    Numbers are stable: the same kernel or program and the same chip give the same numbering.
    """

    @property
    def size(self) -> int:
        """How many numbers there are; not every number need be legal."""
        ...

    def legal(self, ids: IntArray) -> npt.NDArray[np.bool_]:
        """Whether each numbered decision can be compiled, bool [n]."""
        ...

    def decode(self, ids: IntArray) -> Decisions_co:
        """The decisions with these numbers."""
        ...

    def sample(self, rng: np.random.Generator, count: int) -> IntArray:
        """Up to `count` distinct legal numbers, ascending; all of them where there are no more."""
        ...

    def neighbours(self, identifier: int) -> IntArray:
        """Legal numbers one step away, ascending."""
        ...
