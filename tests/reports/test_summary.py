"""Headline numbers, worked out by hand from the scores in conftest."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from costbench.reports.summary import averages, flat_fits, headlines, summarise
from tests.reports.conftest import fusion_rows, make_cell, make_row, results_of_rows, rows_of, variant_rows


def test_averages_by_hand() -> None:
    learned = averages(make_cell(), "learned")
    # 4, 1 and 0, which counts as 0.05: the cube root of 0.2.
    assert learned["ape_mean"] == pytest.approx(0.2 ** (1 / 3))
    assert learned["ape_arithmetic_mean"] == pytest.approx(5 / 3)
    assert learned["ape_median"] == 1.0
    assert learned["ape_floored"] == 1.0
    assert learned["tau_mean"] == pytest.approx(0.8)
    assert learned["tau_median"] == 0.8
    assert learned["tau_geometric_mean"] == pytest.approx((0.9 * 0.7 * 0.8) ** (1 / 3))


def test_a_correlation_below_zero_has_no_geometric_mean() -> None:
    random = averages(make_cell(), "random")
    assert "tau_geometric_mean" not in random
    assert random["tau_mean"] == pytest.approx(0.0)


def test_unseen_kernels_have_keys_of_their_own() -> None:
    rows = [*rows_of(), *rows_of(kernels="unseen")[:2]]
    summary = summarise(results_of_rows(rows), {})
    # The first two programs of the learned model: APE 4 and 1.
    assert summary["tile/random/tpu_v2/learned/unseen_ape_mean"] == pytest.approx(2.0)
    assert summary["tile/random/tpu_v2/learned/unseen_ape_median"] == 2.5
    assert "tile/random/tpu_v2/analytical/unseen_ape_mean" not in summary


def test_keys_are_flat_and_sorted() -> None:
    summary = summarise(results_of_rows(rows_of()), {"leakage/x": 0.5})
    assert list(summary) == sorted(summary)
    assert summary["leakage/x"] == 0.5
    for model in ("learned", "analytical", "random"):
        for metric in ("ape_mean", "ape_median", "tau_mean", "tau_median"):
            assert f"tile/random/tpu_v2/{model}/{metric}" in summary


def test_fusion_has_keys_for_long_and_short_kernels() -> None:
    results = results_of_rows(fusion_rows("manual", "tpu_v3"))
    summary = summarise(results, {})
    prefix = "fusion/manual/tpu_v3/analytical"
    # 8, 27 and 64: the cube root of their product is 2 x 3 x 4.
    assert summary[f"{prefix}/mape_ge5us_mean"] == pytest.approx(24.0)
    assert summary[f"{prefix}/mape_ge5us_arithmetic_mean"] == 33.0
    assert summary[f"{prefix}/mape_ge5us_median"] == 27.0
    # Around 33: 25, 6, 31; the squares add up to 1622.
    assert summary[f"{prefix}/mape_ge5us_std"] == pytest.approx(811.0**0.5)
    assert summary[f"{prefix}/mape_lt5us_mean"] == pytest.approx(48.0)
    assert summary[f"{prefix}/mape_mean"] == pytest.approx(36.0)
    assert summary[f"{prefix}/tau_ge5us_mean"] == pytest.approx(0.7)
    assert summary[f"{prefix}/tau_lt5us_mean"] == pytest.approx(0.6)
    assert summary[f"{prefix}/tau_mean"] == pytest.approx(0.65)
    assert "fusion/manual/tpu_v3/hybrid/tau_ge5us_median" in summary
    assert not [key for key in summary if "kernels" in key]
    # The analytical model is the only baseline.
    shown = headlines(results)
    assert shown["fusion"] == {
        "learned": pytest.approx(2.0),
        "hybrid": pytest.approx(2.0 ** (1 / 3)),
        "baseline": pytest.approx(24.0),
    }


def test_headlines_are_of_the_folds_and_few() -> None:
    """One cell of each task: folds before other splits, the calibrated chip before others."""
    rows = [*rows_of(), *rows_of("random", "tpu_v3"), *rows_of("folds", "tpu_v3")]
    changed = [replace(row, value=row.value + 1.0) if row.split == "folds" else row for row in rows]
    shown = headlines(results_of_rows(changed))
    # 4, 1 and 0, one more each.
    assert shown["tile"]["learned"] == pytest.approx((5.0 * 2.0 * 1.0) ** (1 / 3))
    assert sum(map(len, shown.values())) <= 9


def test_every_baseline_has_keys_on_every_split() -> None:
    rows = rows_of("folds", "tpu_v3")
    learned = [row for row in rows if row.model == "learned"]
    new = ("lpm2021", "analytical_constant", "analytical_linear", "trees")
    rows += [replace(row, model=model) for model in new for row in learned]
    summary = summarise(results_of_rows(rows), {})
    for model in new:
        assert summary[f"tile/folds/tpu_v3/{model}/ape_mean"] == pytest.approx(0.2 ** (1 / 3))


def test_variants_stand_beside_their_model() -> None:
    without = summarise(results_of_rows(rows_of()), {})
    both = summarise(results_of_rows([*rows_of(), *variant_rows("mse", "tile", [50.0] * 3)]), {})
    assert both["tile/random/tpu_v2/learned@mse/ape_mean"] == pytest.approx(50.0)
    assert {key: value for key, value in both.items() if "@" not in key} == without


def test_of_skewed_losses_shares_of_programs_are_told() -> None:
    losses = (0.0, 2.0, 8.0, 30.0)
    where = {"task": "layout", "split": "folds", "metric": "top_1"}
    rows = [make_row(**where, program=f"p{index}", value=loss) for index, loss in enumerate(losses)]
    numbers = summarise(results_of_rows(rows), {})
    shares = [numbers[f"layout/folds/tpu_v2/learned/top1_above_{percent}"] for percent in (1, 5, 10)]
    assert shares == [75.0, 50.0, 25.0]


def test_what_the_estimate_explains_of_log_runtime(tmp_path: Path) -> None:
    # Logarithms 0, 1, 2 of estimates and 0, 2, 1 of runtimes, in units of 10 us: a correlation of one half.
    entry = {"task": "fusion", "split": "folds", "chip": "tpu_v3", "model": "analytical_unscaled"}
    long_ns = {"predicted_ns": [1e4, 1e4 * math.e, 1e4 * math.e**2]}
    long_ns["measured_ns"] = [1e4, 1e4 * math.e**2, 1e4 * math.e]
    # A power law of short kernels.
    short_ns = {"predicted_ns": [10.0, 20.0, 40.0], "measured_ns": [100.0, 400.0, 1600.0]}
    other = {**entry, "model": "analytical", "predicted_ns": [1.0], "measured_ns": [1e4]}
    path = tmp_path / "scatter.json"
    path.write_text(json.dumps([{**entry, **long_ns}, {**entry, **short_ns}, other]))
    key = "fusion/folds/tpu_v3/analytical"
    assert flat_fits([path]) == pytest.approx({f"{key}/r2_ge5us": 0.25, f"{key}/r2_lt5us": 1.0})
