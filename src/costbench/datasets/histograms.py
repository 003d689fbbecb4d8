"""Streaming histograms of positive numbers, whose memory does not grow with the data.

There are two sets of bins. Fine bins are the upper bits of a float64 (exponent and 10 bits of mantissa), so
whole numbers below 2,048 have bins of their own and larger ones are exact to 0.1%; quantiles are computed
from these. Coarse bins are equal steps of the logarithm, the same ones for every data set; figures show
these.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

QUANTILES = (("min", 0.0), ("p10", 0.1), ("median", 0.5), ("p90", 0.9), ("max", 1.0))
_DROPPED_BITS = 42
_ONE = int(np.float64(1.0).view(np.int64)) >> _DROPPED_BITS
_NUM_FINE = (int(np.float64(2.0**63).view(np.int64)) >> _DROPPED_BITS) - _ONE + 1
_DECADES = 19


class LogHistogram:
    """Histogram of numbers from 1 to 2^63.

    Args:
        bins_per_decade: coarse bins in a factor of ten; bin i holds 10^(i/b) up to, without, 10^((i+1)/b).
    """

    def __init__(self, bins_per_decade: int = 10) -> None:
        self.bins_per_decade = bins_per_decade
        self._edges = 10.0 ** (np.arange(1, _DECADES * bins_per_decade) / bins_per_decade)
        self._coarse = np.zeros(len(self._edges) + 1, np.int64)
        self._fine = np.zeros(_NUM_FINE, np.int64)
        self._sum = 0.0
        self._min, self._max = math.inf, -math.inf

    def add(self, values: npt.ArrayLike) -> None:
        """Count the numbers of an array of any shape; those below 1, which do not occur, count as 1."""
        array = np.maximum(np.asarray(values, dtype=np.float64).reshape(-1), 1.0)
        if not len(array):
            return
        fine = (array.view(np.int64) >> _DROPPED_BITS) - _ONE
        self._fine += np.bincount(fine, minlength=_NUM_FINE)
        coarse = np.searchsorted(self._edges, array, side="right")
        self._coarse += np.bincount(coarse, minlength=len(self._coarse))
        self._sum += float(array.sum())
        self._min, self._max = min(self._min, float(array.min())), max(self._max, float(array.max()))

    @property
    def count(self) -> int:
        """How many numbers were counted."""
        return int(self._coarse.sum())

    def quantile(self, share: float) -> float:
        """Return the number that `share` (0 to 1) of the numbers do not exceed, to 0.1%; exact at 0 and 1.

        It is the lower end of a fine bin, the smaller one if the quantile lies between two; NaN without
        numbers.
        """
        if not self.count:
            return math.nan
        if share in (0.0, 1.0):
            return self._max if share else self._min
        place = math.floor(share * (self.count - 1))
        index = int(np.searchsorted(np.cumsum(self._fine), place, side="right"))
        lower = float(np.int64((index + _ONE) << _DROPPED_BITS).view(np.float64))
        return max(lower, self._min)

    def to_dict(self) -> dict[str, object]:
        """Return quantiles and mean by name, and the coarse counts from the first to the last that is not 0:
        bin `first + i` has `counts[i]`. Without numbers, `counts` is empty and the only key.
        """
        found: dict[str, object] = {"bins_per_decade": self.bins_per_decade, "first": 0, "counts": []}
        used = np.flatnonzero(self._coarse)
        if not len(used):
            return found
        found |= {name: _number(self.quantile(share)) for name, share in QUANTILES}
        counts = self._coarse[used[0] : used[-1] + 1]
        mean = round(self._sum / self.count, 6)
        return found | {"mean": mean, "first": int(used[0]), "counts": counts.tolist()}


def _number(value: float) -> float | int:
    return int(value) if value == int(value) else round(value, 6)
