"""A program that a user adds is tested on, and everything of the corpus stays as it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from costbench.experiments.parameter_file import load_sections
from costbench.experiments.stages import evaluate, features, generate, inputs, split, train
from costbench.metrics.rows import MetricRow, read_rows
from costbench.params import merge
from tests.pipelines.workplace import PROGRAMS, REPOSITORY, TINY

STEP = Path(__file__).parents[1] / "mixer_step.hlo.txt"
MINE = "user_mine"


def write_params(folder: Path) -> Path:
    """Parameters of one small experiment on tile sizes, with a programs folder that may be added to."""
    sections: Any = load_sections(REPOSITORY / "profiles" / "smoke" / "params.yaml")
    for section, values in TINY.items():
        sections[section] = merge(sections[section], values)
    programs = folder / "programs"
    (programs / "user").mkdir(parents=True)
    for path in (REPOSITORY / "data" / "programs").glob("*.*"):
        (programs / path.name).symlink_to(path)
    sections["run"] |= {"root": str(folder), "out": "out", "programs": "programs", "jobs": 1}
    sections["generate"] |= {"tasks": ["tile"], "chips": ["tpu_v2"], "programs": list(PROGRAMS)}
    sections["split"]["names"] = ["random"]
    sections["features"] = {"tasks": ["tile"], "chips": ["tpu_v2"]}
    sections["train"]["tile"] |= {"epochs": 1}
    sections["evaluate"]["models"] = ["analytical", "random"]
    sections["experiments"] = {"main": {"task": "tile", "baselines": True}}
    path = folder / "params.yaml"
    path.write_text(json.dumps(sections))
    return path


def run_stages(params: Path) -> None:
    for run in (inputs.run, generate.run, split.run, features.run, train.run, evaluate.run):
        run(params)


def files(folder: Path, *parts: str) -> dict[str, tuple[int, bytes]]:
    """Time and content of files of the corpus in some output folders, by path."""
    paths = [path for part in parts for path in (folder / "out" / part).rglob("*") if path.is_file()]
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in paths
        if MINE not in path.name
    }


def rows_of_corpus(folder: Path) -> list[MetricRow]:
    rows = read_rows(folder / "out" / "evaluate" / "main" / "rows.jsonl")
    return [row for row in rows if row.program != MINE]


@pytest.mark.slow
def test_a_program_that_is_added_leaves_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSTBENCH_TRACKING", "off")
    params = write_params(tmp_path)
    run_stages(params)
    kept = (
        "generate/tile",
        "features/tile",
        "train/main/tile-random-tpu_v2-main-s0",
        "evaluate/main/programs",
    )
    before, rows = files(tmp_path, *kept), rows_of_corpus(tmp_path)
    described = {
        name: (tmp_path / "out" / "split" / name).read_bytes() for name in ("card.json", "counts.json")
    }
    identity = (tmp_path / "out" / "train" / "main" / "identity.json").read_bytes()
    note = tmp_path / "out" / "inputs" / "evaluate" / "main.json"
    noted = note.read_bytes()
    shutil.copy(STEP, tmp_path / "programs" / "user" / "mine.hlo.txt")
    run_stages(params)
    assert files(tmp_path, *kept) == before
    assert rows_of_corpus(tmp_path) == rows
    assert {name: (tmp_path / "out" / "split" / name).read_bytes() for name in described} == described
    assert (tmp_path / "out" / "train" / "main" / "identity.json").read_bytes() == identity
    assert note.read_bytes() != noted
    rows_of_user = [
        row for row in read_rows(tmp_path / "out" / "evaluate" / "main" / "rows.jsonl") if row.program == MINE
    ]
    assert {row.model for row in rows_of_user} >= {"learned", "analytical"}
    assert {row.application for row in rows_of_user} == {"user:mine"}
    # Another program of the same name is tested again.
    text = STEP.read_text()
    (tmp_path / "programs" / "user" / "mine.hlo.txt").write_text(text.replace("[16,", "[8,"))
    run_stages(params)
    again = [
        row for row in read_rows(tmp_path / "out" / "evaluate" / "main" / "rows.jsonl") if row.program == MINE
    ]
    assert again != rows_of_user
    assert rows_of_corpus(tmp_path) == rows
