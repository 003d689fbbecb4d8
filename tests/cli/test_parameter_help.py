"""What is said of the keys of parameter files, which comes from docstrings and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from costbench.cli.app import app
from costbench.cli.parameter_help import SECTIONS, find_key, keys, with_comments
from costbench.errors import ParamsError
from costbench.experiments.parameter_file import load_sections


def test_the_comments_of_the_default_profile_are_the_docstrings(repository: Path) -> None:
    """`costbench params --comment` writes them."""
    for name in ("params.yaml", "schedules.yaml"):
        text = (repository / name).read_text("utf-8")
        assert with_comments(text) == text


def test_every_key_has_a_meaning() -> None:
    assert [key.name for key in keys() if not key.meaning] == []


def test_every_section_is_known(repository: Path) -> None:
    assert set(load_sections(repository / "params.yaml")) == {*SECTIONS, "experiments"}


def test_a_key_is_explained(repository: Path) -> None:
    smoke = str(repository / "profiles" / "smoke" / "params.yaml")
    done = CliRunner().invoke(app, ["params", "train.tile.batch.per_epoch", "--params", smoke])
    assert done.output.splitlines() == [
        "train.tile.batch.per_epoch",
        "  batches per epoch.",
        "  unit: -",
        "  type: int",
        "  default: 200",
        f"  value in {smoke}: 60",
    ]
    assert "sweep.heartbeat_s: seconds between" in CliRunner().invoke(app, ["params"]).output


def test_keys_of_experiments_and_units() -> None:
    assert find_key("experiments.main-tile.seeds").default == (0,)
    assert find_key("experiments.main-tile.settings").meaning.startswith("changes to section `train`")
    assert find_key("autotune.fusion.search.model_minutes").unit == "minutes"
    assert find_key("train.tile").accepts.startswith("a mapping with seed, net")


def test_keys_of_another_packages_section_are_explained(repository: Path) -> None:
    smoke = str(repository / "profiles" / "smoke" / "params.yaml")
    shown = CliRunner().invoke(app, ["params", "schedules.tables.trials", "--params", smoke])
    assert shown.output.splitlines()[-2:] == ["  default: 400", f"  value in {smoke}: 32"]
    assert find_key("schedules.tables.searches.NAME.targets").default == ("native",)


def test_an_unknown_key_is_one_error() -> None:
    with pytest.raises(ParamsError, match=r"train.tile.bach: no such key \(expected train.tile.seed, "):
        find_key("train.tile.bach")
