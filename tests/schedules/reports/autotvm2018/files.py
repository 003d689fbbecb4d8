"""Results on schedules as the stage `schedules` leaves them: eight workloads, four arms, three repeats."""

from __future__ import annotations

from pathlib import Path

from costbench.artifacts import write_json
from costbench.metrics.rows import MetricRow, write_rows

WORKLOADS = tuple(f"C{n}" for n in range(2, 10))
SPEED = {"random": 20.0, "gbt-rank": 40.0, "treegru-rank": 50.0, "gbt-rank-plain": 40.0}
"""Speed after 100 trials; the fastest has 100."""


def row(
    workload: str, model: str, metric: str, value: float, seed: int = 0, split: str = "recorded"
) -> MetricRow:
    where = ("schedule", split, "native", model, "main", seed, "conv2d", workload, "all")
    return MetricRow(*where, metric, value, "p", "d", "r")


def write_schedule_files(folder: Path) -> Path:
    """Writes everything that `load_schedules` reads; returns the folder."""
    best = {"gflops_best": 100.0, "gflops_confirmed": 90.0}
    rows = [row(name, "best", metric, value) for name in WORKLOADS for metric, value in best.items()]
    rows += [
        row(name, arm, "gflops_100", speed + seed - 1, seed)
        for name in WORKLOADS
        for arm, speed in SPEED.items()
        for seed in range(3)
    ]
    rows += [row(name, "random", "trials_to_95", 101.0) for name in WORKLOADS]
    # Models that are tested without a search.
    for model, tau in (("gbt-rank", 0.7), ("traffic", 0.25)):
        for name in ("C7", "C8"):
            rows += [row(name, model, "kendall_tau", tau, split="transfer")]
            rows += [row(name, model, f"top_{k}", 20.0 / k, split="transfer") for k in (1, 5, 10)]
            rows += [row(name, model, "failed_in_10", 0.0, split="transfer")]
    write_rows(folder / "rows.jsonl", rows)
    curve = {"trials": [1, 100], "median": [1.0, 20.0], "low": [0.5, 19.0], "high": [2.0, 21.0], "repeats": 3}
    curves = [
        {"target": "native", "workload": name, "arm": arm, **curve} for name in WORKLOADS for arm in SPEED
    ]
    write_json(folder / "curves.json", curves)
    facts = {"target": "native", "operator": "conv2d:...", "processor": "a processor", "configs": 1000}
    facts |= {
        "failed": 0,
        "best_gflops": 100.0,
        "fast_share": 0.08,
        "median_gflops": 10.0,
        "tau": 0.95,
        "spread": 1.02,
    }
    facts |= {"trusted": True}
    write_json(folder / "tables.json", [{**facts, "workload": name} for name in WORKLOADS])
    times = [
        {
            "target": "native", "workload": name, "application": "conv2d", "arm": arm, "fitted": 100,
            "fit_s": seconds, "predict_s": seconds / 10, "predicted": 1000,
        }
        for name in WORKLOADS
        for arm, seconds in (("gbt-rank", 1.0), ("treegru-rank", 8.0))
    ]  # fmt: skip
    write_json(folder / "wall_times.json", times)
    return folder
