"""Runs of days: what `tools/packed.sh` calls, in which order, and that experiments of the Makefile exist."""

from __future__ import annotations

import re
import subprocess
from itertools import product
from pathlib import Path

import pytest

from costbench.experiments.grid.cells import experiment_names
from costbench.experiments.parameter_file import load_params

REPOSITORY = Path(__file__).parents[2]
ARCHIVE = "data/results/headline"
SAMPLES = [f"{stage} --params profiles/headline/params.yaml" for stage in ("generate", "split", "features")]
STUB = """#!/bin/sh
case "$*" in
  params*) echo "value: [0, 1]"; exit;;
  "results list"*) echo "missing: experiments/$MISSING"; exit;;
esac
echo "[$COSTBENCH_ARCHIVE] $*" >> calls
case "$*" in "$FAILS"*) exit 3;; esac
"""
"""In place of the command: experiments have two seeds; notes how it was called, fails where told to."""


def _run(folder: Path, *experiments: str, **variables: str) -> tuple[int, list[str]]:
    """Exit code of the script, and how it called `costbench`."""
    command = folder / "costbench"
    command.write_text(STUB)
    command.chmod(0o755)
    missing = "two, 5 of 9 cells of experiments/one"
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "FAILS": "none", "MISSING": missing, **variables}
    script = ["bash", REPOSITORY / "tools" / "packed.sh", "headline", *experiments]
    code = subprocess.run(script, cwd=folder, env=environment, check=False).returncode
    return code, (folder / "calls").read_text().splitlines()


def _calls(archive: str, *experiments: str, packed: str = ARCHIVE) -> list[str]:
    params = "--params profiles/headline/params.yaml"
    calls = list(SAMPLES)
    for name, seeds in product(experiments, (1, 2)):
        calls += [f"{stage} --experiment {name} --seeds {seeds} {params}" for stage in ("train", "evaluate")]
        calls += [f"results pack --compact --experiment {name} {packed} {params}"]
    return [f"[{archive}] {call}" for call in calls]


def test_each_seed_of_an_experiment_is_packed_once_it_is_evaluated(tmp_path: Path) -> None:
    """Others in the output folder may be older than those of the archive."""
    assert _run(tmp_path, "one", "two") == (0, _calls(ARCHIVE, "one", "two"))
    (tmp_path / "calls").unlink()
    elsewhere = _calls("other", "one", "two", packed="other")
    assert _run(tmp_path, "one", "two", ARCHIVE="other") == (0, elsewhere)


def test_what_the_archive_has_whole_is_gone_through_once(tmp_path: Path) -> None:
    """With all seeds: archives that do not say what cells follow from are current as a whole."""
    every = _calls(ARCHIVE, "one", "two")
    number = len(SAMPLES)
    assert _run(tmp_path, "one", "two", MISSING="two") == (0, every[:number] + every[number + 3 :])


def test_the_first_seed_can_be_computed_alone(tmp_path: Path) -> None:
    assert _run(tmp_path, "one", SEEDS="1") == (0, _calls(ARCHIVE, "one")[: len(SAMPLES) + 3])


def test_a_fresh_run_looks_into_no_archive(tmp_path: Path) -> None:
    """Whichever the environment names."""
    variables = {"FRESH": "1", "COSTBENCH_ARCHIVE": "mine"}
    assert _run(tmp_path, "one", **variables) == (0, _calls("", "one"))


@pytest.mark.parametrize(
    ("fails", "number"),
    [("split", 2), ("evaluate --experiment one", 5), ("train --experiment one --seeds 2", 7)],
)
def test_what_fails_ends_the_run_and_is_not_packed(fails: str, number: int, tmp_path: Path) -> None:
    assert _run(tmp_path, "one", "two", FAILS=fails) == (3, _calls(ARCHIVE, "one", "two")[:number])


@pytest.mark.parametrize("profile", ["headline", "xla_cpu"])
def test_the_makefile_names_all_experiments_of_a_profile(profile: str) -> None:
    """A wrong name would be found after hours."""
    makefile = (REPOSITORY / "Makefile").read_text("utf-8").replace("\\\n", " ")
    (listed,) = re.findall(rf"packed\.sh {profile} (.*)", makefile)
    names = subprocess.run(["bash", "-c", f"echo {listed}"], capture_output=True, text=True, check=True)
    params = load_params(REPOSITORY / "profiles" / profile / "params.yaml")
    assert sorted(names.stdout.split()) == sorted(experiment_names(params))
