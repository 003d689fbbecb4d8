from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

from costbench.artifacts import read_json
from costbench.errors import DataError
from costbench.installation import install_line
from costbench.params import parse
from costbench_schedules.devices import reference_tuner
from costbench_schedules.devices.reference_tuner import (
    ReferenceSpec,
    ReferenceTrial,
    ReferenceTrials,
    main,
    meta_schedule,
)
from costbench_schedules.operators.operators import Operator, parse_operator

FOUND = ReferenceTrials(
    (
        ReferenceTrial(5, "", "a"),
        ReferenceTrial(None, "crash", "b"),
        ReferenceTrial(3, "", "c"),
        ReferenceTrial(8, "", "d"),
    )
)
MATMUL = parse_operator("matmul:m=8,n=8,k=8")


def test_a_request_is_searched_and_its_result_written(tmp_path: Path) -> None:
    def search(operator: Operator, spec: ReferenceSpec, folder: Path) -> ReferenceTrials:
        assert (operator.text, spec, folder) == (MATMUL.text, ReferenceSpec(3, 7, "generic"), tmp_path)
        return FOUND

    request = {"operator": MATMUL.text, "folder": str(tmp_path), "trials": 3, "seed": 7, "target": "generic"}
    main(json.dumps(request), search)
    result = tmp_path / "found.json"
    assert parse(ReferenceTrials, read_json(result), where=result) == FOUND


def test_the_fastest_trials() -> None:
    assert [trial.program for trial in FOUND.fastest(2)] == ["c", "a"]
    assert len(FOUND.fastest(9)) == 3


@pytest.mark.skipif(importlib.util.find_spec("tvm") is not None, reason="TVM is installed")
def test_without_the_compiler_the_extra_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="TVM is not installed") as refused:
        meta_schedule(MATMUL, ReferenceSpec(1), tmp_path)
    assert refused.value.expected == install_line("cpu")


def test_a_search_that_ends_early_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_tuner, "require_tvm", lambda: None)
    monkeypatch.setattr(reference_tuner.sys, "executable", str(tmp_path / "python"))
    (tmp_path / "python").write_text("#!/bin/sh\necho first\necho no memory left\nexit 3\n")
    (tmp_path / "python").chmod(0o755)
    with pytest.raises(DataError, match="MetaSchedule ended: no memory left"):
        meta_schedule(MATMUL, ReferenceSpec(1), tmp_path)
