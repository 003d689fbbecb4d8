from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from costbench.models.networks.encoders import ENCODERS
from costbench.models.networks.reductions import REDUCTIONS


@pytest.mark.slow
def test_every_cell_is_timed_against_naive_batching(repository: Path) -> None:
    """Run as a user runs it. Times are not judged here: cores are shared."""
    script = repository / "benchmarks" / "training_throughput.py"
    small = ["--hidden", "8", "--batches", "1", "--rounds", "1"]
    done = subprocess.run(
        [sys.executable, str(script), *small, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    speeds = {"samples_per_s", "plain_shared_graph_samples_per_s", "naive_samples_per_s"}
    training = speeds | {"ratio", "ratio_same_matmul", "compiled_to_plain"}
    latencies = {"latency_us_per_tile", "latency_10000_nodes_ms"}
    cells = {f"{e}/{r}/{m}" for e in ENCODERS for r in REDUCTIONS for m in training | latencies}
    shares = {"data_loading_share", "lightning_overhead"}
    tasks = {f"{task}/{name}" for task in ("tile", "fusion") for name in shares | {"step_ms"}}
    products = {"product_gflop_per_s", "product_share"}
    assert set(found) == cells | tasks | latencies | shares | products
    assert 0.0 < found["product_share"] < 1.0
    assert 0.0 < found["tile/data_loading_share"] <= found["data_loading_share"] < 1.0
    for cell in (f"{e}/{r}" for e in ENCODERS for r in REDUCTIONS):
        ours, naive = found[f"{cell}/samples_per_s"], found[f"{cell}/naive_samples_per_s"]
        assert found[f"{cell}/ratio"] == pytest.approx(ours / naive)
