from __future__ import annotations

import json
import sys
from itertools import product

import pytest

from benchmarks import training_throughput
from benchmarks.network_cells import cells
from costbench.models.networks.encoders import ENCODERS
from costbench.models.networks.reductions import REDUCTIONS

DEFAULT = "graphsage/column-wise"


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_cell_is_timed_against_naive_batching(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Times are not judged here: cores are shared."""
    small = ["--hidden", "8", "--batches", "1", "--rounds", "1", "--only", DEFAULT]
    monkeypatch.setattr(sys, "argv", ["training_throughput", *small, "--json"])
    training_throughput.main()
    found = json.loads(capsys.readouterr().out)
    speeds = {"samples_per_s", "plain_shared_graph_samples_per_s", "naive_samples_per_s"}
    training = speeds | {"ratio", "ratio_same_matmul", "compiled_to_plain"}
    latencies = {"latency_us_per_tile", "latency_10000_nodes_ms"}
    cell = {f"{DEFAULT}/{metric}" for metric in training | latencies}
    shares = {"data_loading_share", "lightning_overhead"}
    tasks = {f"{task}/{name}" for task in ("tile", "fusion") for name in shares | {"step_ms"}}
    products = {"product_gflop_per_s", "product_share"}
    assert set(found) == cell | tasks | latencies | shares | products
    assert 0.0 < found["product_share"] < 1.0
    assert 0.0 < found["tile/data_loading_share"] <= found["data_loading_share"] < 1.0
    ours, naive = found[f"{DEFAULT}/samples_per_s"], found[f"{DEFAULT}/naive_samples_per_s"]
    assert found[f"{DEFAULT}/ratio"] == pytest.approx(ours / naive)


def test_every_cell_is_timed() -> None:
    assert set(cells()) == set(product(ENCODERS, REDUCTIONS))
    assert cells("gat/lstm") == [("gat", "lstm")]
