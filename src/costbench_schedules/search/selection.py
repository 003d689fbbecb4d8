"""Selects a batch that is both cheap and diverse (autotvm2018, equation 3)."""

from __future__ import annotations

import numpy as np

from costbench.arrays import F64, I64
from costbench.search.space import Rows


def diverse(costs: F64, rows: Rows, count: int, alpha: float) -> I64:
    """Returns which `count` candidates greedily maximise L(S), int64 [min(count, n)], in order of choice.

        L(S) = - sum over s in S of cost(s) + alpha sum_j |union over s in S of {s_j}|

    The second term counts the distinct values of every component of the decisions in S. L is submodular: with
    all costs shifted to at most 0, which changes no choice, the greedy set reaches at least 1 - 1/e of what
    the best one of its size does (Nemhauser, Wolsey and Fisher 1978). Of equal gains the first candidate is
    taken. With alpha = 0 these are the cheapest.

    Args:
        costs: float64 [n].
        rows: [n, m], the components of each.
        count: size of S.
        alpha: what a new value of a component is worth, in units of costs.

    Raises:
        ValueError: for a negative alpha.
    """
    if alpha < 0.0:
        raise ValueError(f"alpha is {alpha}, must not be negative")
    uncovered = np.ones(rows.shape, dtype=bool)
    left = np.ones(len(rows), dtype=bool)
    chosen = np.empty(min(count, len(rows)), dtype=np.int64)
    for place in range(len(chosen)):
        gains = np.where(left, alpha * uncovered.sum(axis=1) - costs, -np.inf)
        best = int(np.argmax(gains))
        chosen[place] = best
        left[best] = False
        uncovered &= rows != rows[best]
    return chosen
