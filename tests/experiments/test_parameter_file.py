"""Parameter files that extend others: what they come to is what was written out in full before."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from costbench.cli.parameter_help import SECTIONS, section_class
from costbench.errors import ParamsError
from costbench.experiments.evaluation.program import EvaluateParams
from costbench.experiments.grid.cells import experiment_names
from costbench.experiments.grid.experiment import load_experiment
from costbench.experiments.parameter_file import expand_experiments, load_params, load_sections
from costbench.experiments.stages.sweep import load_sweep
from costbench_schedules.stage import load_schedules_section

PROFILES = {"laptop": ".", **{name: f"profiles/{name}" for name in ("smoke", "evidence", "paper")}}
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "params.json").read_text("utf-8"))


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


@pytest.mark.parametrize("name", PROFILES)
def test_every_cell_of_a_profile_has_the_settings_that_it_always_had(repository: Path, name: str) -> None:
    """`golden/params.json` was made from parameter files that wrote everything out, one for each profile."""
    path = repository / PROFILES[name] / "params.yaml"
    experiments = [load_experiment(load_params(path), one) for one in experiment_names(load_params(path))]
    found = [
        [one.name, list(one.variants), [cell.name for cell in one.cells], asdict(one)] for one in experiments
    ]
    assert digest(found) == GOLDEN[name]["experiments"]


BASELINES_BY_NAME = (
    *("analytical", "analytical_unscaled", "analytical_constant", "analytical_launch", "analytical_linear"),
    *("iterations", "default_first", "random", "linear", "trees", "trees_analytical"),
    *("measured_again", "regular_machine"),
)
"""What `baselines` among the models stands for, in the order in which files named them."""


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("name", PROFILES)
def test_every_section_of_a_profile_has_the_values_that_it_always_had(
    repository: Path, name: str, section: str
) -> None:
    path = repository / PROFILES[name] / "params.yaml"
    values = (
        load_sweep(load_params(path))
        if section == "sweep"
        else load_params(path).section(section, section_class(section))
    )
    if isinstance(values, EvaluateParams):
        assert set(values.untrained) == set(BASELINES_BY_NAME)
        values = replace(values, models=("learned", *BASELINES_BY_NAME))
    assert digest(asdict(values)) == GOLDEN[name][section]


@pytest.mark.parametrize("name", PROFILES)
def test_searches_for_schedules_of_a_profile_are_those_that_they_always_were(
    repository: Path, name: str
) -> None:
    section = load_schedules_section(repository / PROFILES[name] / "params.yaml")
    for part in ("tables", "networks", "estimated"):
        assert digest(asdict(getattr(section, part))) == GOLDEN[name][part]


def test_parameter_files_are_short(repository: Path) -> None:
    names = ("params.yaml", "schedules.yaml")
    files = [repository / folder / name for folder in PROFILES.values() for name in names]
    assert sum(len(path.read_text("utf-8").splitlines()) for path in files) <= 1200


def test_a_profile_has_the_experiments_that_it_names(tmp_path: Path) -> None:
    entry = {"task": "tile", "variants": {"main": {}, "wide": {"net": {"hidden": 64}}}}
    default = {
        "run": {"name": "laptop"},
        "train": {"a": {"b": 1, "c": 2}},
        "experiments": {"x": entry, "y": entry},
    }
    own = {
        "extends": "laptop",
        "run": {"name": "mine", "root": "../.."},
        "train": {"a": {"b": 3}},
        "experiments": {"y": {"variants": {"main": None, "wide": {"loss": "mse"}}}, "x": {}},
    }
    path = tmp_path / "profiles" / "mine" / "params.yaml"
    path.parent.mkdir(parents=True)
    (tmp_path / "params.yaml").write_text(json.dumps(default))
    path.write_text(json.dumps(own))
    sections = load_sections(path)
    assert sections["train"] == {"a": {"b": 3, "c": 2}}
    assert list(sections["experiments"]) == ["y", "x"]
    assert sections["experiments"]["x"] == entry
    assert sections["experiments"]["y"]["variants"] == {"wide": {"net": {"hidden": 64}, "loss": "mse"}}
    path.write_text(json.dumps(own | {"extends": "mine"}))
    with pytest.raises(ParamsError, match="extends: extends itself"):
        load_sections(path)
    path.write_text(json.dumps(own | {"extends": "desktop"}))
    with pytest.raises(ParamsError, match="extends: no profile 'desktop'"):
        load_sections(path)


def expanded(variants: dict[str, Any], **more: Any) -> dict[str, Any]:
    entries = {"x": {"variants": variants}, **more}
    found: dict[str, Any] = expand_experiments(entries, Path("p.yaml"))["x"]["variants"]
    return found


def test_a_product_has_a_variant_for_each_combination() -> None:
    product = {
        "net.encoder": ["none", "gat"],
        "optimizer.learning_rate": [0.0003, 0.01],
        "loss": "mse",
    }
    found = expanded({"first": {}, "{encoder}-{learning_rate}": product, "gat-1e-2": {"loss": "hinge"}})
    assert list(found) == ["first", "none-3e-4", "none-1e-2", "gat-3e-4", "gat-1e-2"]
    assert found["none-3e-4"] == {
        "net": {"encoder": "none"},
        "optimizer": {"learning_rate": 0.0003},
        "loss": "mse",
    }
    assert found["gat-1e-2"]["loss"] == "hinge"


def test_a_factor_may_be_changes_by_label_and_a_variant_left_out() -> None:
    product = {"size": {"s": {"net": {"hidden": 8}}, "l": {"extends": "y.large"}}, "loss": ["mse", "huber"]}
    large = {"net": {"hidden": 64}}
    found = expanded({"{size}-{loss}": product, "s-mse": None}, y={"variants": {"large": large}})
    assert list(found) == ["s-huber", "l-mse", "l-huber"]
    assert found["l-mse"] == {"net": {"hidden": 64}, "loss": "mse"}


def test_an_entry_and_settings_may_extend_others() -> None:
    entries = {
        "x": {"extends": "y", "seeds": [1], "variants": {"b": {"c": 2}}},
        "y": {"task": "tile", "seeds": [0], "variants": {"a": {"c": 1}}},
        "z": {"settings": {"extends": "y.a", "d": 3}},
    }
    found = expand_experiments(entries, Path("p.yaml"))
    assert found["x"] == {"task": "tile", "seeds": [1], "variants": {"a": {"c": 1}, "b": {"c": 2}}}
    assert found["z"]["settings"] == {"c": 1, "d": 3}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"x": {"extends": "y"}}, "p.yaml: experiments.x.extends: no experiment 'y'"),
        ({"x": {"extends": "y"}, "y": {"extends": "x"}}, "extends: extends itself"),
        (
            {"x": {"variants": {"a": {"extends": "x.b"}}}},
            "experiments.x.variants.a.extends: 'x.b' is no variant",
        ),
        ({"x": {"variants": {"{a}": {"b": [1]}}}}, "experiments.x.variants.{a}: no values for {a}"),
        ({"x": {"variants": {"{a}": {"a": 1}}}}, "experiments.x.variants.{a}: no values for {a}"),
    ],
)
def test_what_cannot_be_extended_is_one_error(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(ParamsError) as caught:
        expand_experiments(entries, Path("p.yaml"))
    assert message in str(caught.value)
