"""Parameter files that extend others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from costbench.errors import ParamsError
from costbench.experiments.parameter_file import expand_experiments, load_sections

PROFILES = {"laptop": ".", **{name: f"profiles/{name}" for name in ("smoke", "evidence", "paper")}}


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
    # A profile may take `extends` of another one away.
    assert expand_experiments({"x": {"extends": None, "task": "tile"}}, Path("p.yaml"))["x"] == {
        "task": "tile"
    }


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
