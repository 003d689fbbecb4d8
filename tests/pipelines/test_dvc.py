"""The graph of stages: each follows from the note that `inputs` writes of it and from the data it reads."""

from __future__ import annotations

import runpy
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from costbench.experiments.parameter_file import load_sections
from costbench.experiments.stages import entry
from costbench.experiments.stages.inputs import EACH_EXPERIMENT, STAGES
from costbench.extensions import STAGES as STAGE_EXTENSIONS
from costbench.extensions import StageExtension, load_extensions
from costbench.params import load_yaml
from tests.pipelines.workplace import stage_module

REPOSITORY = Path(__file__).resolve().parents[2]
PIPELINE: dict[str, Any] = {
    # A stage that is done for each experiment has its fields under `do`.
    name: stage.get("do", stage)
    for name, stage in dict(load_yaml(REPOSITORY / "dvc.yaml")["stages"]).items()  # type: ignore[call-overload]
}
OTHERS = {name: stage for name, stage in PIPELINE.items() if name != "inputs"}
ADDED = load_extensions(STAGE_EXTENSIONS, StageExtension)
"""By installed packages, with sections in files of their own."""


def outs(stage: dict[str, Any]) -> dict[str, dict[str, bool]]:
    """Options of each output."""
    return {
        name: options
        for out in stage["outs"]
        for name, options in (out.items() if isinstance(out, dict) else [(out, {})])
    }


def test_inputs_run_always_and_first() -> None:
    assert next(iter(PIPELINE)) == "inputs"
    assert PIPELINE["inputs"]["always_changed"]
    assert "deps" not in PIPELINE["inputs"]
    assert outs(PIPELINE["inputs"]) == {"${run.out}/inputs": {"cache": False}}


def test_stages_are_those_that_inputs_are_noted_of() -> None:
    assert [name for name in OTHERS if name not in ADDED] == [*STAGES]
    assert {*ADDED} <= {*OTHERS}


@pytest.mark.parametrize("name", OTHERS)
def test_a_stage_depends_on_its_note_and_on_data_alone(name: str) -> None:
    note, *data = OTHERS[name]["deps"]
    assert note == f"${{run.out}}/inputs/{name}" + "/${key}" * (name in EACH_EXPERIMENT) + ".json"
    assert "params" not in OTHERS[name]
    committed = {
        "data/gpu_tuning",
        "data/programs",
        "data/networks",
        "data/results/gpu_tuning",
        "data/results/schedules",
        "data/schedules",
    }
    made = "${run.out}/", "${run.reports}/champions.md"
    assert all(dep.startswith(made) or dep in committed for dep in data)


def test_one_word_in_four_places() -> None:
    sections: Any = load_sections(REPOSITORY / "params.yaml")
    assert {path.stem for path in (REPOSITORY / "pipelines").glob("*.py")} == {*PIPELINE, "collect"}
    assert set(OTHERS) - set(ADDED) <= set(sections)
    for name, stage in PIPELINE.items():
        each = name in EACH_EXPERIMENT
        command = f"python pipelines/{name}.py --params ${{run.params}}"
        assert stage["cmd"] == command + " --experiment ${key}" * each
        folders = [name, "machine/evaluate"] if name == "evaluate" else [name]
        of_git = ["${run.reports}/champions.md"] if name == "register" else []
        in_out = [f"${{run.out}}/{folder}" + "/${key}" * each for folder in folders]
        assert name == "report" or list(outs(stage)) == in_out + of_git


@pytest.mark.pipeline
@pytest.mark.parametrize("name", PIPELINE)
def test_a_script_runs_the_stage_of_its_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And takes `--experiment` where the stage is done for each."""
    calls: list[tuple[object, str, bool]] = []

    def note(run: object, stage: str, is_each: bool) -> None:
        calls.append((getattr(run, "func", run), stage, is_each))  # the function of a `partial`

    monkeypatch.setattr(entry, "stage_main", lambda run, stage, _: note(run, stage, False))
    monkeypatch.setattr(entry, "experiment_main", lambda run, stage, _: note(run, stage, True))
    runpy.run_path(str(REPOSITORY / "pipelines" / f"{name}.py"), run_name="__main__")
    assert calls == [(import_module(stage_module(name)).run, name, name in EACH_EXPERIMENT)]


def test_what_takes_time_is_cached_and_resumed() -> None:
    """But for `split`, which is over in a moment, and what belongs to the machine or to git."""
    options = {name: list(outs(stage).values()) for name, stage in OTHERS.items() if name != "report"}
    assert options.pop("register") == [{"persist": True}, {"cache": False, "persist": True}]
    assert options.pop("split") == [{}]
    assert all(one == {"persist": True} for several in options.values() for one in several)
    ignored = (REPOSITORY / ".dvcignore").read_text("utf-8").splitlines()
    assert not [line for line in ignored if line.startswith("/out")]


@pytest.mark.parametrize(
    "profile", ["params.yaml", "profiles/smoke/params.yaml", "profiles/paper/params.yaml"]
)
def test_autotune_depends_on_the_experiments_whose_models_it_uses(profile: str) -> None:
    sections: Any = load_sections(REPOSITORY / profile)
    models = (name for task in ("tile", "fusion") for name in sections["autotune"][task]["models"])
    assert {model.partition(".")[0] for model in models} <= {*sections["experiments"]}
    # DVC knows no part of a stage's parameters, so the stage comes after all of them.
    assert "${run.out}/train" in OTHERS["autotune"]["deps"]


def test_only_the_corpus_is_frozen() -> None:
    (corpus,) = dict(load_yaml(REPOSITORY / "data" / "dvc.yaml")["stages"]).items()  # type: ignore[call-overload]
    assert (corpus[0], corpus[1]["frozen"]) == ("collect", True)
    assert not [name for name, stage in PIPELINE.items() if stage.get("frozen")]
