"""Commands for TpuGraphs: what they print, and what they say of files that cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from costbench.cli.app import app
from costbench.errors import DataError
from tests.command_line import costbench, one_error
from tests.datasets.tpugraphs.public_arrays import layout_arrays, save, tile_arrays
from tests.datasets.tpugraphs.public_folder import write_public_folder


def test_import_counts_what_a_folder_holds(tmp_path: Path) -> None:
    root = write_public_folder(tmp_path / "data", graphs=1)
    out = ["--out", str(tmp_path / "out")]
    found = json.loads(CliRunner().invoke(app, ["import-tpugraphs", str(root), *out, "--json"]).stdout)
    assert len(found) == 15
    assert found[0] == {
        "collection": "tile:xla",
        "split": "train",
        "graphs": 1,
        "programs": 1,
        "nodes": 6,
        "edges": 5,
        "configs": 12,
        "labelled": 1,
    }
    table = CliRunner().invoke(app, ["import-tpugraphs", str(root), *out]).stdout
    assert "layout:nlp:random" in table


def test_scores_as_json_and_for_people(tmp_path: Path) -> None:
    file = str(save(tmp_path / "t.npz", tile_arrays()))
    np.save(tmp_path / "p.npy", np.array([2.0, 1.0]))
    arguments = ["score", file, str(tmp_path / "p.npy")]
    found = CliRunner().invoke(app, [*arguments, "--json"]).stdout
    assert json.loads(found) == {"opa": 1.0, "kendall_tau": 1.0, "top_1": 0.0, "top_5": 0.0, "top_10": 0.0}
    file = str(save(tmp_path / "l.npz", layout_arrays(config_runtime=None)))
    np.save(tmp_path / "p.npy", np.zeros(4))
    arguments = ["score", file, str(tmp_path / "p.npy")]
    assert json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout) == dict.fromkeys(
        ("opa", "kendall_tau", "top_1", "top_10", "top_100")
    )
    assert "opa  not defined" in CliRunner().invoke(app, arguments).stdout


def test_a_malformed_file_is_one_line(tmp_path: Path) -> None:
    save(tmp_path / "bad.npz", tile_arrays(config_runtime=np.array([5, -1])))
    np.save(tmp_path / "p.npy", np.zeros(2))
    line = one_error(costbench(["score", "bad.npz", "p.npy"], tmp_path))
    assert line == (
        "costbench: error: bad.npz: config_runtime: time -1 ns at 1 (expected 1 ns or more, or 0 everywhere)"
    )


def test_folders_and_tables_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "data" / "npz" / "tile" / "xla" / "trian").mkdir(parents=True)
    for arguments, message in (
        (["import-tpugraphs", str(tmp_path)], "holds no collection"),
        (
            ["import-tpugraphs", str(tmp_path / "data"), "--out", str(tmp_path / "out")],
            "holds no graph .*train, valid, test of tile:xla",
        ),
        (["submission", str(tmp_path), "t.csv"], "holds no collection"),
    ):
        with pytest.raises(DataError, match=message):
            CliRunner().invoke(app, arguments, catch_exceptions=False)


def test_featurize_writes_beside_the_file(tmp_path: Path, repository: Path) -> None:
    source = repository / "data" / "programs" / "mlp_mnist_b128_train_f32.hlo.pb.zst"
    file = tmp_path / "step.v1.hlo.pb.zst"
    file.write_bytes(source.read_bytes())
    done = CliRunner().invoke(app, ["featurize", str(file)])
    assert done.exit_code == 0
    with np.load(tmp_path / "step.v1.npz", allow_pickle=False) as graph:
        assert f"{len(graph['node_opcode']):,} nodes" in done.stdout
