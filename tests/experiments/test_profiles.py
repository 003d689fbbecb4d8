"""Sizes of profiles, and `params.yaml` with those of another one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from costbench.errors import ParamsError
from costbench.experiments.grid.cells import experiment_names
from costbench.experiments.grid.experiment import load_experiment
from costbench.experiments.parameter_file import load_params, load_sections
from costbench.experiments.profiles import profiles, set_profile, sizes, write_whole

NAMES = tuple(
    f"{folder}params.yaml"
    for folder in ("", *(f"profiles/{name}/" for name in ("smoke", "evidence", "paper")))
)


@pytest.fixture
def root(repository: Path, tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes((repository / name).read_bytes())
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_sizes_are_those_of_the_cells(repository: Path, name: str) -> None:
    found = sizes(repository / name)
    experiments = [
        load_experiment(load_params(repository / name), one)
        for one in experiment_names(load_params(repository / name))
    ]
    specs = [one.variants[cell.variant].spec for one in experiments for cell in one.cells]
    assert found.runs == len(specs)
    assert found.total_steps == sum(spec.epochs * spec.steps_per_epoch for spec in specs)
    assert found.steps == max(spec.epochs * spec.steps_per_epoch for spec in specs)


def test_the_papers_sizes(repository: Path) -> None:
    found = sizes(repository / "profiles/paper/params.yaml")
    assert found.hidden == (32, 1024)
    assert 3_000_000 <= found.steps <= 5_000_000


def test_all_but_where_it_works_is_the_profiles(root: Path) -> None:
    before: Any = load_sections(root / "params.yaml")
    set_profile(root, "paper")
    now: Any = load_sections(root / "params.yaml")
    paper: Any = load_sections(root / "profiles/paper/params.yaml")
    assert now.pop("run") == before["run"] | {"name": "paper"}
    assert now == {name: section for name, section in paper.items() if name != "run"}


def test_what_was_changed_by_hand_comes_back(root: Path) -> None:
    text = (root / "params.yaml").read_text().replace("jobs: 2", "jobs: 5  # mine")
    (root / "params.yaml").write_text(text)
    for name in ("paper", "smoke", "smoke"):
        set_profile(root, name)
        assert load_sections(root / "params.yaml")["run"]["jobs"] == 5  # type: ignore[index]
    set_profile(root, "laptop")
    assert (root / "params.yaml").read_text() == text


def test_an_unknown_profile_changes_nothing(root: Path) -> None:
    before = (root / "params.yaml").read_bytes()
    with pytest.raises(ParamsError, match=r"no profile 'papers'.*evidence, laptop, paper, smoke"):
        set_profile(root, "papers")
    assert (root / "params.yaml").read_bytes() == before
    assert list(profiles(root)) == ["evidence", "paper", "smoke"]


def test_a_file_without_experiments_is_no_profile(tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text(json.dumps({"run": {"name": "x"}}))
    with pytest.raises(ParamsError, match="is no mapping"):
        sizes(tmp_path / "params.yaml")


@pytest.mark.parametrize(
    ("name", "place", "run"),
    [
        ("paper", "a b/c/paper.yaml", {"root": "../..", "params": "a b/c/paper.yaml"}),
        ("paper", "paper.yaml", {"root": ".", "params": "paper.yaml"}),
        ("laptop", "profiles/mine/params.yaml", {"root": "../..", "params": "profiles/mine/params.yaml"}),
    ],
)
def test_a_profile_that_is_written_elsewhere_works_in_the_same_root(
    root: Path, name: str, place: str, run: dict[str, str]
) -> None:
    write_whole(root, name, root / place)
    source = root / "profiles" / name / "params.yaml" if name != "laptop" else root / "params.yaml"
    written, original = (dict(load_sections(path)) for path in (root / place, source))
    assert written.pop("run") == original.pop("run") | run
    assert written == original
