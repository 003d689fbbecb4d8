"""Architectures of the suite's profiles: one budget for all; those of other papers by dotted path."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.experiments.grid.experiment import load_experiment
from costbench.experiments.parameter_file import load_params

PAPERS = {"examples.gps", "examples.pna", "examples.set_transformer", "examples.tabular_resnet"}


@pytest.mark.parametrize(
    ("profile", "task"), [("params", "tile"), ("params", "fusion"), ("xla_cpu", "fusion")]
)
def test_all_architectures_have_one_budget(repository: Path, profile: str, task: str) -> None:
    params = load_params(repository / "profiles" / "suite" / f"{profile}.yaml")
    variants = load_experiment(params, f"architectures-{task}").variants
    assert {"main", "tuned", "hybrid", "lpm2021"} < set(variants)
    specs = [variant.spec for variant in variants.values()]
    assert len({(spec.epochs, spec.steps_per_epoch, spec.per_step) for spec in specs}) == 1
    modules = {path.partition(":")[0] for spec in specs for path in spec.parts.values()}
    assert modules == PAPERS
    assert params.sections["sweep"]["pruner"]["keep_percent"] == 100.0
