"""Trials of searches with estimates: means, ratios with intervals and verdicts by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.artifacts import write_json
from costbench.metrics.rows import MetricRow, write_rows
from costbench_schedules.reports.crop2024.guidance import (
    FEWER,
    MORE,
    UNDECIDED,
    GuidedSearches,
    flat_guidance,
    guidance_figure,
    guidance_sentence,
    guidance_table,
    load_guided,
    verdict,
)
from tests.sentences import numbers

TRIALS = {"trees": (20.0, 40.0), "hybrid": (10.0, 20.0), "random": (80.0, 120.0), "crop": (10.0, 90.0)}
"""Of even and odd repeats on C2; on C10 twice as many."""
REPEATS = 6


def row(workload: str, arm: str, seed: int, metric: str, value: float) -> MetricRow:
    return MetricRow(
        *("schedule", "estimated", "native", arm, "main", seed, "conv2d", workload, "all", metric, value),
        *("p", "d", "r"),
    )


@pytest.fixture
def guided(tmp_path: Path) -> GuidedSearches:
    rows, curves = [], []
    for factor, workload in ((1, "C2"), (2, "C10")):
        facts = {"programs": 900.0, "configs": 1000.0, "enough_95": 30.0}
        rows += [row(workload, "best", 0, name, value) for name, value in facts.items()]
        for arm, trials in TRIALS.items():
            for seed in range(REPEATS):
                for percent in (90, 95, 99):
                    count = factor * trials[seed % 2]
                    rows.append(row(workload, arm, seed, f"trials_to_{percent}", count))
            curve = {
                "target": "native",
                "workload": workload,
                "arm": arm,
                "repeats": REPEATS,
                "trials": [1, 2],
            }
            curves.append(curve | {name: [60.0, 90.0] for name in ("median", "low", "high")})
    write_rows(tmp_path / "rows.jsonl", rows)
    write_json(tmp_path / "curves.json", curves)
    return load_guided(tmp_path)


def test_without_searches_nothing_is_said(tmp_path: Path) -> None:
    assert load_guided(tmp_path).rows == ()
    assert flat_guidance(GuidedSearches()) == {}


def test_medians_and_ratios_by_hand(guided: GuidedSearches) -> None:
    assert guided.workloads == ("C2", "C10")
    assert guided.arms == ("random", "crop", "trees", "hybrid")
    # Medians 30 and 60, of which the geometric mean is 30 sqrt 2.
    assert guided.median("trees", "trials_to_95") == pytest.approx(30 * 2**0.5)
    half = guided.ratio("hybrid", "trials_to_95")
    assert half is not None
    assert (half.value, half.low, half.high) == pytest.approx((0.5, 0.5, 0.5))
    assert verdict(half) == FEWER
    random = guided.ratio("random", "trials_to_95")
    assert random is not None
    assert random.value == pytest.approx((4 * 3) ** 0.5)
    assert verdict(random) == MORE
    # 1/2 and 9/4 times as many.
    crop = guided.ratio("crop", "trials_to_95")
    assert crop is not None
    assert crop.value == pytest.approx((0.5 * 2.25) ** 0.5)
    assert crop.low < 1.0 < crop.high
    assert verdict(crop) == UNDECIDED
    assert guided.ratio("trees", "trials_to_95") is None
    assert guided.ratio("draft-verify", "trials_to_95") is None


def test_table_figure_and_keys(guided: GuidedSearches, tmp_path: Path) -> None:
    table = guidance_table(guided)
    lines = {line[0]: line[1:] for line in table.rows}
    assert lines["Crop plus trees on its parts"][3:] == (*["0.50 [0.50, 0.50]"] * 3, FEWER)
    assert lines["trees on loops"][3:] == (None, None, None, None)
    assert {900, 1000, 30} <= set(numbers(table.notes[1]))
    sentence = guidance_sentence(guided)
    assert "Crop plus trees on its parts" in sentence
    assert 0.5 in numbers(sentence)
    assert guidance_figure(guided, tmp_path).path.is_file()
    flat = flat_guidance(guided)
    assert flat["crop/searches/hybrid/ratio_95"] == pytest.approx(0.5)
    assert flat["crop/searches/random/trials_to_90"] == pytest.approx(100 * 2**0.5)
