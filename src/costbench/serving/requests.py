"""Requests in the forms of MLflow's protocol, and the limits of what a client may ask for.

A body is a JSON object with exactly one of four keys, whose records have the fields that
`costbench.serving.service` explains:

    {"dataframe_records": [RECORD, ...]}
    {"dataframe_split": {"columns": [NAME, ...], "data": [ROW, ...]}}
    {"instances": [RECORD, ...]}
    {"inputs": [RECORD, ...]}, or {"inputs": {NAME: [VALUE, ...], ...}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from costbench.errors import DataError, ParamsError
from costbench.params import parse

Row = Mapping[str, Any]
FORMS = ("dataframe_records", "dataframe_split", "inputs", "instances")
_ONE_FORM = f"a JSON object with one of the keys {', '.join(FORMS)}"
_WHERE = "body"


@dataclass(frozen=True)
class RequestLimits:
    """What a request may cost, by default about a second of one core and 100 MB.

    Attributes:
        body_bytes: size of the body of a request, and what a compressed kernel in it may expand to.
        records: number of records, each a kernel, of a request.
        tiles: number of tile sizes of a request, of all records together.
        kernel_bytes: size of a kernel, as it is in the body.
        instructions: number of instructions of a kernel, also once its fusions are inlined.
        beyond_training: how many times further than in any training kernel a feature may lie; further out a
            prediction is refused, and from 1 on it is marked.
        off_estimate: factor between a predicted runtime and that of the analytical model; a prediction that
            is further off is refused.
        waiting: number of requests that may wait; more are answered that the server is busy.
    """

    body_bytes: int = 4 << 20
    records: int = 256
    tiles: int = 20_000
    kernel_bytes: int = 1 << 19
    instructions: int = 1_000
    beyond_training: float = 100.0
    off_estimate: float = 1_000.0
    waiting: int = 64

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise ValueError(f"{field.name} is {getattr(self, field.name)}, must be at least 1")


DEFAULT_LIMITS = RequestLimits()


def limits_from(changes: Sequence[str]) -> RequestLimits:
    """Returns the limits with changes like `tiles=1000`, from the command line.

    Raises:
        ParamsError: for an unknown name, or what is no number of at least 1.
    """
    values: dict[str, object] = {}
    for change in changes:
        name, _, number = change.partition("=")
        try:
            values[name] = float(number) if "." in number or "e" in number else int(number)
        except ValueError:
            expected = "NAME=NUMBER, such as tiles=1000"
            raise ParamsError(f"is {change[:80]!r}", where="--limit", expected=expected) from None
    return parse(RequestLimits, values, where="--limit")


def read_rows(body: bytes, limits: RequestLimits) -> list[Row]:
    """Returns the records of a body.

    Raises:
        DataError: if it is no JSON, in none of the forms, or has too many records.
    """
    try:
        content = json.loads(body)
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 at byte {error.start}", where=_WHERE, expected=_ONE_FORM) from None
    except json.JSONDecodeError as error:
        problem = f"malformed JSON at line {error.lineno} column {error.colno}: {error.msg}"
        raise DataError(problem, where=_WHERE, expected=_ONE_FORM) from None
    except (RecursionError, ValueError):  # lists in lists in lists; numbers of thousands of digits
        raise DataError("no JSON that can be read", where=_WHERE, expected=_ONE_FORM) from None
    if not isinstance(content, dict) or len(content) != 1 or not content.keys() <= set(FORMS):
        keys = ", ".join(map(str, content))[:80] if isinstance(content, dict) else type(content).__name__
        raise DataError(f"has {keys or 'no keys'}", where=_WHERE, expected=_ONE_FORM)
    ((form, value),) = content.items()
    rows = as_rows(value, form)
    if len(rows) > limits.records:
        raise DataError(f"{len(rows)} records", where=form, expected=f"at most {limits.records}")
    return rows


def as_rows(value: object, form: str) -> list[Row]:
    """Returns the records of a request.

    Args:
        value: list of records, object of columns, or (`dataframe_split`) columns and data.
        form: key of the body that has the value.

    Raises:
        DataError: naming the form, for anything else.
    """
    if form == "dataframe_split":
        return _split_rows(value)
    if form == "inputs" and isinstance(value, Mapping):
        return _column_rows(value)
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise DataError(f"is {_kind(value)}", where=form, expected="a list of records")
    for number, row in enumerate(value):
        if not isinstance(row, Mapping):
            raise DataError(f"is {_kind(row)}", where=f"{form}[{number}]", expected="an object with a kernel")
    return list(value)


def _split_rows(value: object) -> list[Row]:
    expected = "an object with lists columns and data"
    columns, data = (value.get(key) if isinstance(value, Mapping) else None for key in ("columns", "data"))
    if not isinstance(columns, list) or not isinstance(data, list):
        raise DataError(f"is {_kind(value)}", where="dataframe_split", expected=expected)
    for number, row in enumerate(data):
        if not isinstance(row, list) or len(row) != len(columns):
            where = f"dataframe_split.data[{number}]"
            raise DataError(f"is {_kind(row)}", where=where, expected=f"a list of {len(columns)} values")
    return [dict(zip(map(str, columns), row, strict=True)) for row in data]


def _column_rows(value: Mapping[str, Any]) -> list[Row]:
    lists = {
        str(name): list(column)
        for name, column in value.items()
        if isinstance(column, Sequence) and not isinstance(column, str)
    }
    if len(lists) < len(value) or len({len(column) for column in lists.values()}) != 1:
        raise DataError(
            "has columns that are no lists of equal length",
            where="inputs",
            expected="a list of records, or lists of equal length by name",
        )
    return [dict(zip(lists, row, strict=True)) for row in zip(*lists.values(), strict=True)]


def _kind(value: object) -> str:
    return {dict: "an object", list: "a list", str: "text", type(None): "null"}.get(type(value), "a number")
