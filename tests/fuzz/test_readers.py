"""Changed files of every kind end in a `CostbenchError` or in a result; `long_run.py` tries more of them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.fuzz.readers import CORPUS, READERS, attempt, outcome

MUTATIONS = int(os.environ.get("COSTBENCH_FUZZ_MUTATIONS", "40"))
"""Of each kind of file; a few seconds for all."""


@pytest.mark.parametrize("kind", READERS)
def test_changed_files_end_in_an_error_or_a_result(kind: str, tmp_path: Path) -> None:
    outcomes = {attempt(kind, 0, number, tmp_path) for number in range(MUTATIONS)}
    assert "refused" in outcomes


@pytest.mark.parametrize(
    "path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_files_that_once_ended_otherwise(path: Path, tmp_path: Path) -> None:
    _, use = READERS[path.parent.name.replace("_", " ")]
    shutil.copy(path, tmp_path / path.name)
    assert outcome(use, tmp_path / path.name) in {"ok", "refused"}
