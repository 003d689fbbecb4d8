"""Numbers that claims need and evaluation does not write: shares of what it counts."""

from __future__ import annotations

import pandas as pd

from costbench.reports.frame import select
from costbench.reports.results import BEST

SHORT_SHARE = "short_share"
"""Share of a program's kernels that run less than 5 us."""


def derived_rows(frame: pd.DataFrame) -> pd.DataFrame:
    """Returns `short_share` of each program whose fusion kernels were counted by evaluation.

    Args:
        frame: of evaluation; `kernels` and `kernels_lt5us` of the model `best` count.
    """
    counts = select(frame, model=BEST, metric=("kernels_lt5us", "kernels"))
    keys = [column for column in frame.columns if column not in ("metric", "value", "experiment")]
    short, counted = (counts[counts["metric"] == name] for name in ("kernels_lt5us", "kernels"))
    both = short.merge(
        counted[[*keys, "value"]].drop_duplicates(keys, keep="last"), on=keys, suffixes=("", "_all")
    )
    both = both[both["value_all"] > 0.0].drop_duplicates(keys, keep="last")
    return both.assign(metric=SHORT_SHARE, value=both["value"] / both["value_all"])[list(frame.columns)]
