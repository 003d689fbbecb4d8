"""Searches over fusions on a machine that exists: what they gained, by start and kind of search."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from costbench.datasets.machine_searches import HARDWARE, MODEL, RANDOM, XLA, read_searches
from costbench.metrics.intervals import paired_bootstrap
from costbench.metrics.rows import MetricRow
from costbench.reports.frame import frame_of
from costbench.reports.results import ALL, FOLDS
from costbench.rng import stream

TITLES = {XLA: "XLA's own fusions", RANDOM: "a random config"}
"""Starts of searches in words."""
_CHIP = "xla_cpu"
_WITH_MODEL = f"{MODEL} and {HARDWARE}"
_NAMED = (HARDWARE, f"analytical and {HARDWARE}")
"""Kinds of search that result rows call by their names."""


@dataclass(frozen=True)
class SearchGains:
    """Gains of one kind of search from one start, over programs.

    Attributes:
        start: start of the searches.
        arm: kind of search.
        programs: number of programs.
        gain: geometric mean of how many times as fast as with XLA's own fusions programs became.
        low: lower end of its 95% interval over programs.
        high: upper end.
        faster: percent of programs that are faster by more than the noise of their runs.
        slower: percent that are slower by more than that.
        own: percent of searches that end with XLA's own fusions, as they found nothing faster.
        seconds: processor seconds of a search, mean.
        measured: configs compiled and run in a search, mean.
        predicted: configs that a model scored in a search, mean.
    """

    start: str
    arm: str
    programs: int
    gain: float
    low: float
    high: float
    faster: float
    slower: float
    own: float
    seconds: float
    measured: float
    predicted: float


def search_gains(folder: Path | None) -> tuple[tuple[SearchGains, ...], pd.DataFrame]:
    """Returns gains by start and kind of search, and the searches themselves; nothing without a folder.

    Raises:
        DataError: for a file that is something else.
    """
    rows = read_searches(folder) if folder is not None else pd.DataFrame()
    return tuple(_gains(rows)) if len(rows) else (), rows


def search_rows(folder: Path | None) -> pd.DataFrame:
    """Returns the gains as result rows, metric `speedup`, by which claims are decided.

    The model of a row is `hardware`, `analytical and hardware`, or `model and hardware` for any other model;
    its variant is the start.

    Raises:
        DataError: for a file that is something else.
    """
    rows = search_gains(folder)[1]
    return frame_of(
        (
            MetricRow(
                task="fusion",
                split=FOLDS,
                chip=_CHIP,
                model=arm if (arm := str(row["arm"])) in _NAMED else _WITH_MODEL,
                variant=str(row["start"]),
                seed=0,
                application=str(row["application"]),
                program=str(row["program"]),
                kernels=ALL,
                metric="speedup",
                value=float(row["gain"]),
                params_digest="",
                data_digest="",
                git_revision="",
            )
            for row in rows.to_dict("records")
        ),
        "machine_searches",
    )


def _gains(rows: pd.DataFrame) -> Iterator[SearchGains]:
    for (start, arm), of_kind in rows.groupby(["start", "arm"], sort=True, observed=True):
        logs = np.log(of_kind["gain"].to_numpy(np.float64))
        rng = stream(0, "searches on a machine", str(start), str(arm))
        interval = paired_bootstrap(logs, np.zeros(len(logs)), rng)
        gain, low, high = np.exp([interval.difference, interval.low, interval.high]).tolist()
        yield SearchGains(
            start=str(start),
            arm=str(arm),
            programs=len(of_kind),
            gain=gain,
            low=low,
            high=high,
            faster=100.0 * float((of_kind["low"] > 1.0).mean()),
            slower=100.0 * float((of_kind["high"] < 1.0).mean()),
            own=100.0 * float(of_kind["is_own"].mean()),
            seconds=float(of_kind["spent_s"].mean()),
            measured=float(of_kind["measured"].mean()),
            predicted=float(of_kind["predicted"].mean()),
        )


def flat_machine_searches(folder: Path | None) -> dict[str, float]:
    """Returns the gains by key of the summary, `fusion_search/xla_cpu/START/ARM/gain_mean` and so on."""
    numbers: dict[str, float] = {}
    for gains in search_gains(folder)[0]:
        prefix = f"fusion_search/xla_cpu/{gains.start}/{gains.arm.replace(' ', '_')}"
        numbers |= {
            f"{prefix}/gain_mean": gains.gain,
            f"{prefix}/gain_low": gains.low,
            f"{prefix}/gain_high": gains.high,
            f"{prefix}/faster": gains.faster,
            f"{prefix}/slower": gains.slower,
            f"{prefix}/programs": float(gains.programs),
        }
    return numbers
