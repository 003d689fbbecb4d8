"""Parameters of one machine are those of a profile, and verdicts are counted over machines by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.trained_machine_claims import EXPERIMENTS, decided, over_machines, params_of
from costbench.artifacts import write_json
from costbench.experiments.grid.experiment import load_experiment
from costbench.metrics.rows import MAIN, MetricRow, RowOrigin
from costbench.params import load_yaml

PROGRAMS = tuple(f"program{n}" for n in range(6))
CLAIM = "lpm2021.tile_random_vs_analytical"


def rows(learned: float) -> list[MetricRow]:
    found: list[MetricRow] = []
    for number, name in enumerate(PROGRAMS):
        origin = RowOrigin("tile", "random", "tpu_v3.m07", "family", name, "", "", "")
        errors = {("learned", MAIN, 0): learned, ("analytical", MAIN, 0): 5.0}
        found += origin.rows(
            "all", {key: {"tile_size_ape": value + 0.01 * number} for key, value in errors.items()}
        )
    return found


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_machine_is_trained_on_as_the_profile_says(tmp_path: Path, name: str) -> None:
    base = dict(load_yaml(Path("params.yaml")))
    path = tmp_path / "params.yaml"
    write_json(path, params_of(base, "tpu_v3.m07", tmp_path / "chip.yaml", tmp_path))
    own, of_profile = load_experiment(path, name), load_experiment(Path("params.yaml"), name)
    assert (own.grid.chips, own.grid.splits, own.grid.transfer) == (("tpu_v3.m07",), ("random",), False)
    assert own.variants == of_profile.variants
    assert own.grid.seeds == of_profile.grid.seeds


def test_verdicts_are_counted_over_machines() -> None:
    """The learned model is ahead by 3 points, by 1 point, behind by 2, and level."""
    machines = [decided(rows(learned)) for learned in (2.0, 4.0, 7.0, 5.0)]
    [one] = [one for one in over_machines("tpu_v3", machines) if one.claim == CLAIM]
    assert (one.holds, one.fails, one.open) == (2, 1, 1)
    assert one.effects == pytest.approx((3.0, 1.0, -2.0, 0.0), abs=0.01)
    assert one.unit == "points"


def test_the_hybrid_meets_the_strongest_baseline() -> None:
    """Of the baselines in the rows the analytical model is the only one."""
    hybrid = [
        replace(row, model="hybrid", value=row.value - 4.0) for row in rows(5.0) if row.model == "learned"
    ]
    found = decided([*rows(5.0), *hybrid])
    own = f"{CLAIM}@hybrid"
    assert found[own].verdict == "holds"
    assert found[own].effect == pytest.approx(4.0, abs=0.01)
