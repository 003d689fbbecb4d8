"""Writes lists of integers to fixed columns: the first values, then the sum and the product of all of them.

TpuGraphs turns sizes, strides and paddings into features in this way. The lists of many rows are concatenated
and reduced at once, in 64-bit integers that wrap around as in that data set.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import numpy as np

from costbench.arrays import F32


class ListColumns:
    """Collects the non-empty lists of one attribute, row by row, and writes them into a table at once.

    Args:
        start: first column.
        places: number of leading values that are kept; the rest of a longer list only counts in the totals.
        totals: whether two more columns hold the sum and the product over the whole list.
    """

    def __init__(self, start: int, places: int, totals: bool = True) -> None:
        self._start = start
        self._places = places
        self._totals = totals
        self._rows: list[int] = []
        self._lists: list[Sequence[int]] = []

    def add(self, row: int, values: Sequence[int]) -> None:
        """Add the list of one row; for an empty one the row keeps its absent values."""
        if values:
            self._rows.append(row)
            self._lists.append(values)

    def write(self, table: F32) -> None:
        """Write the added lists to `table` [n, columns]."""
        if not self._rows:
            return
        rows = np.array(self._rows, dtype=np.int64)
        lengths = np.array([len(values) for values in self._lists], dtype=np.int64)
        flat = np.fromiter(chain.from_iterable(self._lists), dtype=np.int64, count=int(lengths.sum()))
        starts = np.cumsum(lengths) - lengths
        for place in range(self._places):
            present = lengths > place
            table[rows[present], self._start + place] = flat[starts[present] + place]
        if self._totals:
            table[rows, self._start + self._places] = np.add.reduceat(flat, starts)
            table[rows, self._start + self._places + 1] = np.multiply.reduceat(flat, starts)
