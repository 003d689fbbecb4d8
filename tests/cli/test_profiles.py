"""`costbench import-profile`: what it prints, and what it says of files that are no profiles."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from costbench.cli.app import app
from tests.command_line import costbench, one_error
from tests.datasets.profiles import tpu_profile


def test_tables_and_json_say_the_same(tmp_path: Path) -> None:
    tpu_profile(tmp_path / "trace")
    arguments = ["import-profile", str(tmp_path / "trace"), "--out", str(tmp_path / "data")]
    printed = CliRunner().invoke(app, arguments).stdout
    content = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert content["scores"] == [
        {
            "program": "jit_layer",
            "model": "analytical",
            "kernels": 2,
            "kernels_ge5us": 2,
            "metrics": content["scores"][0]["metrics"],
        }
    ]
    stored = json.loads((tmp_path / "data" / "profile.json").read_text())
    assert {key: value for key, value in content.items() if key != "scores"} == stored
    words = printed.split()
    for shown in ("TPU", "v3", "jit_layer", "0.048", "1.05", "analytical", "100.0%"):
        assert shown in words


def test_a_file_that_is_no_profile_is_one_line(tmp_path: Path) -> None:
    tpu_profile(tmp_path / "trace")
    (path,) = (tmp_path / "trace").rglob("*.xplane.pb")
    path.write_bytes(path.read_bytes()[:-100])
    line = one_error(costbench(["import-profile", "trace"], tmp_path))
    assert path.name in line
    assert "truncated or damaged" in line
    line = one_error(costbench(["import-profile", "elsewhere"], tmp_path))
    assert line.startswith("costbench: error: elsewhere: no profiles (expected ")
