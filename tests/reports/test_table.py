"""Texts of cells and winners of contests."""

from __future__ import annotations

import pytest

from costbench.reports.table import Column, Table, Value


def _table(*rows: tuple[Value, ...]) -> Table:
    columns = (
        Column("name", "Name"),
        Column("a", "A", decimals=1, better="lower", contest="x"),
        Column("b", "B", decimals=1, better="lower", contest="x"),
    )
    return Table("t", "T", columns, rows)


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), ("word", "word"), (1.25, "1.2"), (3, "3.0"), (-0.04, "0.0")]
)
def test_texts(value: Value, text: str) -> None:
    assert _table(("r", value, 1.0)).text(0, 1) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0"),
        (7.0, "7"),
        (7.25, "7.2"),
        (12_345.6, "12,346"),
        (999_999, "999,999"),
        (1_000_000, "1.0M"),
        (157_500_000, "157.5M"),
    ],
)
def test_counts(value: Value, text: str) -> None:
    assert Table("t", "T", (Column("n", "N", decimals=1, count=True),), ((value,),)).text(0, 0) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "<0.0001"), (1e-6, "<0.0001"), (0.0001, "0.0001"), (0.04321, "0.0432")]
)
def test_p_values_are_not_zero(value: Value, text: str) -> None:
    assert Table("t", "T", (Column("p", "p", decimals=4, p_value=True),), ((value,),)).text(0, 0) == text


@pytest.mark.parametrize(
    ("a", "b", "winners"),
    [(1.0, 2.0, [1]), (2.0, 1.0, [2]), (1.01, 1.04, [1, 2]), (1.0, None, []), (None, None, [])],
)
def test_winners_are_those_of_the_printed_numbers(a: Value, b: Value, winners: list[int]) -> None:
    table = _table(("r", a, b))
    assert [column for column in range(3) if table.is_best(0, column)] == winners
