"""Spaces as data: what fits a model, what does not, and that equal spaces draw equal values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import FixedTrial

from costbench.errors import ParamsError
from costbench.experiments.parameter_file import load_params
from costbench.experiments.stages.sweep import load_sweep
from costbench.experiments.sweeps.best import with_values
from costbench.experiments.sweeps.space import Range, Space, resolve
from costbench.models.networks.encoders import ENCODERS
from costbench.models.networks.reductions import REDUCTIONS
from costbench.params import parse
from costbench.training.spec import TrainSpec


def space_of(ranges: dict[str, Any]) -> Space:
    parsed = {name: parse(Range, one, where="p.yaml", field=f"space.{name}") for name, one in ranges.items()}
    return resolve(parsed, TrainSpec(), "p.yaml", "space")


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({}, "p.yaml: space: empty"),
        ({"net.hiden": {"choices": [8]}}, "space.net.hiden: no hyper-parameter, did you mean 'net.hidden'?"),
        ({"net": {"choices": [8]}}, "space.net: no hyper-parameter"),
        ({"net.hidden": {"low": 64, "high": 8}}, "space.net.hidden: low is 64, must be at most high, 8"),
        ({"net.hidden": {"low": 8}}, "must have choices, or low and high"),
        ({"net.hidden": {"lo": 8, "high": 9}}, "space.net.hidden.lo: unknown key, did you mean 'low'?"),
        ({"net.hidden": {"choices": []}}, "choices are []"),
        ({"net.hidden": {"choices": [8, 8]}}, "must be one or more different ones"),
        ({"net.hidden": {"choices": [8], "low": 1}}, "must have no low, high, step or log"),
        ({"net.hidden": {"choices": [8, "wide"]}}, "space.net.hidden: 'wide' (str) is not accepted"),
        ({"net.hidden": {"low": 0, "high": 8}}, "hidden is 0, must be at least 1"),
        ({"net.hidden": {"low": 1.5, "high": 8}}, "space.net.hidden: 1.5 (float) is not accepted"),
        ({"optimizer.learning_rate": {"low": 0.0, "high": 1.0, "log": True}}, "low is 0.0, must be above"),
        ({"net.dropout": {"low": 0.0, "high": 1.0}}, "dropout is 1.0, must be in [0, 1)"),
        ({"net.dropout": {"low": 0.0, "high": 0.5, "step": 0}}, "step is 0, must be above zero"),
        (
            {"net.hidden": {"low": 8, "high": 64, "step": 0.5}},
            "hidden: has step 0.5",
        ),
        ({"loss": {"choices": ["hinge", "hing"]}}, "did you mean 'hinge'"),
        ({"net.directed": {"low": 0, "high": 1}}, "space.net.directed"),
        ({"net.encoder": {"choices": ["none", "graphsag"]}}, "unknown choice 'graphsag'"),
        ({"net.encoder": {"choices": ["none", "pyg.GATvConv"]}}, "did you mean 'GATv2Conv'"),
        ({"seed": {"choices": [0, 1]}}, "space.seed: cannot be swept"),
        ({"monitor": {"choices": ["tau", "ape"]}}, "space.monitor: cannot be swept"),
        ({"validation.kernels": {"low": 4, "high": 8}}, "space.validation.kernels: cannot be swept"),
        ({"net.hidden": {"choices": [8, 16], "when": {"loss": ["hinge"]}}}, "depends on 'loss'"),
        (
            {
                "loss": {"choices": ["hinge", "logistic"]},
                "net.hidden": {"choices": [8, 16], "when": {"loss": ["hing"]}},
            },
            "space.net.hidden.when: depends on loss 'hing' (expected values of loss)",
        ),
        (
            {
                "loss": {"choices": ["hinge", "logistic"]},
                "net.hidden": {"choices": [8, 16], "when": {"loss": ["hinge"]}},
                "net.dropout": {"choices": [0.0, 0.1], "when": {"net.hidden": [8]}},
            },
            "space.net.dropout.when: depends on 'net.hidden' (expected some of loss)",
        ),
    ],
)
def test_what_does_not_fit_is_one_error(ranges: dict[str, Any], message: str) -> None:
    with pytest.raises(ParamsError) as caught:
        space_of(ranges)
    assert message in str(caught.value)
    assert str(caught.value).startswith("p.yaml: space")


def test_one_value_is_set_for_all_trials() -> None:
    space = space_of({"monitor": {"choices": ["ape"]}, "net.hidden": {"low": 16, "high": 16}})
    assert space.base.monitor == "ape"
    assert space.base.net.hidden == 16
    assert space.ranges == {}
    assert space.suggest(FixedTrial({})) == {"monitor": "ape", "net.hidden": 16}


def test_lists_and_null_are_values() -> None:
    space = space_of(
        {
            "net.columns": {"choices": [["mean"], ["mean", "max"]]},
            "optimizer.gradient_clip_norm": {"choices": [None, 1.0]},
        }
    )
    trial = FixedTrial({"net.columns": "mean+max", "optimizer.gradient_clip_norm": None})
    assert space.suggest(trial) == {"net.columns": ("mean", "max"), "optimizer.gradient_clip_norm": None}


def test_a_condition_leaves_the_model_as_it_is() -> None:
    space = space_of(
        {
            # A condition is drawn after what it depends on, whatever the names.
            "net.aggregation": {"choices": ["mean", "max"], "when": {"net.encoder": ["graphsage"]}},
            "net.encoder": {"choices": ["none", "graphsage"]},
        }
    )
    assert space.suggest(FixedTrial({"net.encoder": "none"})) == {"net.encoder": "none"}
    both = {"net.encoder": "graphsage", "net.aggregation": "max"}
    assert space.suggest(FixedTrial(both)) == both


def test_models_of_the_paper_that_are_not_there_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    asked = ["none", "graphsage", "gat"]
    space = space_of({"net.encoder": {"choices": asked}})
    kept = [name for name in asked if name in ENCODERS]
    assert list(space.ranges["net.encoder"].choices or ()) == kept
    assert ("left out" in caplog.text) == (kept != asked)


NUMBERS = {"net.max_neighbors": {"low": 1, "high": 20}, "net.dropout": {"low": 0.0, "high": 0.4, "step": 0.1}}
RATE = {"optimizer.learning_rate": {"low": 1e-5, "high": 1e-1, "log": True}}


@given(seed=st.integers(0, 2**32 - 1))
def test_values_lie_in_their_ranges_and_do_not_depend_on_the_order(seed: int) -> None:
    def drawn(ranges: dict[str, Any]) -> dict[str, Any]:
        study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed))
        return space_of(ranges).suggest(study.ask())

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    values = drawn({**NUMBERS, **RATE})
    assert values == drawn({**RATE, **dict(reversed(NUMBERS.items()))})
    assert isinstance(values["net.max_neighbors"], int)
    assert 1 <= values["net.max_neighbors"] <= 20
    assert min(abs(values["net.dropout"] - 0.1 * k) for k in range(5)) < 1e-9
    assert 1e-5 <= values["optimizer.learning_rate"] <= 1e-1


def test_convolutions_of_pyg_are_choices_of_encoders() -> None:
    names = ["graphsage", "pyg.GCNConv", "pyg.GATv2Conv(heads=2)"]
    space = space_of({"net.encoder": {"choices": names}})
    chosen = FixedTrial({"net.encoder": "pyg.GATv2Conv(heads=2)"})
    assert space.suggest(chosen) == {"net.encoder": "pyg.GATv2Conv(heads=2)"}


def test_parts_of_a_users_own_are_choices_and_known_by_their_fields() -> None:
    """Their sources are part of what a study follows from."""
    names = [f"examples.my_network:{name}" for name in ("MyConv", "MyReduction(temperature=2.0)", "my_loss")]
    space = space_of(
        {
            "net.encoder": {"choices": ["graphsage", names[0]]},
            "net.reduction": {"choices": [names[1]]},
            "loss": {"choices": ["hinge", names[2]]},
            "transform": {"choices": ["none", "log1p"]},
        }
    )
    assert set(space.parts.values()) == set(names)
    assert space.parts["net.encoder[1]"] == names[0]
    chosen = {"net.encoder": names[0], "loss": names[2], "transform": "none"}
    values = space.suggest(FixedTrial(chosen))
    assert values == chosen | {"net.reduction": names[1]}
    assert with_values(space.base, values, where="p.yaml").parts == {
        "net.encoder": names[0],
        "net.reduction": names[1],
        "loss": names[2],
    }


@pytest.mark.parametrize(
    "profile", ["params.yaml", "profiles/smoke/params.yaml", "profiles/paper/params.yaml"]
)
@pytest.mark.parametrize("task", ["tile", "fusion"])
def test_spaces_of_the_profiles(repository: Path, profile: str, task: str) -> None:
    section = load_sweep(load_params(repository / profile))
    space = resolve(section.space[task], section.model.by_task[task], profile, "sweep.space")
    assert set(space.ranges["net.encoder"].choices or ()) <= set(ENCODERS)
    assert set(space.ranges["net.reduction"].choices or ()) <= set(REDUCTIONS)
    assert "optimizer.learning_rate" in space.ranges


def test_layouts_have_encoders_and_settings_of_their_own(repository: Path) -> None:
    section = load_sweep(load_params(repository / "params.yaml"))
    ranges, model = section.space["layout"], section.model.by_task["layout"]
    space = resolve(ranges, model, "params.yaml", "sweep.space")
    assert space.of_the_model()["net.encoder"] == "graphsage"
    with pytest.raises(ParamsError, match="unknown choice 'gta'"):
        resolve({"net.encoder": Range(choices=("gta",))}, model, "params.yaml", "sweep.space")
    with pytest.raises(ParamsError, match="no hyper-parameter"):
        resolve({"net.residual_of": Range(choices=(1,))}, model, "params.yaml", "sweep.space")


RANGES: dict[str, Any] = {
    "net.encoder": {"choices": ["none", "graphsage", "gat"]},
    "net.gat_heads": {"choices": [2, 4], "when": {"net.encoder": ["gat"]}},
    "net.max_neighbors": {"low": 10, "high": 20, "when": {"net.encoder": ["graphsage"]}},
    "net.columns": {"choices": [["mean", "max"], ["sum"]]},
    "net.biases": {"choices": [False, True]},
    "optimizer.gradient_clip_norm": {"choices": [None, 2]},
    "loss": {"choices": ["hinge"]},
}


def test_the_model_is_a_point_of_the_space() -> None:
    model = TrainSpec()
    clipping = model.optimizer.gradient_clip_norm
    space = space_of({**RANGES, "optimizer.gradient_clip_norm": {"choices": [None, clipping]}})
    first = space.of_the_model()
    assert first == {
        "net.encoder": "graphsage",
        "net.max_neighbors": 20,
        "net.columns": "mean+max",
        "net.biases": False,
        "optimizer.gradient_clip_norm": clipping,
    }
    # Drawn with these values, a trial is the model.
    values = space.suggest(FixedTrial(first))
    assert with_values(model, values, where="p.yaml") == model


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("net.hidden", {"choices": [8, 16]}),
        ("net.max_neighbors", {"low": 21, "high": 30}),
    ],
)
def test_a_model_outside_of_the_space_is_no_point_of_it(name: str, values: dict[str, Any]) -> None:
    assert space_of({"loss": {"choices": ["hinge", "logistic"]}, name: values}).of_the_model() == {}


def test_true_is_no_number() -> None:
    assert not Range(choices=(1, 0)).has(True)
    assert Range(choices=(1, 0)).has(1.0)
    assert not Range(low=0, high=2).has("1")
