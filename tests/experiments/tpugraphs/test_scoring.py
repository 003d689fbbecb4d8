"""Scores of files and tables, with values by hand, and one error for what does not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from costbench.datasets.tpugraphs.folder import TpuGraphsFolder
from costbench.datasets.tpugraphs.npz import read_labels
from costbench.errors import DataError
from costbench.experiments.tpugraphs.scoring import (
    read_predictions,
    read_submission,
    score_file,
    score_submission,
    submission_of,
    top_configs,
    write_submission,
)
from tests.datasets.tpugraphs.public_arrays import layout_arrays, save, tile_arrays
from tests.datasets.tpugraphs.public_folder import write_public_folder


def predictions(path: Path, values: object) -> Path:
    np.save(path, np.asarray(values))
    return path


def test_a_tile_file(tmp_path: Path) -> None:
    arrays = tile_arrays(
        config_feat=np.ones((3, 24)),
        config_runtime=np.array([100, 90, 300]),
        config_runtime_normalizers=np.array([100, 50, 100]),
    )
    path = save(tmp_path / "t.npz", arrays)
    # Over normalizers the labels are 1, 1.8 and 3, and not 100, 90 and 300.
    found = score_file(path, predictions(tmp_path / "p.npy", [2.0, 1.0, 3.0]))
    assert found == {
        "opa": 2 / 3,
        "kendall_tau": pytest.approx(1 / 3),
        "top_1": pytest.approx(0.8),
        "top_5": 0.0,
        "top_10": 0.0,
    }


def test_a_layout_file(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    runtime, scores = draw.integers(1, 500, 300), draw.normal(size=300)
    arrays = layout_arrays(node_config_feat=np.zeros((300, 2, 18), np.int8), config_runtime=runtime)
    path = save(tmp_path / "l.npz", arrays)
    found = score_file(path, predictions(tmp_path / "p.npy", scores))
    assert list(found) == ["opa", "kendall_tau", "top_1", "top_10", "top_100"]
    assert found["kendall_tau"] == pytest.approx(stats.kendalltau(scores, runtime).statistic)
    for k in (1, 10, 100):
        best = runtime[np.argsort(scores, kind="stable")[:k]].min()
        assert found[f"top_{k}"] == pytest.approx(best / runtime.min() - 1)


def test_what_is_not_defined_is_none(tmp_path: Path) -> None:
    withheld = save(tmp_path / "w.npz", layout_arrays(config_runtime=None))
    scores = predictions(tmp_path / "p.npy", np.arange(4))
    assert set(score_file(withheld, scores).values()) == {None}
    constant = save(tmp_path / "c.npz", layout_arrays(config_runtime=np.full(4, 7)))
    found = score_file(constant, scores)
    assert (found["opa"], found["kendall_tau"], found["top_1"]) == (None, None, 0.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(3), r"p\.npy: shape \(3,\) \(expected \(4,\), one per configuration\)"),
        (np.zeros((4, 1)), r"shape \(4, 1\)"),
        (np.array([1, np.nan, 2, 3]), "value nan at 1"),
        (np.array(["a"] * 4), "type <U1"),
        (np.array([{}] * 4), "cannot be read: Object arrays"),
    ],
)
def test_predictions_that_do_not_fit(values: np.ndarray, message: str, tmp_path: Path) -> None:
    np.save(tmp_path / "p.npy", values, allow_pickle=True)
    with pytest.raises(DataError, match=message):
        read_predictions(tmp_path / "p.npy", 4)


def test_predictions_that_are_no_array(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.npy: no such file"):
        read_predictions(tmp_path / "absent.npy", 4)
    for content in (b"", b"text", b"\x93NUMPY\x01\x00"):
        (tmp_path / "p.npy").write_bytes(content)
        with pytest.raises(DataError, match=r"p\.npy: cannot be read"):
            read_predictions(tmp_path / "p.npy", 4)


def test_lines_of_the_table() -> None:
    scores = np.array([3.0, 1.0, 1.0, 2.0])
    assert top_configs(scores, "layout:nlp:random").tolist() == [1, 2, 3, 0]
    assert top_configs(scores, "tile:xla").tolist() == [1, 2, 3, 0, 0, 0, 0, 0, 0, 0]
    assert top_configs(np.arange(20.0), "tile:xla").tolist() == list(range(10))


@pytest.fixture
def folder(tmp_path: Path) -> TpuGraphsFolder:
    return TpuGraphsFolder(write_public_folder(tmp_path / "data"), tmp_path / "cache")


def write_predictions(folder: TpuGraphsFolder, out: Path, split: str, *, sign: float) -> Path:
    for collection in folder.collections():
        for path in folder.graphs(collection, split):
            labels = read_labels(path)
            runtime = np.arange(labels.num_configs) if labels.runtime is None else labels.runtime
            scores = (
                runtime / labels.normalizers
                if split != "test" and labels.normalizers is not None
                else runtime
            )
            place = out / collection.replace(":", "-")
            place.mkdir(parents=True, exist_ok=True)
            np.save(place / f"{path.stem}.npy", sign * scores)
    return out


def test_a_table_of_the_test_split(folder: TpuGraphsFolder, tmp_path: Path) -> None:
    lines = submission_of(folder, write_predictions(folder, tmp_path / "p", "test", sign=1.0), "test")
    write_submission(tmp_path / "table.csv", lines)
    written = (tmp_path / "table.csv").read_text().splitlines()
    assert written[0] == "ID,TopConfigs"
    assert len(written) == 11
    assert written[1] == "tile:xla:testnet0_0000,0;1;2;3;4;5;6;7;8;9"
    assert written[3].startswith("layout:xla:default:testnet0_0000,0;1;2;")
    assert written[3].count(";") == 11
    assert read_submission(tmp_path / "table.csv") == {name: list(ranking) for name, ranking in lines}


@pytest.mark.parametrize(("sign", "layouts"), [(1.0, 1.0), (-1.0, -1.0)])
def test_the_score_of_a_table(folder: TpuGraphsFolder, tmp_path: Path, sign: float, layouts: float) -> None:
    made = write_predictions(folder, tmp_path / "p", "valid", sign=sign)
    write_submission(tmp_path / "table.csv", submission_of(folder, made, "valid"))
    found = score_submission(tmp_path / "table.csv", folder, "valid")
    scores = found["collections"]
    assert isinstance(scores, dict)
    assert scores["layout:nlp:default"] == pytest.approx(layouts, abs=0.05)  # equal runtimes count as ties
    assert (scores["tile:xla"] == 1.0) is (sign > 0)
    assert found["score"] == pytest.approx(np.mean([value for value in scores.values() if value is not None]))


def test_tables_that_do_not_fit(folder: TpuGraphsFolder, tmp_path: Path) -> None:
    made = write_predictions(folder, tmp_path / "p", "valid", sign=1.0)
    lines = submission_of(folder, made, "valid")
    table = tmp_path / "table.csv"
    with pytest.raises(DataError, match="runtimes are withheld"):
        write_submission(table, lines)
        score_submission(table, folder, "test")
    write_submission(table, lines[:-1])
    with pytest.raises(DataError, match=r"layout:nlp:random:validnet1_0001: missing"):
        score_submission(table, folder, "valid")
    write_submission(table, [*lines[:-1], (lines[-1][0], [0, 0])])
    with pytest.raises(DataError, match=r"validnet1_0001: 2 entries \(expected each of 12 once\)"):
        score_submission(table, folder, "valid")
    with pytest.raises(DataError, match="occurs twice"):
        write_submission(table, [lines[0], lines[0]])
    with pytest.raises(DataError, match=r"testnet0_0000\.npy: no such file"):
        submission_of(folder, tmp_path / "p", "test")
    for content, message in (
        ("", "header ''"),
        ("ID,TopConfigs\na\n", "line 2: 'a'"),
        ("ID,TopConfigs\na,1;x\n", "line 2"),
        ("ID,TopConfigs\na,1;" + "9" * 5_001 + "\n", "line 2"),
        ("ID,TopConfigs\na," + "9" * 19 + "\n", "line 2"),
        ("ID,TopConfigs\na,1\na,1\n", "line 3: a occurs twice"),
    ):
        table.write_text(content)
        with pytest.raises(DataError, match=message):
            read_submission(table)
