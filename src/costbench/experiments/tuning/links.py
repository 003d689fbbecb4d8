"""Runtimes of collectives by a model of the links between chips.

With p chips, n bytes, a latency of a nanoseconds per step and b nanoseconds per byte (Thakur, Rabenseifner,
Gropp: Optimization of Collective Communication Operations in MPICH, 2005, section 4):

    all-gather, reduce-scatter      (p - 1) a + (p - 1) / p n b    around a ring
    all-reduce                      twice that: a reduce-scatter, then an all-gather
    all-to-all                      (p - 1) a + (p - 1) / p n b    between pairs, which do not share links
    collective-permute              a + n b                        between neighbours
    collective-broadcast            (p - 1) a + n b                around a ring, in parts

Collectives do not share links with each other, and nothing is computed beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from costbench.hlo.opcode import Opcode


@dataclass(frozen=True)
class Links:
    """Chips that run a program together, and the links between them.

    Attributes:
        chips: of every group of a collective; the groups that a program states are not read.
        gb_per_s: bandwidth of a link in one direction, 1e9 bytes per second.
        ns: latency of a step, nanoseconds.

    Raises:
        ValueError: for no chip, a negative latency, or a bandwidth that is not above 0.
    """

    chips: int
    gb_per_s: float
    ns: float = 0.0

    def __post_init__(self) -> None:
        if self.chips < 1:
            raise ValueError(f"chips is {self.chips}, expected 1 or more")
        if not 0 < self.gb_per_s < math.inf:
            raise ValueError(f"gb_per_s is {self.gb_per_s}, expected above 0")
        if not 0 <= self.ns < math.inf:
            raise ValueError(f"ns is {self.ns}, expected 0 or more")

    def price_ns(self, opcode: Opcode, num_bytes: int) -> float | None:
        """Returns the nanoseconds of a collective; None for another opcode.

        Args:
            opcode: of the instruction.
            num_bytes: n, of its operands on one chip or of its result, whichever are more.
        """
        runtime = _RUNTIMES.get(opcode)
        return None if runtime is None else runtime(self, num_bytes / self.gb_per_s)


def _around(links: Links, transfer_ns: float) -> float:
    steps = links.chips - 1
    return steps * links.ns + steps / links.chips * transfer_ns


def _around_twice(links: Links, transfer_ns: float) -> float:
    return 2.0 * _around(links, transfer_ns)


def _to_a_neighbour(links: Links, transfer_ns: float) -> float:
    return links.ns + transfer_ns


def _to_all(links: Links, transfer_ns: float) -> float:
    return (links.chips - 1) * links.ns + (transfer_ns if links.chips > 1 else 0.0)


_RUNTIMES: Mapping[Opcode, Callable[[Links, float], float]] = {
    Opcode.ALL_GATHER: _around,
    Opcode.REDUCE_SCATTER: _around,
    Opcode.ALL_REDUCE: _around_twice,
    Opcode.ALL_TO_ALL: _around,
    Opcode.RAGGED_ALL_TO_ALL: _around,
    Opcode.COLLECTIVE_PERMUTE: _to_a_neighbour,
    Opcode.COLLECTIVE_BROADCAST: _to_all,
}
