from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from costbench.models.encoders import ENCODERS
from costbench.models.reductions import REDUCTIONS


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
    training = {"samples_per_s", "naive_samples_per_s", "ratio", "ratio_same_matmul"}
    metrics = training | {"us_per_tile", "large_graph_ms"}
    assert set(found) == {f"{e}/{r}/{metric}" for e in ENCODERS for r in REDUCTIONS for metric in metrics}
    for cell in (f"{e}/{r}" for e in ENCODERS for r in REDUCTIONS):
        ours, naive = found[f"{cell}/samples_per_s"], found[f"{cell}/naive_samples_per_s"]
        assert found[f"{cell}/ratio"] == pytest.approx(ours / naive)
