"""Rows as the stage `autotune` leaves them, small enough to work out what tables and claims say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costbench.metrics.rows import MetricRow
from tests.reports.conftest import PROGRAMS, make_row


def search_rows(
    task: str,
    bar: tuple[str, str],
    speedups: Sequence[Sequence[float]],
    costs: Mapping[str, float] | None = None,
    **where: str,
) -> list[MetricRow]:
    """Of one way of searching.

    Args:
        task: `tile` or `fusion`.
        bar: model and budget.
        speedups: of each program of conftest, one a repeat.
        costs: other metrics, the same for all programs and repeats.
        where: split and chip.
    """
    return [
        make_row(
            **{"split": "random", **where},
            task=task,
            model=bar[0],
            variant=bar[1],
            seed=seed,
            application=application,
            program=program,
            metric=metric,
            value=value,
        )
        for (application, program), repeats in zip(PROGRAMS, speedups, strict=False)
        for seed, speedup in enumerate(repeats)
        for metric, value in {"speedup": speedup, **(costs or {})}.items()
    ]


TILE_SPEEDUPS: Mapping[tuple[str, str], tuple[list[float], float, float, float]] = {
    ("exhaustive", "all"): ([1.25, 1.6, 1.0], 0.0, 1000.0, 200.0),
    ("sample", "all"): ([1.25, 1.6, 1.0], 0.0, 1000.0, 200.0),
    ("learned", "compiler"): ([1.0, 1.25, 0.8], 0.25, 0.0, 0.0),
    ("learned", "top1"): ([1.0, 1.25, 0.8], 0.25, 1.0, 0.5),
    ("learned", "top10"): ([1.2, 1.5, 1.0], 0.05, 10.0, 4.0),
    ("hybrid", "top10"): ([1.25, 1.5, 1.0], 0.02, 10.0, 4.0),
    ("alternating", "top10"): ([1.25, 1.4, 1.0], 0.03, 10.0, 4.0),
    ("analytical", "top10"): ([1.1, 1.4, 1.0], 0.08, 10.0, 4.0),
    ("random", "top10"): ([0.9, 0.5, 0.25], 1.5, 10.0, 5.0),
}
"""Bar -> speed-up of each program, slow-down, tile sizes measured, hardware seconds."""


def tile_rows(**where: str) -> list[MetricRow]:
    """A whole figure 4."""
    return [
        row
        for bar, (speedups, slowdown, measured, seconds) in TILE_SPEEDUPS.items()
        for row in search_rows(
            "tile",
            bar,
            [[speedup] for speedup in speedups],
            {"slowdown": slowdown, "num_measured": measured, "hardware_seconds": seconds},
            **where,
        )
    ]


FUSION_SPEEDUPS: Mapping[str, list[list[float]]] = {
    "hardware": [[1.0, 1.0, 1.1], [1.1, 1.2, 1.3], [1.0, 1.0, 1.0]],
    "model and hardware": [[1.1, 1.2, 1.2], [1.2, 1.2, 1.4], [1.0, 1.1, 1.2]],
    "hybrid and hardware": [[1.1, 1.1, 1.2], [1.2, 1.3, 1.4], [1.0, 1.0, 1.2]],
    "analytical and hardware": [[1.0, 1.1, 1.1], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0]],
}
"""What had searched -> programs x repeats, from the default with ten minutes."""


def fusion_search_rows(minutes: Sequence[int] = (1, 5, 10), **where: str) -> list[MetricRow]:
    """Whole figures of fusion searches: from a random start everything is half as fast."""
    rows = []
    for model, speedups in FUSION_SPEEDUPS.items():
        for start, factor in (("default", 1.0), ("random", 0.5)):
            for number in minutes:
                own = [[factor * value for value in repeats] for repeats in speedups]
                predicted = 0.0 if model == "hardware" else 5000.0
                costs = {"num_measured": 4.0 * number, "hardware_seconds": 59.0 * number}
                costs["num_predicted"] = predicted
                rows += search_rows("fusion", (model, f"{start}-{number}m"), own, costs, **where)
    costs = {"num_measured": 1000.0, "hardware_seconds": 14400.0, "num_predicted": 0.0}
    rows += search_rows("fusion", ("hardware", "default-240m"), [[1.2], [1.5], [1.0]], costs, **where)
    costs = {"num_measured": 5000.0, "slowdown": 0.0}
    rows += search_rows("fusion", ("best known", "all"), [[1.3], [1.5], [1.1]], costs, **where)
    return rows
