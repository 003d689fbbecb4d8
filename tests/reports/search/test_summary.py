"""Every bar of the figures has its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.metrics.rows import write_rows
from costbench.reports.searches import Searches, load_searches
from costbench.reports.sections.searches import flat_searches
from tests.reports.conftest import PROGRAMS
from tests.reports.search_rows import TILE_SPEEDUPS, fusion_search_rows, tile_rows

RNN = PROGRAMS[0][1]


@pytest.fixture
def flat(tmp_path: Path) -> dict[str, float]:
    write_rows(tmp_path / "rows.jsonl", [*tile_rows(), *fusion_search_rows()])
    return flat_searches(load_searches(tmp_path / "rows.jsonl"))


def test_figure_4_is_complete(flat: dict[str, float]) -> None:
    prefix = "autotune/tile/random/tpu_v2"
    assert flat[f"{prefix}/{RNN}/exhaustive/all/speedup"] == 1.25
    for (model, budget), (speedups, slowdown, *_) in TILE_SPEEDUPS.items():
        if budget == "top1":
            continue
        for (_, program), speedup in zip(PROGRAMS, speedups, strict=True):
            assert flat[f"{prefix}/{program}/{model}/{budget}/speedup"] == speedup
            assert flat[f"{prefix}/{program}/{model}/{budget}/slowdown"] == slowdown


def test_means_and_totals_of_all_budgets(flat: dict[str, float]) -> None:
    prefix = "autotune/tile/random/tpu_v2/all/learned"
    assert flat[f"{prefix}/top10/speedup_mean"] == pytest.approx(1.8 ** (1 / 3))
    assert flat[f"{prefix}/top10/slowdown_mean"] == pytest.approx(0.05)
    assert flat[f"{prefix}/top10/num_measured_total"] == 30.0
    assert flat[f"{prefix}/top1/hardware_seconds_total"] == 1.5
    assert flat[f"{prefix}/top10/fewer_hardware_seconds"] == 50.0
    assert f"{prefix}/compiler/fewer_hardware_seconds" not in flat
    assert f"autotune/tile/random/tpu_v2/{RNN}/learned/top1/speedup" not in flat


def test_figure_5_has_medians_and_whiskers(flat: dict[str, float]) -> None:
    prefix = "autotune/fusion/random/tpu_v2"
    own = f"{prefix}/{RNN}/default/model_and_hardware/10m"
    ends = [flat[f"{own}/speedup_{end}"] for end in ("median", "min", "max")]
    assert ends == [1.2, 1.1, 1.2]
    assert flat[f"{prefix}/{RNN}/random/hardware/5m/speedup_median"] == 0.5
    assert flat[f"{prefix}/{RNN}/best_known/all/speedup_median"] == 1.3
    assert flat[f"{prefix}/all/best_known/all/slowdown_mean"] == 0.0
    assert flat[f"{prefix}/{RNN}/default/hardware/240m/speedup_median"] == 1.2
    assert flat[f"{prefix}/all/default/hardware/1m/num_measured_mean"] == 4.0
    assert flat[f"{prefix}/all/default/hardware/1m/hardware_seconds_mean"] == 59.0


def test_nothing_has_no_keys() -> None:
    assert flat_searches(Searches()) == {}
