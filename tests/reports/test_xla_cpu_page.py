"""The numbers of docs/xla_cpu.md are those of the committed records and results."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from costbench.datasets.machine_records import machines, open_records

REPOSITORY = Path(__file__).parents[2]
MODELS = ("hybrid", "trees", "analytical_unscaled", "measured_again")
BOUNDS_NS = (0, 1_000, 5_000, 20_000, 100_000, 1_000_000, np.inf)


def table(header: str) -> list[list[str]]:
    """Cells of the rows of a table of the page, without the header."""
    lines = (REPOSITORY / "docs" / "xla_cpu.md").read_text("utf-8").splitlines()
    rows = []
    for line in lines[lines.index(header) + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace(",", "") for cell in line.strip("|").split("|")])
    return rows


def test_errors_by_kind_of_program() -> None:
    frame = pd.read_parquet(REPOSITORY / "data" / "results" / "xla_cpu" / "rows.parquet")
    is_main = (frame["experiment"] == "real-fusion") & (frame["metric"] == "mape_ge5us")
    by_seed = frame[is_main & (frame["kernels"] == "all")]
    errors = by_seed.groupby(["model", "program"])["value"].mean().unstack("model")
    rows = table("| programs | number | hybrid | boosted trees | roofline | measured again |")
    assert len(rows) == 4
    for name, number, *values in rows:
        step, dtype = name.split()
        word = {"inference": "_infer_", "training": "_train_"}[step]
        chosen = errors[[word in program and program.endswith(dtype) for program in errors.index]]
        assert len(chosen) == int(number)
        means = np.exp(np.log(chosen[list(MODELS)].to_numpy(float)).mean(axis=0))
        assert list(map(float, values)) == pytest.approx(means.tolist(), abs=0.051)


def test_noise_by_runtime() -> None:
    folder = REPOSITORY / "data" / "xla_cpu"
    kernels = open_records(folder, machines(folder)[0]).kernels
    percent = 100.0 * (kernels["second_ns"] / kernels["first_ns"] - 1.0).abs()
    rows = table("| runtime of the kernel | kernels | mean | median | by more than 20% |")
    assert len(rows) == len(BOUNDS_NS) - 1
    for low, high, (_, *values) in zip(BOUNDS_NS, BOUNDS_NS[1:], rows, strict=False):
        part = percent[(kernels["first_ns"] > low) & (kernels["first_ns"] <= high)]
        facts = [len(part), part.mean(), part.median(), 100.0 * (part > 20.0).mean()]
        assert list(map(float, values)) == pytest.approx(facts, abs=0.51)
