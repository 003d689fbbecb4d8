"""Which backend is chosen: flags before the environment, the environment before the parameter file."""

from __future__ import annotations

from pathlib import Path

import pytest

from costbench.errors import ParamsError
from costbench.execution.backend import NO_FLAGS, Backend, BackendFlags

FOLDER = Path("out")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Without variables of the caller's own."""
    for name in ("COSTBENCH_BACKEND", "COSTBENCH_SCHEDULER", "COSTBENCH_JOBS"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def test_without_flags_and_environment_processes_of_this_machine_work() -> None:
    assert NO_FLAGS.resolve(4, FOLDER) == Backend("loky", 4, "", FOLDER)


def test_the_environment_wins_over_the_parameter_file(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("COSTBENCH_JOBS", "3")
    assert NO_FLAGS.resolve(4, FOLDER) == Backend("loky", 3, "", FOLDER)
    environment.setenv("COSTBENCH_SCHEDULER", "tcp://a:1")
    assert NO_FLAGS.resolve(4, FOLDER) == Backend("dask", 3, "tcp://a:1", FOLDER)
    environment.setenv("COSTBENCH_BACKEND", "loky")
    assert NO_FLAGS.resolve(4, FOLDER) == Backend("loky", 3, "", FOLDER)


def test_flags_win_over_the_environment(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("COSTBENCH_SCHEDULER", "tcp://a:1")
    environment.setenv("COSTBENCH_JOBS", "3")
    assert BackendFlags(jobs=2).resolve(4, FOLDER) == Backend("dask", 2, "tcp://a:1", FOLDER)
    assert BackendFlags(scheduler="tcp://b:2").resolve(4, FOLDER).scheduler == "tcp://b:2"
    assert BackendFlags(backend="loky").resolve(4, FOLDER) == Backend("loky", 3, "", FOLDER)
    environment.setenv("COSTBENCH_BACKEND", "loky")
    assert BackendFlags(scheduler="tcp://b:2").resolve(4, FOLDER).kind == "dask"


@pytest.mark.parametrize(
    ("flags", "variables", "message"),
    [
        (BackendFlags(backend="ray"), {}, "backend is 'ray', must be loky or dask"),
        (BackendFlags(backend="dask"), {}, "scheduler is empty"),
        (BackendFlags(jobs=0), {}, "jobs is 0, must be at least 1"),
        (NO_FLAGS, {"COSTBENCH_BACKEND": "ray"}, "backend is 'ray'"),
        (NO_FLAGS, {"COSTBENCH_JOBS": "two"}, "COSTBENCH_JOBS: is 'two'"),
    ],
)
def test_mistakes_are_one_line(
    environment: pytest.MonkeyPatch, flags: BackendFlags, variables: dict[str, str], message: str
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    with pytest.raises(ParamsError, match=message):
        flags.resolve(2, FOLDER)
