"""Training and evaluation on data that is given on the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.synthetic_kernels import kernel_samples
from benchmarks.synthetic_layouts import random_graph, write_random_graph
from costbench.cli.app import app
from costbench.datasets.layout_graphs import open_layout_graph
from costbench.errors import DataError, ParamsError
from costbench.experiments.tpugraphs import training
from costbench.experiments.tpugraphs.training import ImportedData, evaluate_on, train_on
from costbench.metrics.ranking import kendall_tau
from costbench.models.layout.model import load_layout_model
from costbench.training.layout.source import hold_out_configs
from costbench.training.spec import HoldOutSpec
from tests.datasets.tpugraphs.public_arrays import layout_arrays, save, tile_arrays

QUICK = """
net: {hidden: 16, opcode_embedding: 8, encoder_layers: 2}
sampling: {configs: 8}
steps_per_epoch: 40
epochs: 2
"""


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "settings.yaml"
    path.write_text(QUICK, "utf-8")
    return path


@pytest.fixture(scope="module")
def layout_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as TpuGraphs is unpacked: three graphs of one collection."""
    from costbench.datasets.tpugraphs.npz import write_layout_npz

    root = tmp_path_factory.mktemp("tpugraphs")
    for seed, split in enumerate(("train", "train", "valid")):
        folder = root / "npz" / "layout" / "xla" / "random" / split
        folder.mkdir(parents=True, exist_ok=True)
        write_layout_npz(folder / f"graph_{seed}.npz", random_graph(seed, 60, 7, 60, 3))
    return root


def test_a_single_graph_is_scored_on_configs_that_were_held_out(tmp_path: Path, settings: Path) -> None:
    path = write_random_graph(tmp_path / "graph.arrow", 60, 8, 400, 4)
    data = ImportedData(str(path), None, tmp_path / "cache")
    monitor, fit = train_on(data, settings, tmp_path / "model", seed=5, threads=1)
    assert (monitor, fit.steps) == ("opa", 80)
    (scored,) = evaluate_on(data, "valid", tmp_path / "model", threads=1)
    graph = open_layout_graph(path)
    test = hold_out_configs(graph, HoldOutSpec(), 5).unseen
    scores = load_layout_model(tmp_path / "model").predict(graph, test)
    assert (scored.which, scored.num_configs) == ("held-out", len(test))
    assert scored.metrics["kendall_tau"] == pytest.approx(kendall_tau(scores, graph.runtime_ns[test]))
    assert set(scored.metrics) == {"opa", "kendall_tau", "top_1", "top_10", "top_100"}


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ("seed: 7", "seed: is 7, but --seed 5 counts (expected --seed 7)"),
        ("execution: {threads: 2}", "execution.threads: is 2, but --threads 1 counts (expected --threads 2)"),
    ],
)
def test_settings_that_an_option_replaces_are_refused(
    tmp_path: Path, settings: Path, setting: str, problem: str
) -> None:
    path = write_random_graph(tmp_path / "graph.arrow", 60, 8, 100, 4)
    settings.write_text(f"{QUICK}{setting}\n", "utf-8")
    with pytest.raises(ParamsError) as caught:
        train_on(ImportedData(str(path), None, tmp_path), settings, tmp_path / "model", seed=5)
    assert caught.value.message() == f"{settings}: {problem}"


def test_another_graph_is_scored_on_all_configs(tmp_path: Path, settings: Path) -> None:
    path = write_random_graph(tmp_path / "graph.arrow", 60, 8, 100, 4)
    train_on(ImportedData(str(path), None, tmp_path), settings, tmp_path / "model", seed=0, threads=1)
    other = write_random_graph(tmp_path / "other.arrow", 50, 6, 30, 4, seed=1)
    (scored,) = evaluate_on(ImportedData(str(other), None, tmp_path), "valid", tmp_path / "model", threads=1)
    assert (scored.which, scored.num_configs) == ("all", 30)


def test_a_graph_is_known_by_its_runtimes_and_not_by_its_name(tmp_path: Path, settings: Path) -> None:
    path = write_random_graph(tmp_path / "graph.arrow", 60, 8, 100, 4)
    train_on(ImportedData(str(path), None, tmp_path), settings, tmp_path / "model", seed=0, threads=1)
    (tmp_path / "elsewhere").mkdir()
    other = write_random_graph(tmp_path / "elsewhere" / "graph.arrow", 50, 6, 30, 4, seed=1)
    copy = Path(shutil.copy(path, tmp_path / "copy.arrow"))
    for graph, which in ((other, "all"), (copy, "held-out")):
        (scored,) = evaluate_on(ImportedData(str(graph), None, tmp_path), "valid", tmp_path / "model")
        assert scored.which == which


def test_a_model_of_another_division_does_not_stay_beside_a_stopped_training(
    tmp_path: Path, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = ImportedData(str(write_random_graph(tmp_path / "graph.arrow", 60, 8, 100, 4)), None, tmp_path)
    train_on(data, settings, tmp_path / "model", seed=0)

    def stopped(*_args: object, **_kwargs: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(training, "fit_layout", stopped)
        train_on(data, settings, tmp_path / "model", seed=1)
    with pytest.raises(DataError):
        evaluate_on(data, "valid", tmp_path / "model")


def test_a_folder_is_used_with_its_splits(
    tmp_path: Path, settings: Path, layout_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["--data", f"tpugraphs:{layout_folder}"]
    run = CliRunner().invoke(
        app, ["train", *given, "--settings", str(settings), "--out", "model", "--threads", "1"]
    )
    assert run.exit_code == 0, run.output
    assert "validation opa" in run.output
    run = CliRunner().invoke(app, ["evaluate", *given, "--model", "model", "--threads", "1", "--json"])
    assert run.exit_code == 0, run.output
    (scored,) = json.loads(run.output)
    assert (scored["graph"], scored["configs"], scored["num_configs"]) == ("graph_2", "all", 60)
    assert scored["opa"] == pytest.approx(json.loads(run.output)[0]["opa"])
    table = CliRunner().invoke(app, ["evaluate", *given, "--model", "model", "--threads", "1"])
    assert table.output.startswith("graph_2 (60 all configs): opa 0.")


def test_an_npz_of_a_single_graph_is_converted_once(tmp_path: Path, layout_folder: Path) -> None:
    file = layout_folder / "npz" / "layout" / "xla" / "random" / "train" / "graph_1.npz"
    data = ImportedData(str(file), None, tmp_path)
    (path,) = data.graphs("train")
    made = path.stat().st_mtime_ns
    assert data.graphs("train") == [path]
    assert path.stat().st_mtime_ns == made
    wanted = random_graph(1, 60, 7, 60, 3)
    found = open_layout_graph(path)
    rows = np.arange(60)
    assert np.array_equal(found.config_features(rows), wanted.config_features(rows))


def test_tile_kernels_of_a_folder_are_trained_and_scored(tmp_path: Path) -> None:
    from costbench.datasets.tpugraphs.npz import TileGraph, write_tile_npz

    names = [
        ("train", "net_a"),
        ("train", "net_b"),
        ("valid", "other_a"),
        ("test", "unseen_b"),
        ("valid", "other_c"),
    ]
    for place, (split, name) in enumerate(names):
        is_withheld = place > 2
        sample = kernel_samples(place, 12, 40)
        folder = tmp_path / "npz" / "tile" / "xla" / split
        folder.mkdir(parents=True, exist_ok=True)
        graph = TileGraph(
            node_feat=sample.graph.node_features,
            node_opcode=sample.graph.opcodes,
            edge_index=sample.graph.edges.T[:, ::-1],
            config_feat=sample.config_features[:, :24],
            config_runtime=np.zeros(40, np.int64) if is_withheld else sample.runtime_ns.astype(np.int64),
            config_runtime_normalizers=np.full(40, 0 if is_withheld else 7, np.int64),
        )
        write_tile_npz(folder / f"{name}.npz", graph)
    settings = tmp_path / "tiles.yaml"
    settings.write_text(
        "{net: {hidden: 8, opcode_embedding: 8}, batch: {kernels: 2, configs: 20, per_epoch: 20}, epochs: 2}"
    )
    data = ImportedData(f"tpugraphs:{tmp_path}", None, tmp_path / "cache")
    monitor, fit = train_on(data, settings, tmp_path / "model", seed=0, threads=1)
    assert (monitor, fit.steps) == ("tau", 40)
    (scored,) = evaluate_on(data, "valid", tmp_path / "model", threads=1)
    assert (scored.graph, scored.num_configs, scored.which) == ("other", 40, "all")
    assert set(scored.metrics) == {"opa", "kendall_tau", "top_1", "top_5", "top_10"}
    tau = scored.metrics["kendall_tau"]
    assert tau == pytest.approx(fit.best_metric, abs=1e-6)
    with pytest.raises(DataError, match="unseen has no runtimes"):
        evaluate_on(data, "test", tmp_path / "model", threads=1)
    kernels = tmp_path / "npz/tile/xla"
    for one, other, name in (
        ("train", "valid", "net_a"), ("train", "test", "net_a"), ("valid", "test", "other_a"),
    ):  # fmt: skip
        program = name.removesuffix("_a")
        shared = kernels / other / f"{program}_d.npz"
        shutil.copy(kernels / one / f"{name}.npz", shared)
        with pytest.raises(DataError, match=f"program {program} in splits {one} and {other}"):
            train_on(data, settings, tmp_path / "other model", seed=0, threads=1)
        shared.unlink()


def test_what_cannot_be_used_is_named(tmp_path: Path, settings: Path, layout_folder: Path) -> None:
    with pytest.raises(DataError, match=r"none\.npz: no such file"):
        ImportedData(str(tmp_path / "none.npz"), None, tmp_path).graphs("train")
    with pytest.raises(DataError, match="no graph of split test"):
        ImportedData(f"tpugraphs:{layout_folder}", None, tmp_path).graphs("test")
    random = layout_folder / "npz" / "layout" / "xla" / "random"
    shutil.copytree(random / "train", tmp_path / "npz" / "layout" / "xla" / "random" / "train")
    shutil.copytree(random / "train", tmp_path / "npz" / "layout" / "xla" / "random" / "test")
    with pytest.raises(DataError, match="program graph_0 in splits train and test"):
        train_on(
            ImportedData(f"tpugraphs:{tmp_path}", None, tmp_path / "cache"),
            settings,
            tmp_path / "model",
            0,
            1,
        )
    (layout_folder / "npz" / "layout" / "nlp" / "random").mkdir(parents=True, exist_ok=True)
    with pytest.raises(DataError, match="--collection, one of layout:xla:random, layout:nlp:random"):
        ImportedData(f"tpugraphs:{layout_folder}", None, tmp_path).graphs("train")
    settings.write_text("net: {hiden: 8}\n", "utf-8")
    path = write_random_graph(tmp_path / "graph.arrow", 30, 4, 20, 3)
    with pytest.raises(ParamsError, match="hiden"):
        train_on(ImportedData(str(path), None, tmp_path), settings, tmp_path / "model", 0, 1)


def test_graphs_that_teach_nothing_are_named_as_the_user_named_them(tmp_path: Path, settings: Path) -> None:
    unlabelled = save(tmp_path / "test.npz", layout_arrays(config_runtime=None))
    model = tmp_path / "model"
    with pytest.raises(DataError, match="graph test has no runtimes") as caught:
        train_on(ImportedData(str(unlabelled), None, tmp_path / "cache"), settings, model, 0, 1)
    assert (caught.value.where, caught.value.field) == (str(unlabelled), "config_runtime")
    arrays = layout_arrays()
    configs = len(arrays["config_runtime"])
    rigid = {"node_config_ids": np.zeros(0, int), "node_config_feat": np.zeros((configs, 0, 18), np.float32)}
    save(tmp_path / "rigid.npz", {**arrays, **rigid})
    with pytest.raises(DataError, match=r"rigid\.npz: node_config_ids: no graph has a config"):
        train_on(ImportedData(str(tmp_path / "rigid.npz"), None, tmp_path), settings, model, 0, 1)
    assert not model.exists()


def test_options_of_a_folder_have_no_effect_on_a_file(tmp_path: Path) -> None:
    path = str(write_random_graph(tmp_path / "graph.arrow", 30, 4, 20, 3))
    with pytest.raises(DataError, match="--collection: has no effect with a file"):
        ImportedData(path, "layout:xla:random", tmp_path)
    arguments = ["evaluate", "--data", path, "--split", "test", "--model", str(tmp_path / "model")]
    with pytest.raises(DataError, match="--split: has no effect with a file"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    with pytest.raises(DataError, match=r"layout_model\.json: no such file .expected .*layout model"):
        CliRunner().invoke(app, [*arguments[:3], *arguments[5:]], catch_exceptions=False)


def test_a_kernel_with_tile_sizes_is_no_layout_graph(tmp_path: Path) -> None:
    path = save(tmp_path / "kernel.npz", tile_arrays())
    with pytest.raises(DataError, match=r"is a kernel with tile sizes .*tpugraphs:DIR") as caught:
        ImportedData(str(path), None, tmp_path / "cache").graphs("train")
    assert caught.value.where == str(path)


def test_a_folder_without_its_format_is_told_how_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"is a folder .expected tpugraphs:{tmp_path}"):
        ImportedData(str(tmp_path), None, tmp_path / "cache")


@pytest.mark.parametrize("name", ["", "tpugraphs:"])
def test_an_empty_name_is_not_the_current_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        ImportedData(name, None, tmp_path / "cache")
    assert caught.value.field == "--data"


def test_a_suffix_may_be_in_upper_case(tmp_path: Path, layout_folder: Path) -> None:
    path = layout_folder / "npz/layout/xla/random/train/graph_0.npz"
    copy = tmp_path / f"{path.stem}.NPZ"
    copy.write_bytes(path.read_bytes())
    [graph] = ImportedData(str(copy), None, tmp_path / "cache").graphs("train")
    assert open_layout_graph(graph).name == path.stem
