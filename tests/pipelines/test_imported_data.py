"""`dvc repro` of an experiment over an imported data set, beside those over simulated programs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.metrics.rows import read_rows
from tests.datasets.tpugraphs.public_folder import write_public_folder
from tests.pipelines.workplace import TINY, call, stages_run, would_run, write_profile

pytestmark = pytest.mark.pipeline
ENTRY = {
    "task": "layout",
    "data": "tpugraphs:imported",
    "collections": ["layout:xla:random"],
    "splits": ["own"],
    "chips": ["tpu_v3"],
    "seeds": [0],
    "follows": "features",
    "settings": {"steps_per_epoch": 4, "epochs": 1, "net": {"hidden": 8}, "segments": {"nodes": 0}},
}


def test_an_entry_is_trained_and_evaluated_and_again_when_its_files_change(workplace: Path) -> None:
    write_public_folder(workplace / "imported")
    write_profile(workplace, "smoke", {**TINY, "experiments": {"public": ENTRY}})
    done = call(workplace, ["dvc", "repro", "profiles/smoke/dvc.yaml:evaluate@public"])
    assert done.returncode == 0, done.stdout + done.stderr
    # Of what the smoke run has left, nothing runs again.
    assert stages_run(done.stdout) == ["inputs", "train@public", "evaluate@public"]
    rows = read_rows(workplace / "out" / "smoke" / "evaluate" / "public" / "rows.jsonl")
    assert {(row.split, row.program) for row in rows} == {("own", f"validnet{n}_000{n}") for n in range(2)}
    # Behind all trainings, which are one folder for what follows.
    behind = ["autotune", "register", "report"]
    assert sorted(would_run(workplace)) == behind

    graph = workplace / "imported" / "npz" / "layout" / "xla" / "random" / "train" / "trainnet0_0000.npz"
    with np.load(graph) as file:
        arrays = dict(file)
    np.savez(graph, **arrays)  # not compressed, so that its size differs
    again = would_run(workplace)
    assert again[0] == "train@public"
    assert sorted(again) == sorted(["evaluate@public", "train@public", *behind])
