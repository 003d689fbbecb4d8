"""What a table's repeated measurements say about its noise."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from costbench.arrays import I64
from costbench.metrics.ranking import kendall_tau
from costbench_schedules.records.table import AFTERWARDS, RecordedTable

TRUSTED_TAU = 0.9
"""Rank correlation of two measurements from which on a table's order is taken to be the machine's."""
FASTEST = 20
"""How many of the fastest schedules are measured again after recording."""


@dataclass(frozen=True)
class Agreement:
    """Repeated against first measurements of the same configurations.

    Attributes:
        pairs: how many.
        tau: Kendall's tau; None below two different ones.
        median_ratio: median of second over first runtime.
        p90_ratio: 90th percentile of max(second, first) / min(second, first).
    """

    pairs: int
    tau: float | None
    median_ratio: float
    p90_ratio: float


def agreement(table: RecordedTable, round_number: int) -> Agreement:
    """Returns how repeated measurements of one round agree with the first ones, one of each configuration."""
    chosen = table.repeats[(table.repeats[:, 3] == round_number) & (table.repeats[:, 1] > 0)]
    chosen = chosen[np.unique(chosen[:, 0], return_index=True)[1]]
    return compare(table.columns["runtime_ns"][chosen[:, 0]], chosen[:, 1])


def fastest_numbers(table: RecordedTable) -> I64:
    """Returns the `FASTEST` fastest schedules of a table, or all that ran, the fastest first."""
    ran = np.flatnonzero(table.columns["measured"] & ~table.failed)
    return ran[np.argsort(table.columns["runtime_ns"][ran], kind="stable")[:FASTEST]]


def agreement_afterwards(table: RecordedTable) -> tuple[Agreement, Agreement]:
    """Returns how measurements after recording agree, of schedules drawn at random and of the fastest.

    They are kept apart because the fastest were chosen by the first measurement and lie within a few percent
    of each other: their order is chance on the quietest machine.
    """
    again = table.repeats[:, 3] == AFTERWARDS
    fast = np.isin(table.repeats[:, 0], fastest_numbers(table))
    drawn, fastest = (
        agreement(replace(table, repeats=table.repeats[again & chosen]), AFTERWARDS)
        for chosen in (~fast, fast)
    )
    return drawn, fastest


def confirmed_gflops(table: RecordedTable) -> float | None:
    """Returns the speed of the schedule that was measured fastest, by its measurements after recording.

    The first measurement of it is the least of many and therefore too fast on average; later ones are not
    selected. None if it was not measured again.
    """
    fastest = int(np.argmax(table.gflops))
    again = table.repeats[(table.repeats[:, 3] == AFTERWARDS) & (table.repeats[:, 0] == fastest), 1]
    again = again[again > 0]
    return float(table.space.operator.flops / np.median(again)) if len(again) else None


def compare(first: I64, second: I64) -> Agreement:
    """Returns the same of two measurements [n] of n configurations."""
    if not len(first):
        return Agreement(0, None, 1.0, 1.0)
    ratio = second / first
    tau = kendall_tau(first.astype(np.float64), second.astype(np.float64))
    apart = np.maximum(ratio, 1.0 / ratio)
    return Agreement(
        len(first), None if math.isnan(tau) else tau, float(np.median(ratio)), float(np.quantile(apart, 0.9))
    )
