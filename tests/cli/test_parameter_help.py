"""What is said of the keys of parameter files, which comes from docstrings and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from costbench.cli.app import app
from costbench.cli.parameter_help import SECTIONS, find_key, keys, with_comments
from costbench.errors import ParamsError
from costbench.experiments.parameter_file import load_sections

RUN_KEYS = ("name", "root", "reports", "jobs", "programs")


def test_the_comments_of_the_default_profile_are_the_docstrings(repository: Path) -> None:
    """`costbench params --comment --renew` writes them."""
    for name in ("params.yaml", "schedules.yaml"):
        text = (repository / name).read_text("utf-8")
        assert with_comments(text, renew=True) == text
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
    # Names of the user's are those of a file.
    named = CliRunner().invoke(app, ["params", "schedules.tables.searches.mine.targets", "--params", smoke])
    assert named.output.startswith("schedules.tables.searches.mine.targets\n")
    assert find_key("schedules.tables.searches.mine").accepts.startswith("a mapping with workloads")
    with pytest.raises(ParamsError, match=r"searches\.NAME\.targets"):
        find_key("schedules.tables.searches.mine.target")


def test_an_unknown_key_is_one_error() -> None:
    with pytest.raises(ParamsError, match=r"train.tile.bach: no such key \(expected train.tile.seed, "):
        find_key("train.tile.bach")


def test_comments_stand_beside_keys_and_nowhere_in_values(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(
        "run:  # mine\n"
        "  name: 'a  # b'\n"
        '  root: "a  # b"  # mine, too\n'
        "  out: >\n"
        "    a\n"
        "  reports: {a: 1,\n"
        "    b: 2}\n"
        "  jobs: &jobs 2\n"
        "  programs: *jobs\n"
        "# alone\n"
        "other: 1\n"
    )
    assert CliRunner().invoke(app, ["params", "--comment", "--params", str(path)]).exit_code == 0
    meanings = {name: find_key(f"run.{name}").meaning.rstrip(".") for name in RUN_KEYS}
    commented = path.read_text().splitlines()
    assert commented == [
        "run:  # mine",
        f"  name: 'a  # b'  # {meanings['name']}",
        '  root: "a  # b"  # mine, too',
        "  out: >",
        "    a",
        f"  reports: {{a: 1,  # {meanings['reports']}",
        "    b: 2}",
        f"  jobs: &jobs 2  # {meanings['jobs']}",
        f"  programs: *jobs  # {meanings['programs']}",
        "# alone",
        "other: 1",
    ]
    assert CliRunner().invoke(app, ["params", "--renew", "--params", str(path)]).exit_code == 0
    commented[0] = "run:  # the folders of a profile"
    commented[2] = f'  root: "a  # b"  # {meanings["root"]}'
    assert path.read_text().splitlines() == commented


def test_a_file_that_cannot_be_commented_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    for content in (b"run: \xff\n", b"run: [\n", b""):
        path.write_bytes(content)
        done = CliRunner().invoke(app, ["params", "--comment", "--params", str(path)])
        assert isinstance(done.exception, ParamsError)
        assert str(path) in str(done.exception)
        assert path.read_bytes() == content


def test_a_key_is_explained_without_the_code_of_other_sections() -> None:
    """Sweeps need torch and optuna, the report pandas, which take seconds."""
    code = (
        "import sys; from costbench.cli.parameter_help import find_key; find_key('train.tile.net.encoder'); "
        "sys.exit(', '.join({'torch', 'optuna', 'pandas'} & set(sys.modules)) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
