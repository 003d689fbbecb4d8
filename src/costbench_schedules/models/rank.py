"""The rank loss of autotvm2018 (equation 2), with the derivatives that boosting needs.

    sum over i, j of log(1 + exp(-sign(c_i - c_j) (f_i - f_j)))

c are runtimes and f costs. Pairs are formed within a group only, and pairs of equal runtimes, failures among
them, have no term: their sign is 0, which leaves the constant log 2. The sum here runs over ordered pairs
with c_i > c_j, half of the above. Every term is divided by n - 1, n the size of its group, which leaves the
derivative by one cost at most 1 for any n.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from costbench import rng
from costbench.arrays import F64, I64, Bool
from costbench_schedules.models.learner import Samples

_LARGEST = 512
"""Schedules that are compared with each other: a larger group is divided at random, since pairs are as many
as the square."""


class Pairs:
    """The pairs of some samples.

    Args:
        samples: the measurements.
        seed: of the division of large groups.
    """

    def __init__(self, samples: Samples, seed: int) -> None:
        self._size = len(samples)
        self._parts: list[tuple[I64, Bool]] = []
        for places in _divided(samples.groups, seed):
            runtimes = samples.runtime_ns[places]
            self._parts.append((places, runtimes[:, None] > runtimes))

    def loss(self, costs: F64) -> float:
        """Returns the loss of costs [n]."""
        total = 0.0
        for places, slower in self._parts:
            margins = (costs[places][:, None] - costs[places])[slower]
            total += float(np.logaddexp(0.0, -margins).sum()) / (len(places) - 1)
        return total

    def derivatives(self, costs: F64) -> tuple[F64, F64]:
        """Returns the first and second derivatives of the loss by each cost, float64 [n] both.

        A term of margin z = f_i - f_j has the derivatives -p by f_i, p by f_j and p (1 - p) by either, with
        p = 1 / (1 + exp(z)).
        """
        first, second = np.zeros(self._size), np.zeros(self._size)
        for places, slower in self._parts:
            margins = costs[places][:, None] - costs[places]
            shares = np.where(slower, 0.5 - 0.5 * np.tanh(0.5 * margins), 0.0)
            curved = shares * (1.0 - shares)
            scale = 1.0 / (len(places) - 1)
            first[places] = scale * (shares.sum(axis=0) - shares.sum(axis=1))
            second[places] = scale * (curved.sum(axis=0) + curved.sum(axis=1))
        return first, second


def _divided(groups: I64, seed: int) -> Sequence[I64]:
    """Returns the places of each group, large ones in parts of even size; groups of one have no pairs."""
    found: list[I64] = []
    for group in np.unique(groups).tolist():
        places = np.flatnonzero(groups == group)
        parts = -(-len(places) // _LARGEST)
        if parts > 1:
            places = rng.stream(seed, "rank", group).permutation(places)
        found += [part for part in np.array_split(places, parts) if len(part) > 1]
    return found
