"""The pages about TpuGraphs are followed on small files: every command and every block of Python runs."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from costbench.cli.app import app
from costbench.datasets.tpugraphs.folder import COLLECTIONS, TpuGraphsFolder
from costbench.datasets.tpugraphs.npz import read_labels
from tests.datasets.tpugraphs.public_folder import write_public_folder

_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEXT = """HloModule step

ENTRY main {
  x = f32[8,128]{1,0} parameter(0)
  ROOT y = f32[8,128]{1,0} tanh(x)
}
"""


def follow(page: Path) -> list[str]:
    """Runs the blocks of a page in order; returns what its commands print."""
    names: dict[str, object] = {}
    printed = []
    for kind, block in _BLOCK.findall(page.read_text()):
        if kind == "python":
            exec(compile(block, page.name, "exec"), names)
            continue
        for line in block.splitlines():
            program, *arguments = shlex.split(line.removeprefix("$ "))
            assert program == "costbench", line
            done = CliRunner().invoke(app, arguments)
            assert done.exit_code == 0, (line, done.output, done.exception)
            printed.append(done.stdout)
    return printed


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_i_have_tpugraphs(place: Path, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_public_folder(place / "tpugraphs")
    table, scores = follow(repository / "docs" / "tpugraphs.md")
    assert all(collection in table for collection in COLLECTIONS)
    assert list(json.loads(scores)) == ["opa", "kendall_tau", "top_1", "top_5", "top_10"]
    assert "validnet0_0000 6 12 3" in capsys.readouterr().out
    made = sorted(path.stem for path in (place / "out/predictions/tile-xla").iterdir())
    assert made == ["testnet0_0000", "testnet1_0001", "validnet0_0000", "validnet1_0001"]


def test_i_have_hlo_dumps(place: Path, repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "step.hlo.txt").write_text(TEXT)
    (line,) = follow(repository / "docs" / "hlo_dumps.md")
    assert line == "step.npz: 2 nodes, 1 edges\n"
    assert capsys.readouterr().out == "(2, 140) (1, 2)\n"


def test_i_want_to_submit(place: Path, repository: Path) -> None:
    folder = TpuGraphsFolder(write_public_folder(place / "tpugraphs"), place / "cache")
    for collection in folder.collections():
        target = place / "out" / "predictions" / collection.replace(":", "-")
        target.mkdir(parents=True)
        for path in (*folder.graphs(collection, "valid"), *folder.graphs(collection, "test")):
            labels = read_labels(path)
            runtime = np.arange(labels.num_configs) if labels.runtime is None else labels.runtime
            np.save(target / f"{path.stem}.npy", runtime)
    *_, scores = follow(repository / "docs" / "leaderboard.md")
    assert json.loads(scores)["score"] > 0.9
    assert (place / "submission.csv").read_text().count("\n") == 11
