"""The study of coverage: its simulations, and the shares of the variance it finds in rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.interval_coverage import (
    EFFECTS,
    METHODS,
    Design,
    Trials,
    coverage,
    geometric,
    main,
    shares,
    simulate,
)
from costbench.metrics.rows import write_rows
from costbench.reports.claims.claim import Side
from tests.reports.claims.toy_claims import rows_of_side


@pytest.mark.parametrize("effects", EFFECTS)
def test_effects_of_programs_have_mean_0_and_variance_1(effects: str) -> None:
    drawn = EFFECTS[effects](np.random.default_rng(0), (200_000,))
    assert drawn.mean() == pytest.approx(0.0, abs=0.01)
    # That of t with 3 degrees of freedom converges slowly.
    assert drawn.var() == pytest.approx(1.0, abs=0.2 if effects == "heavy tails" else 0.05)


def test_coverage_counts_intervals_with_the_truth() -> None:
    trials = Trials(np.zeros((4, 6, 1)), np.zeros(4), np.ones((1, 6)) / 6, np.ones((1, 1)))
    ends = (np.array([-1.0, 0.1, 0.0, -2.0]), np.array([1.0, 1.0, 0.0, -1.0]))
    assert coverage(trials, ends) == 0.5


def test_one_run_is_judged_by_the_mean_of_that_run() -> None:
    assert simulate(Design("normal", 6, 1, of_runs=1.0), 50, 10).truth.std() > 0.5
    assert not simulate(Design("normal", 6, 3, of_runs=1.0), 50, 10).truth.any()
    assert not simulate(Design("normal", 6, 1, of_runs=1.0), 50, 10, of_all_runs=True).truth.any()


def test_all_ways_agree_where_there_are_many_symmetric_programs() -> None:
    trials = simulate(Design("normal", 400, 1), 20, 1_000)
    ends = {name: method(trials) for name, method in METHODS.items()}
    width = float(np.mean(ends["t"][1] - ends["t"][0]))
    for low, high in ends.values():
        assert np.abs(low - ends["t"][0]).mean() < 0.1 * width
        assert np.abs(high - ends["t"][1]).mean() < 0.1 * width


def test_shares_of_the_variance_are_found_in_rows(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    own, runs = 0.3 * generator.standard_normal(400), np.array([-0.3, 0.0, 0.3])
    noise = 0.3 * generator.standard_normal((3, 400))
    left = {seed: np.exp(own + runs[seed] + noise[seed]).tolist() for seed in range(3)}
    rows = [
        *rows_of_side(Side("lpm2021"), left),
        *rows_of_side(Side(model="analytical"), {0: [2.5] * 400}),
    ]
    write_rows(tmp_path / "rows.jsonl", rows)
    (found,) = shares([tmp_path / "rows.jsonl"])
    # Variance of the runs: 0.09; of programs and of the interaction: 0.09 each.
    assert (found.of_runs, found.interaction) == pytest.approx((1.0, 1.0), rel=0.2)


def test_of_geometric_means_t_errs_on_one_side() -> None:
    found = geometric(8, 600, 400)
    (t_above, t_below), ours = found["t"], found["ours"]
    assert t_below > 3.0 * t_above
    assert sum(ours) < 0.08
    assert sum(found["percentile"]) > 0.08
    assert ours[1] - ours[0] < t_below - t_above


def test_the_table_has_a_line_for_each_design(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--trials", "20", "--resamples", "50"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(EFFECTS) * 9
    assert lines[0].endswith("| t | ours |")
