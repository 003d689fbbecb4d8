"""Rank metrics within one kernel: Kendall's tau-b and ordered-pair accuracy, both from pair counts.

All pairs of decisions are sorted into concordant, discordant and tied ones. Counting discordant pairs is
counting inversions, done bit by bit on dense ranks (the levels of a wavelet tree): O(n log n) work in
whole-array steps, so the 500,000 tile sizes of the largest kernel take a fraction of a second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from costbench.arrays import F64, I64
from costbench.metrics.checks import aligned

_MAX_DIRECT = 256
"""Number of values up to which all pairs are compared directly."""


@dataclass(frozen=True)
class PairCounts:
    """How the `n (n - 1) / 2` pairs of two rankings compare.

    Attributes:
        concordant: pairs that both rankings order the same way.
        discordant: pairs that they order oppositely.
        tied_predicted: pairs equal in the prediction, whatever they are in the measurement.
        tied_measured: pairs equal in the measurement, whatever they are in the prediction.
        total: all pairs.
    """

    concordant: int
    discordant: int
    tied_predicted: int
    tied_measured: int
    total: int


def count_pairs(predicted: npt.ArrayLike, measured: npt.ArrayLike) -> PairCounts:
    """Returns pair counts of two float [n] arrays, in O(n log n).

    Raises:
        DataError: if the lengths differ or a value is NaN or infinite.
    """
    x, y = aligned(predicted=predicted, measured=measured)
    n = len(x)
    if n <= _MAX_DIRECT:
        return _count_pairs_directly(x, y)
    x_rank, y_rank = _dense_ranks(x), _dense_ranks(y)
    order = np.lexsort((y_rank, x_rank))
    # Within equal x, y ascends: a pair tied in x is never an inversion.
    discordant = _inversions(y_rank[order])
    tied_x, tied_y = _tied_pairs(x_rank), _tied_pairs(y_rank)
    tied_both = _tied_pairs(x_rank * np.int64(n) + y_rank)
    total = n * (n - 1) // 2
    concordant = total - tied_x - tied_y + tied_both - discordant
    return PairCounts(concordant, discordant, tied_x, tied_y, total)


def _count_pairs_directly(x: F64, y: F64) -> PairCounts:
    """Returns the same counts in O(n^2) time, which is faster where n is small."""
    total = len(x) * (len(x) - 1) // 2
    less_x, less_y = x[:, None] < x, y[:, None] < y
    concordant, discordant = (int(np.count_nonzero(less_x & other)) for other in (less_y, less_y.T))
    tied_x, tied_y = (total - int(np.count_nonzero(less)) for less in (less_x, less_y))
    return PairCounts(concordant, discordant, tied_x, tied_y, total)


def kendall_tau(predicted: npt.ArrayLike, measured: npt.ArrayLike) -> float:
    """Returns Kendall's tau-b: (C - D) / sqrt((P - T_x) (P - T_y)).

    C and D are concordant and discordant pairs, P all pairs, T_x and T_y those tied in either array. A
    tie is an exact equality. 1 is the same order, -1 the reverse.

    Returns:
        NaN where it is undefined: fewer than two values, or either array constant.

    Raises:
        DataError: as `count_pairs`.
    """
    pairs = count_pairs(predicted, measured)
    return math.nan if pairs.total == pairs.tied_predicted else tau_of(pairs)


def tau_of(pairs: PairCounts) -> float:
    """Returns Kendall's tau-b as the score of one kernel, for averaging over kernels.

    A kernel whose measured runtimes are all equal (or that has one decision) ranks nothing and gives NaN,
    to be left out. A prediction that is constant where the runtimes are not gives 0 and stays in: a model
    must not gain by abstaining.
    """
    left, right = pairs.total - pairs.tied_predicted, pairs.total - pairs.tied_measured
    if right == 0:
        return math.nan
    if left == 0:
        return 0.0
    # The product of two pair counts passes 2^63 from n = 60,000 on, so the roots are taken first.
    return (pairs.concordant - pairs.discordant) / (math.sqrt(left) * math.sqrt(right))


def ordered_pair_accuracy_of(pairs: PairCounts) -> float:
    """Returns the share of pairs with different runtimes that the prediction orders rightly.

    OPA = C / (P - T_y), as in section 5 of tpugraphs2023. Pairs tied in the measurement do not count; one
    tied in the prediction only is wrong. NaN where all runtimes are equal.
    """
    ordered = pairs.total - pairs.tied_measured
    return pairs.concordant / ordered if ordered else math.nan


def _dense_ranks(values: F64) -> I64:
    return np.unique(values, return_inverse=True)[1].astype(np.int64).reshape(-1)


def _tied_pairs(keys: I64) -> int:
    counts = np.unique(keys, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


def _inversions(ranks: I64) -> int:
    """Returns the number of pairs i < j with ranks[i] > ranks[j].

    Two different ranks share their upper bits down to some bit, where the larger has a 1: so at each bit,
    from the top, the ones that precede a zero are counted among numbers with equal upper bits, and the
    numbers are then parted by that bit, keeping their order.
    """
    total = 0
    bits = int(ranks.max()).bit_length() if len(ranks) else 0
    for bit in range(bits - 1, -1, -1):
        ones = (ranks >> bit) & 1
        upper = ranks >> (bit + 1)
        ones_before = np.cumsum(ones) - ones
        # Numbers with equal upper bits stand together, so a block starts where they change.
        starts = np.flatnonzero(np.r_[True, upper[1:] != upper[:-1]])
        block = np.cumsum(np.r_[False, upper[1:] != upper[:-1]])
        ones_in_block_before = ones_before - ones_before[starts][block]
        total += int(ones_in_block_before[ones == 0].sum())
        ranks = ranks[np.argsort(ranks >> bit, kind="stable")]
    return total
