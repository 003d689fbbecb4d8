"""Verdicts choose the words of conclusions, and rows their numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.metrics.rows import MetricRow, write_rows
from costbench.reports.page import Pointer
from costbench.reports.results import load_results
from costbench.reports.sections.conclusions import conclusions, primary_cell
from costbench.reports.sections.results import all_standings
from tests.reports.test_standings import model_rows


def _conclusions(folder: Path, rows: list[MetricRow]) -> tuple[Pointer, ...]:
    write_rows(folder / "r.jsonl", rows)
    results = load_results(folder / "r.jsonl")
    return conclusions(results.cells, all_standings(results, 0))


@pytest.mark.parametrize(
    ("errors", "headline", "numbers"),
    [
        (
            [10.0] * 6,
            "Fusion: The learned model is better than the strongest baseline (boosted trees)",
            "MAPE 10.0% against 20.0%, 10.0 points less (95% interval 10.0 to 10.0), "
            "ahead on 100% of 6 programs",
        ),
        (
            [30.0] * 6,
            "Fusion: The learned model is worse than the strongest baseline (boosted trees)",
            "MAPE 30.0% against 20.0%, 10.0 points more (95% interval 10.0 to 10.0), "
            "ahead on 0% of 6 programs",
        ),
        (
            [20.0] * 6,
            "Fusion: Whether the learned model is better than the strongest baseline (boosted trees) cannot "
            "be told",
            "MAPE 20.0% against 20.0%, a difference of +0.0 points (95% interval +0.0 to +0.0), "
            "ahead on 50% of 6 programs",
        ),
    ],
)
def test_words_follow_from_intervals(
    tmp_path: Path, errors: list[float], headline: str, numbers: str
) -> None:
    (said,) = _conclusions(tmp_path, [*model_rows("trees", [20.0] * 6), *model_rows("learned", errors)])
    assert said.question == headline
    assert said.answer == f"{numbers}; random split, tpu_v3, kernels from 5 µs."
    assert said.anchor == "baselines_fusion_random_tpu_v3"


def test_folds_come_before_the_random_split_and_the_measured_chip_before_the_other(tmp_path: Path) -> None:
    rows = [
        *model_rows("learned", [1.0] * 6, chip="tpu_v2"),
        *model_rows("learned", [1.0] * 6, chip="tpu_v3"),
        *model_rows("learned", [1.0] * 6, chip="tpu_v2", split="manual"),
    ]
    write_rows(tmp_path / "r.jsonl", rows)
    cells = load_results(tmp_path / "r.jsonl").cells
    chosen = primary_cell(cells, "fusion", "learned")
    assert chosen is not None
    assert chosen.name == "fusion_random_tpu_v3"
    write_rows(tmp_path / "r.jsonl", [*rows, *model_rows("learned", [1.0] * 6, chip="tpu_v2", split="folds")])
    chosen = primary_cell(load_results(tmp_path / "r.jsonl").cells, "fusion", "learned")
    assert chosen is not None
    assert chosen.name == "fusion_folds_tpu_v2"
    assert primary_cell(cells, "fusion", "hybrid") is None


def test_without_baselines_there_is_no_conclusion(tmp_path: Path) -> None:
    assert _conclusions(tmp_path, model_rows("learned", [1.0] * 6)) == ()
