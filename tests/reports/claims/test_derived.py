"""Rows made of counts."""

from __future__ import annotations

import pytest

from costbench.reports.claims.derived import SHORT_SHARE, derived_rows
from costbench.reports.frame import frame_of
from tests.reports.conftest import make_row


def test_the_share_of_short_kernels_by_hand() -> None:
    counts = {"kernels": 40.0, "kernels_lt5us": 10.0, "kernels_ge5us": 30.0}
    rows = [make_row(model="best", task="fusion", metric=name, value=value) for name, value in counts.items()]
    (found,) = derived_rows(frame_of(rows)).itertuples()
    assert (found.metric, found.model, found.value) == (SHORT_SHARE, "best", pytest.approx(0.25))


def test_programs_without_both_counts_have_none() -> None:
    rows = [make_row(model="best", metric="kernels_lt5us", value=1.0)]
    assert derived_rows(frame_of(rows)).empty
    assert derived_rows(frame_of([*rows, make_row(model="best", metric="kernels", value=0.0)])).empty
