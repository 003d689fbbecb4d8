"""Frames of results: from packed rows, one below the other, and rows by the values of columns."""

from __future__ import annotations

import math
from dataclasses import astuple, replace
from pathlib import Path

import pandas as pd
import pytest

from costbench.errors import DataError
from costbench.experiments.archive import ROWS, table_of
from costbench.metrics.rows import MetricRow
from costbench.reports.frame import COLUMNS, frame_of, frame_of_packed, select, stack
from tests.reports.conftest import make_row

FILE = Path("rows.parquet")


def packed(rows: list[MetricRow]) -> pd.DataFrame:
    return frame_of_packed(table_of(ROWS, [("evaluate", "main-tile", *astuple(row)) for row in rows]), FILE)


@pytest.fixture
def rows() -> list[MetricRow]:
    return [make_row(model=model, program=program) for model in ("learned", "hybrid") for program in "ab"]


def test_packed_rows_are_the_rows(rows: list[MetricRow]) -> None:
    assert list(packed(rows).columns) == list(COLUMNS)
    pd.testing.assert_frame_equal(packed(rows), frame_of(rows, "main-tile"))


def test_packed_rows_that_are_none_are_named(rows: list[MetricRow]) -> None:
    with pytest.raises(DataError, match=r"rows\.parquet.*hybrid.*not finite"):
        packed([*rows[:2], replace(rows[2], value=math.nan)])
    with pytest.raises(DataError, match=r"rows\.parquet.*learned.*twice"):
        packed([*rows, replace(rows[0], value=3.0, application="another")])


def test_stacked_frames_keep_their_rows_and_have_text_in_one_piece(rows: list[MetricRow]) -> None:
    parts = [frame_of(rows[:1]), frame_of(rows[1:])]
    stacked = stack(parts)
    pd.testing.assert_frame_equal(stacked, frame_of(rows))
    assert stacked["program"].array.__arrow_array__().num_chunks == 1
    assert pd.concat(parts)["program"].array.__arrow_array__().num_chunks == 2
    nothing = stack([parts[0].iloc[:0]])
    assert nothing.empty
    assert nothing.dtypes.equals(parts[0].dtypes)


def test_rows_are_selected_by_all_columns(rows: list[MetricRow]) -> None:
    frame = frame_of(rows)
    assert list(select(frame, model="hybrid").index) == [2, 3]
    assert list(select(frame, model=("hybrid", "learned"), program="b").index) == [1, 3]
    assert select(frame, model="hybrid", program="c").empty
    assert len(select(frame)) == 4
