"""How noisy a machine is: the same schedules measured in several rounds, as their users would meet it."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass
from itertools import combinations

import numpy as np

from costbench.arrays import F64
from costbench.errors import DataError
from costbench.metrics.ranking import kendall_tau
from costbench_schedules.devices.device import Rows, ScheduleDevice
from costbench_schedules.spaces.space import ScheduleSpace

MIN_ROUNDS = 2


@dataclass(frozen=True)
class NoiseReport:
    """Repeated measurements of n schedules.

    Attributes:
        operator: what was scheduled.
        schedules: how many ran in all rounds.
        rounds: how often each was measured; other schedules came in between.
        tau_median: Kendall's tau between two rounds, median over pairs of rounds; None if undefined.
        tau_min: the smallest.
        tau_fastest_half: median tau among the faster half of the schedules; None if undefined.
        variation_median: standard deviation over mean of a schedule's runtimes, median over schedules.
        variation_max: the largest.
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

    def to_dict(self) -> dict[str, object]:
        """Returns the fields by name."""
        return asdict(self)


def noise_report(device: ScheduleDevice, space: ScheduleSpace, rows: Rows, rounds: int = 3) -> NoiseReport:
    """Returns how repeated measurements of configurations [n, m] agree.

    Raises:
        DataError: below two rounds, or if fewer than two configurations ran in all rounds.
    """
    if rounds < MIN_ROUNDS:
        raise DataError(f"{rounds} rounds", where="noise report", expected=f"at least {MIN_ROUNDS}")
    found = [device.measure(space, rows) for _ in range(rounds)]
    ran = ~np.any([one.failed for one in found], axis=0)
    if np.count_nonzero(ran) < 2:
        raise DataError("fewer than two schedules ran", where=space.operator.text, expected="two or more")
    times = np.array([one.runtime_ns[ran] for one in found], dtype=np.float64)
    taus = _taus(times)
    fast = np.argsort(times[0], kind="stable")[: max(2, times.shape[1] // 2)]
    halves = _taus(times[:, fast])
    variation = times.std(axis=0, ddof=1) / times.mean(axis=0)
    clean = np.array([one.clean[ran] for one in found])
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
