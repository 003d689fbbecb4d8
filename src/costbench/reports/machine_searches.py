"""Searches over fusions on a machine that exists: what they gained, by start and kind of search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from costbench.datasets.machine_searches import HARDWARE, MODEL, RANDOM, XLA, read_searches
from costbench.metrics.intervals import paired_bootstrap
from costbench.metrics.rows import MetricRow, RowOrigin
from costbench.reports.frame import flatten, frame_of
from costbench.reports.results import ALL, FOLDS
from costbench.rng import stream

TITLES = {XLA: "XLA's own fusions", RANDOM: "a random config"}
"""Starts of searches in words."""
_CHIP = "xla_cpu"
_WITH_MODEL = f"{MODEL} and {HARDWARE}"
_NAMED = (HARDWARE, f"analytical and {HARDWARE}")
"""Kinds of search that result rows call by their names."""


def search_gains(folder: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Returns gains by start and kind of search, and the searches themselves; no rows for an empty name.

    Returns:
        gains, a row a `start` and `arm` (kind of search):

        - `programs`: number of programs;
        - `gain`: geometric mean of how many times as fast as with XLA's own fusions programs became;
        - `low`, `high`: ends of its 95% interval over programs;
        - `faster`, `slower`: percent of programs that are so by more than the noise of their runs;
        - `own`: percent of searches that end with XLA's own fusions, as they found nothing faster;
        - `seconds`, `measured`, `predicted`: means of processor seconds of a search, of configs that were
          compiled and run, and of configs that a model scored.

    Raises:
        DataError: for a file that is something else.
    """
    rows = read_searches(Path(folder)) if folder else pd.DataFrame(columns=["start", "arm"])
    of_kinds = rows.groupby(["start", "arm"], sort=True, observed=True)
    return pd.DataFrame([_gains(str(start), str(arm), of_kind) for (start, arm), of_kind in of_kinds]), rows


def search_rows(folder: str) -> pd.DataFrame:
    """Returns the gains as result rows, metric `speedup`, by which claims are decided.

    The model of a row is `hardware`, `analytical and hardware`, or `model and hardware` for any other model;
    its variant is the start.

    Raises:
        DataError: for a file that is something else.
    """
    rows: list[MetricRow] = []
    for search in search_gains(folder)[1].to_dict("records"):
        application, program, start, arm = (
            str(search[key]) for key in ("application", "program", "start", "arm")
        )
        origin = RowOrigin("fusion", FOLDS, _CHIP, application, program, "", "", "")
        model = arm if arm in _NAMED else _WITH_MODEL
        rows += origin.rows(ALL, {(model, start, 0): {"speedup": float(search["gain"])}})
    return frame_of(rows, "machine_searches")


def _gains(start: str, arm: str, rows: pd.DataFrame) -> dict[str, object]:
    logs = np.log(rows["gain"].to_numpy(np.float64))
    rng = stream(0, "searches on a machine", start, arm)
    interval = paired_bootstrap(logs, np.zeros(len(logs)), rng)
    gain, low, high = np.exp([interval.difference, interval.low, interval.high]).tolist()
    return {
        "start": start,
        "arm": arm,
        "programs": len(rows),
        "gain": gain,
        "low": low,
        "high": high,
        "faster": 100.0 * float((rows["low"] > 1.0).mean()),
        "slower": 100.0 * float((rows["high"] < 1.0).mean()),
        "own": 100.0 * float(rows["is_own"].mean()),
        "seconds": float(rows["spent_s"].mean()),
        "measured": float(rows["measured"].mean()),
        "predicted": float(rows["predicted"].mean()),
    }


_SUMMARY = {"gain_mean": "gain", "gain_low": "low", "gain_high": "high"} | {
    name: name for name in ("faster", "slower", "programs")
}


def flat_machine_searches(folder: str) -> dict[str, float]:
    """Returns the gains by key of the summary, `fusion_search/xla_cpu/START/ARM/gain_mean` and so on."""
    gains, _ = search_gains(folder)
    numbers = flatten(gains, "fusion_search/xla_cpu/{start}/{arm}", _SUMMARY)
    return {key.replace(" ", "_"): value for key, value in numbers.items()}
