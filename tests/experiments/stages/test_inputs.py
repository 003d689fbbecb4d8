"""What stages follow from, as files that DVC compares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from costbench.artifacts import read_json
from costbench.experiments.parameter_file import load_sections
from costbench.experiments.stages import inputs
from costbench.experiments.stages.inputs import EACH_EXPERIMENT, STAGES, parameters

SMOKE = Path("profiles/smoke/params.yaml")


def changed(sections: dict[str, Any], *path: str) -> dict[str, Any]:
    """A copy with another value at a path."""
    name, *rest = path
    return {**sections, name: changed(sections.get(name, {}), *rest) if rest else "another value"}


def notes(sections: dict[str, Any]) -> dict[str, dict[str, object]]:
    """Parameters by stage, of a stage that is done for each experiment by `stage/experiment`."""
    found = {stage: parameters(stage, sections) for stage in STAGES if stage not in EACH_EXPERIMENT}
    for stage in EACH_EXPERIMENT:
        found |= {
            f"{stage}/{name}": parameters(stage, sections, name) for name in ("main-tile", "main-fusion")
        }
    return found


@pytest.mark.parametrize(
    ("path", "stages"),
    [
        (("run", "jobs"), set()),
        (("generate", "tile"), {"generate"}),
        (("split", "names"), {"split"}),
        (("features", "chips"), {"features"}),
        (("sweep", "trials"), {"sweep"}),
        (("train", "tile", "epochs"), {"sweep", "train/main-tile", "report"}),
        (("train", "fusion", "epochs"), {"sweep", "train/main-fusion", "report"}),
        (("baselines", "seed"), {"train/main-tile", "train/main-fusion"}),
        (("baselines", "tile"), {"train/main-tile"}),
        (("evaluate", "models"), {"evaluate/main-tile", "evaluate/main-fusion"}),
        (("autotune", "seed"), {"autotune"}),
        (("report", "seed"), {"report"}),
        (
            ("experiments", "main-tile", "seeds"),
            {"train/main-tile", "evaluate/main-tile", "autotune", "report"},
        ),
        (("experiments", "ablations-tile", "seeds"), {"report"}),
    ],
)
def test_a_parameter_is_noted_for_the_stages_that_read_it(
    repository: Path, path: tuple[str, ...], stages: set[str]
) -> None:
    sections = load_sections(repository / SMOKE)
    before, after = notes(sections), notes(changed(sections, *path))
    assert {name for name in before if before[name] != after[name]} == stages


def test_every_stage_has_a_note_of_its_code(repository: Path, tmp_path: Path) -> None:
    sections = load_sections(repository / SMOKE)
    params = tmp_path / "params.yaml"
    params.write_text(json.dumps(sections | {"run": sections["run"] | {"root": "."}}), "utf-8")
    inputs.run(params)
    folder = tmp_path / "out" / "smoke" / "inputs"
    names = {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.json")}
    assert {name for name in names if "/" not in name} == {*STAGES, "schedules"} - set(EACH_EXPERIMENT)
    experiments: Any = load_sections(params)["experiments"]
    assert {name for name in names if "/" in name} == {
        f"{stage}/{name}" for stage in EACH_EXPERIMENT for name in experiments
    }
    for name in names:
        note: Any = read_json(folder / f"{name}.json")
        stage = name.split("/")[0]
        elsewhere = {"report": "costbench.reports.stage", "schedules": "costbench_schedules.stage"}
        assert elsewhere.get(stage, f"costbench.experiments.stages.{stage}") in note["modules"]
        assert note["libraries"]["numpy"]
        assert "costbench.execution.workers" not in note["modules"]
        # Sections of other packages are code of the report, their tables data.
        is_report = stage == "report"
        assert ("costbench_schedules.reports.page" in note["modules"]) == is_report
        assert ("costbench_schedules/reports/tables.yaml" in note["data"]) == is_report


def test_samples_follow_from_what_describes_a_machine(repository: Path, tmp_path: Path) -> None:
    """A chip's own file and the records of a machine, which dvc.yaml cannot name."""
    sections = load_sections(repository / SMOKE)
    chip, records = tmp_path / "mine.yaml", tmp_path / "records" / "programs.parquet"
    chip.write_text((repository / "src/costbench/chips/tpu_v2.yaml").read_text("utf-8"), "utf-8")
    records.parent.mkdir()
    records.write_bytes(b"1")
    machines = {"chips": [str(chip)], "recorded": {"machine": "records"}}
    params = tmp_path / "params.yaml"
    changed_sections = {"run": sections["run"] | {"root": "."}, "generate": sections["generate"] | machines}
    params.write_text(json.dumps(sections | changed_sections), "utf-8")
    found = []
    for change in (None, records, chip):
        if change is not None:
            change.write_bytes(change.read_bytes() + b"\n")
        inputs.run(params)
        note: Any = read_json(tmp_path / "out" / "smoke" / "inputs" / "generate.json")
        found.append(note["machines"])
    first, second, third = found
    (name,) = {*first} - {"machine"}
    assert [first[name] == second[name], second[name] == third[name]] == [True, False]
    assert [first["machine"] == second["machine"], second["machine"] == third["machine"]] == [False, True]


@pytest.mark.parametrize("models", [None, 5, "main-tile", {}, []])
def test_models_that_are_no_list_are_an_error_of_the_stage_alone(models: object) -> None:
    sections = {"autotune": {"tile": {"models": models}}, "experiments": {}}
    assert parameters("autotune", sections)["autotune"] == sections["autotune"]
