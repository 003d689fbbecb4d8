"""A report is rendered from packed results without computing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.pipelines.workplace import call, digest_folder

pytestmark = [pytest.mark.pipeline]


def test_the_report_is_rendered_from_packed_results(workplace: Path) -> None:
    out = workplace / "out" / "smoke"
    before = digest_folder(out / "reports")
    for command in (["results", "pack", "archive"], ["results", "unpack", "archive"], ["report"]):
        done = call(workplace, ["costbench", *command, "--params", "profiles/smoke/params.yaml"])
        assert done.returncode == 0, done.stderr
        if command[0] == "results":
            assert done.stdout.splitlines()[-1] == "complete"
        if "pack" in command:
            shutil.rmtree(out)
    assert digest_folder(out / "reports") == before
    assert not list(out.rglob("weights.pt"))
