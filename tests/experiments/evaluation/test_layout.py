"""Metrics of layout models, by hand and against plain loops."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau

from costbench.arrays import F64, I64
from costbench.autotuning.budget import Charging
from costbench.compiler.layout.space import layout_space
from costbench.datasets.layout_generation import LayoutParams, LayoutTask
from costbench.datasets.layout_graphs import LayoutGraph
from costbench.datasets.layout_pricing import PROGRAM_NOISE_SD, ProgramPricer
from costbench.errors import DataError
from costbench.experiments.evaluation import layout
from costbench.experiments.evaluation.layout import (
    baseline_scores,
    collection_of,
    evaluated_rows,
    layout_metrics,
    measure_again,
    measure_overhead,
    over_collections,
)
from costbench.features.tpugraphs_graphs import layout_graph
from costbench.hardware.device import Device
from costbench.hlo.conversion import module_to_bytes
from costbench.hlo.reader import module_from_bytes
from costbench.target import load_target
from tests.compiler.small_layouts import two_convolutions
from tests.datasets.test_layout_graphs import small_graph

TARGET = load_target("tpu_v3")


def timed(runtime: list[int]) -> LayoutGraph:
    return replace(small_graph(len(runtime)), runtime_ns=np.array(runtime, np.int64))


def test_metrics_by_hand() -> None:
    found = layout_metrics(timed([30, 10, 20, 20]), np.array([1.0, 3.0, 2.0, 4.0]))
    # Chooses 30 first. Of five pairs with different runtimes one is in order, the last 20 against 10.
    assert found["top_1"] == pytest.approx(200.0)
    assert found["top_10"] == found["top_100"] == 0.0
    assert found["opa"] == pytest.approx(1 / 5)
    assert found["kendall_tau"] == pytest.approx(kendalltau([1, 3, 2, 4], [30, 10, 20, 20]).statistic)


def test_metrics_of_many_against_loops() -> None:
    draw = np.random.Generator(np.random.PCG64(0))
    runtime, scores = draw.integers(100, 160, 300), draw.integers(0, 40, 300).astype(float)
    found = layout_metrics(timed(runtime.tolist()), scores)
    pairs = [(i, j) for i in range(300) for j in range(300) if runtime[i] > runtime[j]]
    assert found["opa"] == pytest.approx(np.mean([scores[i] > scores[j] for i, j in pairs]))
    assert found["kendall_tau"] == pytest.approx(kendalltau(scores, runtime).statistic)
    for k in (1, 10, 100):
        order = sorted(range(300), key=lambda place: (scores[place], place))[:k]
        assert found[f"top_{k}"] == pytest.approx(100.0 * (runtime[order].min() / runtime.min() - 1.0))


def test_a_constant_prediction_ranks_nothing_and_equal_runtimes_are_not_ranked() -> None:
    assert layout_metrics(timed([30, 10]), np.zeros(2)) == {
        "kendall_tau": 0.0, "opa": 0.0, "top_1": 200.0, "top_10": 0.0, "top_100": 0.0,
        "top_1_percent": 200.0, "top_10_percent": 200.0,
    }  # fmt: skip
    without_order = layout_metrics(timed([7, 7]), np.array([1.0, 2.0]))
    assert set(without_order) == {"top_1", "top_10", "top_100", "top_1_percent", "top_10_percent"}
    assert layout_metrics(timed([7]), np.array([1.0])) == {}


def test_a_thousand_configs_evenly_spaced_by_runtime_count() -> None:
    # Runtimes fall, so that the order by runtime is the reverse one.
    graph = timed(list(range(4996, 0, -1)))
    rows = evaluated_rows(graph)
    assert len(rows) == 1000
    assert (rows[0], rows[-1]) == (0, 4995)
    steps = np.diff(rows)
    assert set(steps.tolist()) == {5}
    assert (np.diff(evaluated_rows(timed([5] * 2500))) > 0).all()
    assert evaluated_rows(timed([3, 1, 2])).tolist() == [0, 1, 2]
    found = layout_metrics(graph, graph.runtime_ns[rows].astype(float))
    assert (found["kendall_tau"], found["top_1"]) == (1.0, 0.0)


def test_a_share_of_the_configs_is_tried() -> None:
    # 215 configs, the fastest last by score: 1% are 2 of them, 10% are 22 (21.5 to the even number).
    runtime = [*range(400, 185, -1)]
    values = layout_metrics(timed(runtime), np.arange(215.0))
    assert values["top_1_percent"] == pytest.approx(100.0 * (399 / 186 - 1.0))
    assert values["top_10_percent"] == pytest.approx(100.0 * (379 / 186 - 1.0))
    # Of 1,000 they are what the paper has.
    many = layout_metrics(timed(list(range(3000, 2000, -1))), np.arange(1000.0))
    assert (many["top_1_percent"], many["top_10_percent"]) == (many["top_10"], many["top_100"])


def test_another_run_differs_by_the_noise_of_a_run(tmp_path: Path) -> None:
    made = LayoutTask(
        name="small",
        application="tests",
        family="xla",
        program=module_to_bytes(two_convolutions()),
        targets=(TARGET,),
        params=LayoutParams(max_configs=24, seed=3),
        folder=tmp_path,
    )
    made.make()
    again = measure_again(made.paths[0], TARGET, (0, 5))
    space = layout_space(module_from_bytes(made.program, where="small"))
    pricer = ProgramPricer(space, [Device(TARGET, 3)], memory_gib=16.0)
    for search in ("random", "default"):
        graph = layout_graph(made.paths[0], search)
        total = pricer.priced(graph.config_options.astype(np.int16)).total_ns[:, 0]
        first = graph.runtime_ns / total - 1.0
        noises = {seed: ns / total - 1.0 for seed, ns in again[search].items()}
        for noise in noises.values():
            assert len(noise) == len(graph.runtime_ns)
            assert 0.5 < noise.std() / PROGRAM_NOISE_SD < 1.6
            assert np.abs(noise).max() < 5 * PROGRAM_NOISE_SD
            # The noise that the shard has is taken out: with it the correlation would be 0.7.
            assert abs(np.corrcoef(noise, first)[0, 1]) < 0.5
        assert not np.array_equal(noises[0], noises[5])


def test_what_does_not_fit_is_an_error() -> None:
    with pytest.raises(DataError, match="2 finite numbers"):
        layout_metrics(timed([3, 1]), np.zeros(3))
    with pytest.raises(DataError, match="finite"):
        layout_metrics(timed([3, 1]), np.array([0.0, np.nan]))
    with pytest.raises(DataError, match="withheld"):
        layout_metrics(replace(small_graph(2), runtime_ns=np.zeros(0, np.int64)), np.zeros(2))


def test_baselines_by_name() -> None:
    rows = np.arange(4)
    found = baseline_scores(small_graph(4), rows, ("learned", "random", "default_first"), (0, 1), {})
    assert sorted(found) == [("default_first", "main", 0), ("random", "main", 0), ("random", "main", 1)]
    assert found["default_first", "main", 0].tolist() == [1.0, 1.0, 1.0, 2.0]
    fewer = baseline_scores(small_graph(4), rows[1:3], ("random",), (0,), {})
    assert fewer["random", "main", 0].tolist() == found["random", "main", 0][1:3].tolist()


def test_a_program_is_the_mean_of_its_collections() -> None:
    learned, chance = ("learned", "main", 0), ("random", "main", 0)
    found = over_collections(
        {
            "xla:random": {learned: {"top_1": 2.0, "opa": 0.5}, chance: {"top_1": 8.0}},
            "xla:default": {learned: {"top_1": 4.0}},
        }
    )
    assert found["all"] == {learned: {"top_1": 3.0}, chance: {"top_1": 8.0}}
    assert found["xla:default"] == {learned: {"top_1": 4.0}}
    assert collection_of(small_graph()) == "xla:random"


def test_medians_of_three_and_the_charge_of_every_instruction(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(layout.time, "perf_counter", lambda: clock[0])
    asked: list[int] = []

    def score(graph: LayoutGraph, rows: I64) -> F64:
        asked.append(len(rows))
        clock[0] += 0.01 * len(rows) if len(rows) > 1 else 0.5
        return np.zeros(len(rows))

    costs = iter([9.0, 1.0, 3.0, 2.0])

    def extract() -> None:
        clock[0] += next(costs)

    graph = replace(small_graph(3), runtime_ns=np.array([10**9, 3 * 10**9, 2 * 10**9], np.int64))
    charging = Charging(compile_s=1.0, compile_s_per_instruction=0.5)
    found = measure_overhead(graph, "random", "tpu_v3", "RNN", extract, score, charging)
    # Five nodes; the first extraction is not counted.
    assert (found.compile_s, found.run_s, found.extraction_s) == (3.5, 2.0, 2.0)
    assert (found.batch_s, found.single_s) == (pytest.approx(0.01), pytest.approx(0.5))
    assert sorted(set(asked)) == [1, 100]
    assert (found.program, found.application) == ("net", "RNN")
