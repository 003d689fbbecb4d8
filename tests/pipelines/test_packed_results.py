"""A report is rendered from packed results without computing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.command_line import costbench
from tests.pipelines.workplace import EXPERIMENTS, digest_folder

pytestmark = [
    pytest.mark.pipeline,
    # MLflow's own use of SQLAlchemy.
    pytest.mark.filterwarnings("ignore:The ``noload``:DeprecationWarning"),
]


def test_the_report_is_rendered_from_packed_results(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{workplace / 'mlflow.db'}")
    out = workplace / "out" / "smoke"
    (out / "reports" / "champions.md").unlink()  # of weights, which are not packed; git keeps it
    before = digest_folder(out / "reports")
    for command in (["results", "pack", "archive"], ["results", "unpack", "archive"], ["report"]):
        done = costbench([*command, "--params", "profiles/smoke/params.yaml"], workplace)
        assert done.returncode == 0, done.stderr
        if command[0] == "results":
            assert done.stdout.splitlines()[-1] == "complete"
        if "pack" in command:
            shutil.rmtree(out)
    assert digest_folder(out / "reports") == before
    assert not list(out.rglob("weights.pt"))
    # One experiment stays: the report of all has just been seen.
    others = [name for name in EXPERIMENTS if name != "main-tile"]
    for folder in (*(out / "evaluate" / name for name in others), out / "autotune", out / "schedules"):
        shutil.rmtree(folder)
    without = costbench(["report", "--params", "profiles/smoke/params.yaml"], workplace)
    assert without.returncode == 1
    assert f"{others[0]}/identity.json: not there" in without.stderr
    partial = costbench(["report", "--partial", "--params", "profiles/smoke/params.yaml"], workplace)
    assert partial.returncode == 0, partial.stderr
    page = (out / "reports" / "index.html").read_text("utf-8")
    assert f"not finished, and left out</dt><dd>{', '.join(others)}</dd>" in page
