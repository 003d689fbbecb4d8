from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.generation_throughput import (
    PeakMemory,
    choose_programs,
    fusion_task,
    make,
    parser,
    step_seconds,
    tile_figures,
    tile_task,
)
from costbench.target import load_target

TARGET = load_target("tpu_v3")
NAME = "rnn_char_b64_infer_f32"


def test_figures_belong_together() -> None:
    made = make(choose_programs([NAME]), tile_task(TARGET, 20), jobs=1)
    # 17 kernels have something to choose; a tile that failed to compile is no sample.
    assert made.num_kernels == 17
    assert 17 * 2 <= made.num_samples <= 17 * 20
    found = tile_figures(made)
    assert found["tile_samples_per_s"] * found["seconds"] == pytest.approx(made.num_samples)
    assert found["ratio"] * found["floor_seconds"] == pytest.approx(found["seconds"])
    # Tile number and runtime are 16 bytes, and kernels have some of their own.
    assert 16 < found["bytes_per_sample"] < 64


def test_a_target_is_met_by_further_seeds() -> None:
    once = make(choose_programs([NAME]), tile_task(TARGET, 10), jobs=1)
    made = make(choose_programs([NAME]), tile_task(TARGET, 10), jobs=1, target=once.num_samples + 1)
    assert made.num_shards == 2
    assert made.num_samples > once.num_samples


def test_fusion_kernels_are_counted() -> None:
    made = make(choose_programs([NAME]), fusion_task((TARGET,), 3), jobs=1)
    assert made.num_kernels > 17


def test_every_step_takes_time() -> None:
    found = step_seconds(choose_programs([NAME]), tile_task(TARGET, 20))
    steps = ("read", "layouts", "fusion", "kernels", "unique", "lower", "enumerate", "choose", "sample")
    steps += ("measure", "write", "write program", "other")
    assert set(found) == set(steps)
    assert min(found.values()) > 0


def test_memory_of_children_counts() -> None:
    """A child that holds 300 MB for a moment."""
    code = "import time; block = bytearray(300_000_000); block[::4096] = block[::4096]; time.sleep(1)"
    with PeakMemory() as peak:
        subprocess.run([sys.executable, "-c", code], check=True)
    assert peak.num_bytes > 300_000_000
    # Never smaller than this process is.
    lines = Path("/proc/self/status").read_text().splitlines()
    resident = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))
    assert peak.num_bytes >= 0.9 * resident


def test_programs_by_name() -> None:
    assert len(choose_programs(["all"])) > 50
    with pytest.raises(SystemExit, match="unknown programs: mlp"):
        choose_programs(["mlp"])
    assert parser().parse_args([]).jobs == 2
