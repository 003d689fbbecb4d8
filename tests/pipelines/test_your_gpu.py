"""docs/your_gpu.md from a user's position: every command and the code that it shows, on a made-up cache."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from costbench.artifacts import write_json
from costbench.rng import stream
from tests.command_line import costbench
from tests.pipelines.workplace import REPOSITORY

PAGE = REPOSITORY / "docs" / "your_gpu.md"
VALUES: dict[str, list[int]] = {
    "block_size_x": [32, 64, 128, 256],
    "tile": [1, 2, 3, 4, 5],
    "unroll": [0, 1, 2],
}


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def cache_file() -> dict[str, Any]:
    """A cache as Kernel Tuner writes it: 57 configurations, eight runs each, four failures."""
    draws = stream(0, "cache")
    cache = {}
    for block, tile, unroll in itertools.product(*VALUES.values()):
        if block * tile > 1024:
            continue
        entry: dict[str, Any] = {"block_size_x": block, "tile": tile, "unroll": unroll}
        mean = 1.0 + abs(block - 128) / 64 + abs(tile - 3) + 0.3 * unroll
        entry["times"] = (mean * draws.uniform(1.0, 1.02, size=8)).tolist()
        entry["time"] = sum(entry["times"]) / 8
        if (tile, unroll) == (1, 2):
            entry = entry | {"time": "RuntimeFailedConfig"}
            del entry["times"]
        cache[f"{block},{tile},{unroll}"] = entry | {"compile_time": 1.0, "benchmark_time": 2.0}
    return {
        "device_name": "NVIDIA RTX A4000",
        "kernel_name": "made_up",
        "tune_params_keys": list(VALUES),
        "tune_params": VALUES,
        "objective": "time",
        "cache": cache,
    }


def run(folder: Path, line: str, *more: str) -> str:
    """Runs `costbench` in a folder; returns what it prints."""
    done = costbench([*shlex.split(line), *more], folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_five_commands_lead_from_a_cache_to_a_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_json(tmp_path / "cache.json", cache_file())
    (commands,) = blocks("console")
    lines = [line.removeprefix("$ costbench ") for line in commands.splitlines()]
    assert len(lines) == 5
    printed = [run(tmp_path, line) for line in lines]
    card = json.loads((tmp_path / "tables" / "card.json").read_text())["tables"]["mykernel-mygpu.parquet"]
    assert (card["configs"], card["failed"]) == (57, {"RuntimeFailedConfig": 4})
    assert card["twice"]["tau"] > 0.9
    assert all(name in printed[2] for name in ("random", "genetic", "annealing-1"))
    content = json.loads(printed[3])
    areas = {row["strategy"]: row["value"] for row in content["summary"] if row["metric"] == "auc"}
    assert areas["gbt-regression"] > areas["random"]
    assert len([row for row in content["rows"] if row["metric"] == "auc"]) == 20
    assert (tmp_path / "searches.svg").is_file()
    assert (tmp_path / "searches.png").is_file()

    own, replayed = blocks("python")
    (tmp_path / "my_search.py").write_text(own)
    (line,) = re.findall(r"^    costbench (.* my_search:nearest)$", PAGE.read_text("utf-8"), re.MULTILINE)
    monkeypatch.syspath_prepend(tmp_path)
    rows = json.loads(run(tmp_path, line, "--repeats", "20", "--json"))["summary"]
    trials = {row["strategy"]: row["value"] for row in rows if row["metric"] == "trials_to_95"}
    assert trials["my_search:nearest"] < trials["random"]
    monkeypatch.chdir(tmp_path)
    exec(compile(replayed, "replayed", "exec"), {})
    assert "block_size_x" in capsys.readouterr().out
