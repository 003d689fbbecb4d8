"""Decisions and the spaces of them: which are legal, random samples, neighbours.

Tile sizes of a kernel (`TileSizes`) are few enough to be numbered (`DecisionSpace`). Decisions about a whole
program are not: they are vectors of choices (`VectorSpace`), a bool per fusible edge or a layout per
configurable node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from costbench.arrays import I16, I64, Bool


@dataclass(frozen=True, eq=False)
class TileSizes:
    """`n` tile sizes of one kernel, in native tiles, physical order from major to minor.

    The minor-most axis counts 128 lanes, the next one 8 sublanes, the others single elements; a
    one-dimensional array counts 1,024 elements (tpugraphs2023, section 3; tile units of the real machine).

    Attributes:
        kernel_bounds: int64 [n, rank of the right-hand side], or [n, 0] without a contraction.
        output_bounds: int64 [n, rank of the iteration shape], or [n, 0] where the kernel has no tile.
    """

    kernel_bounds: I64
    output_bounds: I64

    def __repr__(self) -> str:
        """Returns the number of tile sizes, and the first one."""
        if not len(self):
            return "TileSizes(none)"
        first = f"output {self.output_bounds[0].tolist()}, kernel {self.kernel_bounds[0].tolist()}"
        return f"TileSizes({len(self):,}, the first: {first})"

    def __len__(self) -> int:
        return len(self.output_bounds)

    def __getitem__(self, index: slice | I64 | Bool) -> TileSizes:
        return TileSizes(self.kernel_bounds[index], self.output_bounds[index])


Decisions_co = TypeVar("Decisions_co", covariant=True)


class DecisionSpace(Protocol[Decisions_co]):
    """The legal decisions of one kernel or program, numbered from 0.

    Numbers are stable: the same kernel or program and the same chip give the same numbering.
    """

    @property
    def size(self) -> int:
        """Returns how many numbers there are; not every number need be legal."""
        ...

    def legal(self, ids: I64) -> Bool:
        """Returns whether each numbered decision can be compiled, bool [n]."""
        ...

    def decode(self, ids: I64) -> Decisions_co:
        """Returns the decisions with these numbers."""
        ...

    def sample(self, rng: np.random.Generator, count: int) -> I64:
        """Returns up to `count` distinct legal numbers, ascending; all of them if there are no more."""
        ...

    def neighbours(self, identifier: int) -> I64:
        """Returns the legal numbers one step away, ascending."""
        ...


class VectorSpace(Protocol):
    """The decisions about one program: vectors of m choices, the i-th from 0 to num_choices[i] - 1.

    The order of choices is stable: the same program gives the same one.
    """

    @property
    def num_choices(self) -> I64:
        """Returns the number of options of each choice, int64 [m]."""
        ...

    @property
    def default(self) -> I16:
        """Returns the choices of the compiler's default heuristic, int16 [m]."""
        ...

    def legal(self, configs: I16) -> Bool:
        """Returns whether each of [n, m] can be compiled, bool [n]."""
        ...

    def sample(self, rng: np.random.Generator, count: int) -> I16:
        """Returns legal decisions drawn at random, int16 [count, m]."""
        ...

    def neighbours(self, config: I16, rng: np.random.Generator, count: int) -> I16:
        """Returns legal decisions one random step away from [m], int16 [count, m]."""
        ...

    def crossover(self, first: I16, second: I16, rng: np.random.Generator) -> I16:
        """Returns a legal decision with each choice from one of two parents [m], int16 [m]."""
        ...
