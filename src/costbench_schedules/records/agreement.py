"""How far repeated measurements of the same schedules agree: of a recorded table, or of a machine at hand."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from costbench.arrays import F64, I64
from costbench.errors import DataError
from costbench.metrics.ranking import kendall_tau
from costbench_schedules.devices.device import Rows, ScheduleDevice
from costbench_schedules.records.table import AFTERWARDS, RecordedTable
from costbench_schedules.spaces.space import ScheduleSpace

TRUSTED_TAU = 0.9
"""Rank correlation of two measurements from which on a table's order is taken to be the machine's."""
FASTEST = 20
"""How many of the fastest schedules are measured again after recording."""


@dataclass(frozen=True)
class Agreement:
    """Repeated against first measurements of the same configurations.

    Attributes:
        pairs: number of configurations.
        tau: Kendall's tau; None below two different ones.
        median_ratio: median of second over first runtime.
        p90_ratio: 90th percentile of max(second, first) / min(second, first).
    """

    pairs: int
    tau: float | None
    median_ratio: float
    p90_ratio: float


def agreement(table: RecordedTable, round_number: int) -> Agreement:
    """Returns how the medians of the repeated measurements of a round agree with the first ones."""
    chosen = table.repeats[(table.repeats[:, 3] == round_number) & (table.repeats[:, 1] > 0)]
    numbers = np.unique(chosen[:, 0])
    medians = [np.median(chosen[chosen[:, 0] == number, 1]) for number in numbers]
    return compare(table.columns["runtime_ns"][numbers], np.array(medians, dtype=np.float64))


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
    random, fastest = (
        agreement(replace(table, repeats=table.repeats[again & chosen]), AFTERWARDS)
        for chosen in (~fast, fast)
    )
    return random, fastest


def confirmed_gflops(table: RecordedTable) -> float | None:
    """Returns the speed of the schedule that was measured fastest, by its measurements after recording.

    The first measurement of it is the least of many and therefore too fast on average; later ones are not
    selected. None if it was not measured again.
    """
    fastest = int(np.argmax(table.gflops))
    again = table.repeats[(table.repeats[:, 3] == AFTERWARDS) & (table.repeats[:, 0] == fastest), 1]
    again = again[again > 0]
    return float(table.space.operator.flops / np.median(again)) if len(again) else None


def compare(first: I64 | F64, second: I64 | F64) -> Agreement:
    """Returns the same of two measurements [n] of n configurations."""
    if not len(first):
        return Agreement(0, None, 1.0, 1.0)
    ratio = second / first
    tau = kendall_tau(first.astype(np.float64), second.astype(np.float64))
    apart = np.maximum(ratio, 1.0 / ratio)
    return Agreement(
        len(first), None if math.isnan(tau) else tau, float(np.median(ratio)), float(np.quantile(apart, 0.9))
    )


MIN_ROUNDS = 2


@dataclass(frozen=True)
class NoiseReport:
    """Repeated measurements of n schedules.

    Attributes:
        operator: operator that was scheduled.
        schedules: number of schedules that ran in all rounds.
        rounds: number of measurements of each schedule; other schedules came in between.
        tau_median: Kendall's tau between two rounds, median over pairs of rounds; None if undefined.
        tau_min: smallest Kendall's tau between two rounds.
        tau_fastest_half: median tau among the faster half of the schedules; None if undefined.
        variation_median: standard deviation over mean of a schedule's runtimes, median over schedules.
        variation_max: largest variation of a schedule.
        interrupted: share of measurements without any uninterrupted block.
        load: processes that wanted to run, average of the last minute; None where the system does not say.
        processors: logical processors of the machine.
    """

    operator: str
    schedules: int
    rounds: int
    tau_median: float | None
    tau_min: float | None
    tau_fastest_half: float | None
    variation_median: float
    variation_max: float
    interrupted: float
    load: float | None
    processors: int


def noise_report(device: ScheduleDevice, space: ScheduleSpace, rows: Rows, rounds: int = 3) -> NoiseReport:
    """Returns how repeated measurements of configurations [n, m] agree.

    Raises:
        DataError: below two rounds, or if fewer than two configurations ran in all rounds.
    """
    if rounds < MIN_ROUNDS:
        raise DataError(f"{rounds} rounds", where="noise report", expected=f"at least {MIN_ROUNDS}")
    measurements = [device.measure(space, rows) for _ in range(rounds)]
    ran = ~np.any([measurement.failed for measurement in measurements], axis=0)
    if np.count_nonzero(ran) < 2:
        raise DataError("fewer than two schedules ran", where=space.operator.text, expected="two or more")
    times = np.array([measurement.runtime_ns[ran] for measurement in measurements], dtype=np.float64)
    taus = _taus(times)
    fast = np.argsort(times[0], kind="stable")[: max(2, times.shape[1] // 2)]
    halves = _taus(times[:, fast])
    variation = times.std(axis=0, ddof=1) / times.mean(axis=0)
    clean = np.array([measurement.clean[ran] for measurement in measurements])
    return NoiseReport(
        space.operator.text,
        int(np.count_nonzero(ran)),
        rounds,
        float(np.median(taus)) if taus else None,
        min(taus, default=None),
        float(np.median(halves)) if halves else None,
        float(np.median(variation)),
        float(variation.max()),
        float(np.mean(clean == 0)),
        os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        os.cpu_count() or 1,
    )


def _taus(times: F64) -> list[float]:
    """Returns Kendall's tau of all pairs of rounds [r, n] where it is defined."""
    pairs = (kendall_tau(first, second) for first, second in combinations(times, 2))
    return [tau for tau in pairs if not math.isnan(tau)]
