from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from costbench.autotuning.budget import MeasurementBudget
from costbench.autotuning.trace import SearchTrace, Subject, read_trace, write_trace
from costbench.errors import DataError

TRACE = SearchTrace(
    subject=Subject("tile", "tpu_v2", "toy", "0" * 32, 10),
    strategy="random",
    source="device",
    evaluator="tpu_v2",
    seed=4,
    budget=MeasurementBudget(seconds=4.0, evaluations=None, spent_seconds=0.5, spent_evaluations=1),
    decisions=(3, 9, 0, 5),
    scores=(math.inf, 20.0, 10.5, 10.5),
    seconds=(0.0, 1.0, 0.5, 0.25),
)


def test_what_follows_from_the_columns() -> None:
    assert TRACE.best_so_far.tolist() == [math.inf, 20.0, 10.5, 10.5]
    assert TRACE.spent_seconds.tolist() == [0.0, 1.0, 1.5, 1.75]
    assert TRACE.budget_left == MeasurementBudget(4.0, None, 2.25, 5)
    # The first of two equal ones.
    assert (TRACE.best, TRACE.best_decision, TRACE.best_score) == (2, 0, 10.5)


@pytest.mark.parametrize("count", [0, 1])
def test_no_best_where_nothing_worked(count: int) -> None:
    part = replace(TRACE, decisions=(3,) * count, scores=(math.inf,) * count, seconds=(0.0,) * count)
    with pytest.raises(DataError, match=f"none of {count} decisions worked"):
        part.best_decision  # noqa: B018


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"scores": (1.0,)}, "differ in length"),
        ({"decisions": (3, 9, 3, 5)}, "tried twice"),
        ({"decisions": (3, 9, 10, 5)}, "not in a space of 10"),
        ({"decisions": (3, 9, -1, 5)}, "not in a space of 10"),
        ({"scores": (1.0, 2.0, math.nan, 3.0)}, "no number"),
        ({"scores": (1.0, 2.0, -math.inf, 3.0)}, "no number"),
        ({"seconds": (0.0, -1.0, 0.0, 0.0)}, "negative"),
        ({"seconds": (0.0, 2.0, 1.0, 0.6)}, "expected at most 4.0 s"),
        ({"budget": MeasurementBudget(evaluations=3)}, "3 evaluations"),
    ],
)
def test_contradictions_are_refused(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        replace(TRACE, **change)


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    write_trace(path, TRACE)
    assert read_trace(path) == TRACE
    first = path.read_bytes()
    write_trace(path, read_trace(path))
    assert path.read_bytes() == first
    assert json.loads(first)["scores"] == [None, 20.0, 10.5, 10.5]


def test_decisions_of_any_length_round_trip(tmp_path: Path) -> None:
    # 20,000 binary digits: Python reads no decimal number of that length.
    subject = replace(TRACE.subject, space_size=1 << 20_000)
    long = replace(TRACE, subject=subject, decisions=(3, (1 << 20_000) - 1, 0, 1 << 19_999))
    write_trace(tmp_path / "trace.json", long)
    assert read_trace(tmp_path / "trace.json") == long


def test_an_empty_trace_round_trips(tmp_path: Path) -> None:
    empty = replace(TRACE, decisions=(), scores=(), seconds=())
    write_trace(tmp_path / "trace.json", empty)
    assert read_trace(tmp_path / "trace.json") == empty
    assert empty.budget_left == empty.budget


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("format", 1, "format: 1 .expected 2"),
        ("source", "oracle", "source: .*one of model, device"),
        ("decisions", ["3", "9", "3", "5"], "tried twice"),
        ("decisions", ["3", "9", 0, "5"], r"decisions\[2\]"),
        ("decisions", ["3", "9", "x", "5"], "invalid literal"),
        ("seconds", [0.0, 1.0, 0.5, 99.0], "expected at most"),
        ("subject", {"task": "tile"}, "subject.chip: missing"),
        ("extra", 1, "extra: unknown key"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, key: str, value: object, problem: str) -> None:
    path = tmp_path / "trace.json"
    write_trace(path, TRACE)
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(DataError, match=f"trace.json.*{problem}"):
        read_trace(path)
