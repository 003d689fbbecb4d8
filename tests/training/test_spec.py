"""Settings of a training run refuse what cannot be, and load nothing that only training needs."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any, get_args

import pytest

from costbench.models.spec import LayoutNetSpec
from costbench.params import parse
from costbench.training.losses import LOSSES
from costbench.training.spec import (
    PREDICTS,
    HoldOutSpec,
    LayoutTrainSpec,
    LossName,
    OptimizerSpec,
    SamplingSpec,
    SegmentSpec,
    TrainSpec,
    ValidationSpec,
    monitored_metric,
)


def test_settings_load_no_torch() -> None:
    """Stages and the command line read settings, and should not wait seconds for what their workers use."""
    names = ["training.spec", *(f"experiments.stages.{name}" for name in ("train", "evaluate", "autotune"))]
    lines = (f"import costbench.{name}; 'torch' in sys.modules and sys.exit({name!r})" for name in names)
    code = "\n".join(["import sys", *lines])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_only_tau_is_better_when_larger() -> None:
    assert monitored_metric("tau") == ("validation/tau", True)
    assert monitored_metric("ape") == ("validation/ape", False)
    assert monitored_metric("slowdown") == ("validation/slowdown", False)
    assert monitored_metric("opa") == ("validation/opa", True)
    assert monitored_metric("mape") == ("validation/mape", False)


def test_mape_needs_a_loss_of_absolute_runtimes() -> None:
    assert TrainSpec(loss="mse", monitor="mape").monitor == "mape"
    with pytest.raises(ValueError, match="monitor is mape, which needs absolute runtimes; loss hinge ranks"):
        TrainSpec(loss="hinge", monitor="mape")


def test_every_loss_says_what_it_predicts() -> None:
    assert set(LOSSES) == set(PREDICTS) == set(get_args(LossName))
    assert (LOSSES["hinge"].predicts, LOSSES["hinge"].min_configs) == ("score", 2)
    assert (LOSSES["mse"].predicts, LOSSES["mse"].min_configs) == ("log_runtime_ns", 1)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_every_loss_can_be_chosen_in_a_parameter_file(name: str) -> None:
    assert parse(TrainSpec, {"loss": name}, where="params.yaml").loss == name


@pytest.mark.parametrize(("kernels", "configs"), [(0, 1), (1, 0)])
def test_validation_reads_something(kernels: int, configs: int) -> None:
    with pytest.raises(ValueError, match="must be 1 of 1 or more"):
        ValidationSpec(kernels=kernels, configs=configs)


def test_cosine_falls_to_a_share_of_the_rate() -> None:
    """Half-way it is the mean of both ends: (1 + 0.02) / 2 of 0.001."""
    spec = OptimizerSpec(learning_rate=1e-3, schedule="cosine", decay=0.02)
    assert spec.rate(0, 10, 4) == pytest.approx(1e-3)
    assert spec.rate(20, 10, 4) == pytest.approx(0.51e-3)
    assert spec.rate(40, 10, 4) == pytest.approx(2e-5)
    assert math.isclose(spec.rate(50, 10, 4), 2e-5)


def test_exponential_falls_after_every_epoch() -> None:
    spec = OptimizerSpec(learning_rate=1e-3, schedule="exponential", decay=0.5)
    assert [spec.rate(step, 10, 4) for step in (0, 9, 10, 25)] == pytest.approx([1e-3, 1e-3, 5e-4, 2.5e-4])


@pytest.mark.parametrize(
    ("kind", "values", "named"),
    [
        (SamplingSpec, {"configs": 1}, "configs"),
        (SamplingSpec, {"graphs": 0}, "graphs"),
        (SamplingSpec, {"pool": 1}, "pool"),
        (SegmentSpec, {"nodes": -1}, "nodes"),
        (SegmentSpec, {"dropout": 0.5}, "historical"),
        (HoldOutSpec, {"validation": 0.5, "unseen": 0.5}, "shares"),
        (LayoutTrainSpec, {"epochs": 0}, "epochs"),
        (LayoutTrainSpec, {"margin": 0.0}, "margin"),
        (LayoutTrainSpec, {"validation_configs": 1}, "validation_configs"),
        (LayoutTrainSpec, {"segments": SegmentSpec(historical=True)}, "part_nodes"),
        (
            LayoutTrainSpec,
            {
                "segments": SegmentSpec(historical=True),
                "net": LayoutNetSpec(part_nodes=9, pooling=("max",)),
            },
            "means",
        ),
        (
            LayoutTrainSpec,
            {"segments": SegmentSpec(nodes=9), "net": LayoutNetSpec(encoder="pyg.GCNConv")},
            "segments need",
        ),
    ],
)
def test_impossible_values_are_named(kind: type, values: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        kind(**values)


def test_a_parameter_file_can_say_all_of_it() -> None:
    content = {"net": {"encoder": "gcn", "pooling": ["mean"]}, "segments": {"nodes": 5000}, "loss": "listmle"}
    spec = parse(LayoutTrainSpec, content, where="params.yaml")
    assert spec.net.pooling == ("mean",)
    assert spec.segments.nodes == 5000
