from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.synthetic_layouts import random_graph
from costbench.datasets.layout_graphs import open_layout_graph, write_layout_graph
from costbench.errors import DataError
from costbench.metrics.ranking import kendall_tau
from costbench.models.layout.model import load_layout_model
from costbench.models.spec import LayoutNetSpec
from costbench.training.layout.fit import fit_layout
from costbench.training.layout.source import hold_out_configs
from costbench.training.spec import FitResult, HoldOutSpec, LayoutTrainSpec, SamplingSpec, SegmentSpec

NET = LayoutNetSpec(hidden=16, opcode_embedding=8, encoder_layers=2)
QUICK = LayoutTrainSpec(net=NET, steps_per_epoch=3, epochs=2, sampling=SamplingSpec(configs=8))


@pytest.fixture(scope="module")
def graph_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graphs") / "a.arrow"
    write_layout_graph(path, random_graph(0, 80, 10, 600, 4))
    return path


@pytest.fixture(scope="module")
def other_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graphs") / "b.arrow"
    write_layout_graph(path, random_graph(1, 60, 7, 50, 3))
    return path


def model_bytes(fit: FitResult) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(fit.checkpoint.iterdir())}


def test_unseen_configs_of_one_graph_are_ranked(graph_file: Path, tmp_path: Path) -> None:
    spec = replace(QUICK, seed=2, steps_per_epoch=50, epochs=4, hold_out=HoldOutSpec(0.1, 0.2), monitor="tau")
    fit = fit_layout(spec, [graph_file], [], tmp_path)
    graph = open_layout_graph(graph_file)
    test = hold_out_configs(graph, spec.hold_out, 2).unseen
    scores = load_layout_model(tmp_path).predict(graph, test)
    assert kendall_tau(scores, graph.runtime_ns[test]) > 0.6
    assert fit.best_metric > 0.6
    assert fit.steps == 200


def test_validation_graphs_choose_the_epoch(graph_file: Path, other_file: Path, tmp_path: Path) -> None:
    fit = fit_layout(QUICK, [graph_file], [other_file], tmp_path)
    graph = open_layout_graph(other_file)
    scores = load_layout_model(tmp_path).predict(graph)
    ordered = np.subtract.outer(graph.runtime_ns, graph.runtime_ns) > 0
    right = np.subtract.outer(scores, scores) > 0
    assert fit.best_metric == pytest.approx((ordered & right).sum() / ordered.sum())


def test_dropout_of_a_convolution_follows_from_the_seed(graph_file: Path, tmp_path: Path) -> None:
    spec = replace(QUICK, net=replace(NET, encoder="pyg.GATv2Conv(dropout=0.5)"))
    fits = []
    for state_of_the_process in range(2):
        torch.manual_seed(state_of_the_process)
        fits.append(model_bytes(fit_layout(spec, [graph_file], [], tmp_path / f"{state_of_the_process}")))
    assert fits[0] == fits[1]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"segments": SegmentSpec(nodes=30)},
        {"segments": SegmentSpec(historical=True, dropout=0.5), "net": replace(NET, part_nodes=30)},
        {"net": replace(NET, across_configs="softmax", set_size=8)},
        {"loss": "mse", "monitor": "tau"},
        {"loss": "listmle", "sampling": SamplingSpec(configs=8, method="uniform", graphs=2, pool=40)},
        {"margin_grows": True, "net": replace(NET, encoder="gcn", prune_hops=1)},
    ],
    ids=["full", "segments", "historical", "across", "mse", "listmle", "margins"],
)
def test_equal_arguments_give_equal_bytes(
    graph_file: Path, other_file: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    spec = replace(QUICK, **change)
    found = [model_bytes(fit_layout(spec, [graph_file, other_file], [], tmp_path / n)) for n in "ab"]
    assert found[0] == found[1]
    assert set(found[0]) == {"layout_model.json", "weights.pt"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA GPU")
def test_training_and_prediction_run_on_a_gpu(graph_file: Path, tmp_path: Path) -> None:
    spec = replace(QUICK, accelerator="auto", segments=SegmentSpec(nodes=30))
    first, again = (fit_layout(spec, [graph_file], [], tmp_path / name) for name in "ab")
    assert "GPU" in first.execution
    assert model_bytes(first) == model_bytes(again)
    graph = open_layout_graph(graph_file)
    scores = [load_layout_model(tmp_path / "a", device=name).predict(graph) for name in ("cpu", "cuda")]
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-3, atol=1e-4)


def test_a_killed_training_goes_on_where_it_was(
    graph_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = replace(QUICK, epochs=3)
    whole = model_bytes(fit_layout(spec, [graph_file], [], tmp_path / "whole"))
    from costbench.training.layout.module import LayoutModule

    original, calls = LayoutModule.training_step, []

    def killed(self: LayoutModule, batch: Any, index: int) -> Any:
        calls.append(index)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return original(self, batch, index)

    monkeypatch.setattr(LayoutModule, "training_step", killed)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        fit_layout(spec, [graph_file], [], tmp_path / "killed")
    monkeypatch.undo()
    resumed = fit_layout(spec, [graph_file], [], tmp_path / "killed")
    assert resumed.steps == 9
    assert model_bytes(resumed) == whole


def test_graphs_without_runtimes_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "test.arrow"
    graph = random_graph(0, 30, 4, 10)
    write_layout_graph(path, replace(graph, runtime_ns=np.zeros(0, np.int64)))
    with pytest.raises(DataError, match="no runtimes"):
        fit_layout(QUICK, [path], [], tmp_path / "model")


def test_nothing_to_compare_is_said(tmp_path: Path) -> None:
    path = tmp_path / "one.arrow"
    write_layout_graph(path, random_graph(0, 30, 4, 1))
    with pytest.raises(DataError, match="two configs to compare"):
        fit_layout(QUICK, [path], [path], tmp_path / "model")
