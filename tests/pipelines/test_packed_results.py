"""A report is rendered from packed results without computing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from costbench.cli.app import app
from tests.pipelines.workplace import digest_folder

pytestmark = [pytest.mark.pipeline]


def test_the_report_is_rendered_from_packed_results(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = workplace / "out" / "smoke"
    before = digest_folder(out / "reports")
    monkeypatch.chdir(workplace)
    monkeypatch.setenv("COSTBENCH_TRACKING", "off")
    for command in (["results", "pack", "archive"], ["results", "unpack", "archive"], ["report"]):
        done = CliRunner().invoke(app, [*command, "--params", "profiles/smoke/params.yaml"])
        assert done.exit_code == 0, done.output
        if command[0] == "results":
            assert done.stdout.splitlines()[-1] == "complete"
        if "pack" in command:
            shutil.rmtree(out)
    assert digest_folder(out / "reports") == before
    assert not list(out.rglob("weights.pt"))
