"""Makes the data of the suite from the corpus, by stages of costbench, as Parquet that anyone can open."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pandas as pd
import pyarrow as pa
from ruamel.yaml import YAML

from costbench.artifacts import seal, write_json, write_text
from costbench.datasets.splits import FOLDS, ProgramInfo
from costbench.errors import DataError
from costbench.experiments.parameter_file import load_params, load_sections
from costbench.experiments.stages import features, generate
from costbench.experiments.stages.split import SplitParams, make_splits
from costbench.experiments.workspace import Workspace, load_workspace
from costbench.hardware.calibration import load_ensemble
from costbench.installation import installed_files
from costbench.programs.manifest import load_manifest
from costbench.rng import stream
from costbench.target import Target, load_target
from costbench_suite import VERSION
from costbench_suite.croissant import describe, write_croissant
from costbench_suite.program_tables import digest_table, table_writers
from costbench_suite.readme import write_readme
from costbench_suite.task_data import FACTS_FILE, PROGRAMS, SPLITS, DataFacts
from costbench_suite.tasks import CHIP, TASKS, SuiteTask

PROFILE = "profiles/suite/params.yaml"
"""Parameter file of the suite's data, among the files of a project."""
_MADE_BY = "costbench suite data"
_DATA_SECTIONS = ("run", "generate", "split", "features")


@dataclass(frozen=True)
class MadeTask:
    """The data of a task that was written.

    Attributes:
        task: the task.
        folder: its folder.
        digests: digest of the values of each table, by name of the table.
        size: bytes of all files.
    """

    task: SuiteTask
    folder: Path
    digests: dict[str, str]
    size: int


def make_data(
    out: Path,
    tasks: Sequence[str],
    work: Path,
    progress: Callable[[str], None],
    jobs: int = 2,
    fresh: int = 0,
    programs: Sequence[str] = (),
) -> tuple[MadeTask, ...]:
    """Writes the data of some tasks, and returns what was written.

    Args:
        out: folder; each task has a folder of its own in it.
        tasks: names of tasks.
        work: folder of shards and features, which are kept for other tasks and later runs.
        progress: function that is told what is being made.
        jobs: number of processes.
        fresh: seed of other decisions on another machine of the chip's ensemble; 0 for the suite's own.
        programs: programs that the data is of, for trying things out; empty for all, which is the suite.

    Raises:
        CostbenchError: for a corpus that cannot be used, or files that cannot be written.
    """
    params = _parameter_file(work, tasks, jobs, fresh, programs)
    for stage in (generate, features):
        progress(f"stage {stage.__name__.rpartition('.')[2]}")
        stage.run(params)
    profile = load_params(params)
    workspace = load_workspace(profile)
    made = []
    for name in tasks:
        progress(f"writing {name}")
        made.append(_write_task(out / name, TASKS[name], workspace, fresh))
    return tuple(made)


def _parameter_file(work: Path, tasks: Sequence[str], jobs: int, fresh: int, programs: Sequence[str]) -> Path:
    """Writes the parameters of the suite for these tasks and this folder, and returns the file."""
    files = installed_files()
    sections = load_sections(files[PROFILE])
    sections = {name: dict(sections[name]) for name in _DATA_SECTIONS}
    path, corpus = work / "params.yaml", files["data/programs/manifest.json"].parent
    sections["run"] |= {"root": ".", "params": path.name, "out": ".", "reports": "reports", "jobs": jobs}
    sections["run"]["programs"] = str(corpus.resolve())
    generated = sections["generate"]
    generated["programs"] = list(programs)
    generated["tasks"] = sections["features"]["tasks"] = list(tasks)
    if fresh:
        chip = work / f"{CHIP}_fresh{fresh}.yaml"
        _write_yaml(chip, asdict(_fresh_machine(chip.stem, fresh)))
        generated["chips"] = sections["features"]["chips"] = [str(chip.resolve())]
        for name in TASKS:
            generated[name] = {**generated[name], "seed": fresh}
    _write_yaml(path, sections)
    return path


def _fresh_machine(name: str, seed: int) -> Target:
    """Returns a machine of the chip's ensemble, drawn by a seed, under a name of its own."""
    machines = load_ensemble(load_target(CHIP))
    number = int(stream(seed, "suite", "fresh machine").integers(len(machines)))
    return replace(machines[number], name=name)


def _write_yaml(path: Path, content: object) -> None:
    text = io.StringIO()
    YAML(typ="safe").dump(content, text)
    write_text(path, text.getvalue())


def _write_task(folder: Path, task: SuiteTask, workspace: Workspace, fresh: int) -> MadeTask:
    features = workspace.stage("features")
    chip = f"{CHIP}_fresh{fresh}" if fresh else CHIP
    names = _programs_with_samples(features / task.name / chip)
    sets = _sets(workspace)
    tested_in = {program: fold for fold, parts in sets.items() for program in parts["test"]}
    applications = {entry.name: entry.application for entry in load_manifest(workspace.programs)}
    with table_writers(folder, (PROGRAMS, SPLITS, *task.tables)) as writers:
        writers[PROGRAMS].write(
            pa.table(
                {
                    "program": names,
                    "application": [applications[name] for name in names],
                    "fold": pa.array([tested_in[name] for name in names], pa.int32()),
                }
            )
        )
        rows = [
            (fold, part, name)
            for fold, parts in sets.items()
            for part, members in parts.items()
            for name in members
            if name in names
        ]
        writers[SPLITS].write(pa.Table.from_pandas(pd.DataFrame(rows, columns=["fold", "set", "program"])))
        for name in names:
            parts = list(task.program_tables(features, chip, name))
            for table in task.tables:
                writers[table].write(pa.concat_tables([part[table] for part in parts]))
    digests = {table: digest_table(folder / f"{table}.parquet") for table in (PROGRAMS, SPLITS, *task.tables)}
    described = describe(folder, task)
    write_readme(folder, task, described, digests)
    write_croissant(folder, task, described)
    write_json(folder / FACTS_FILE, asdict(DataFacts(VERSION, task.name, fresh, digests)))
    seal(folder, _MADE_BY)
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    return MadeTask(task, folder, digests, size)


def _programs_with_samples(folder: Path) -> list[str]:
    names = sorted({path.stem for path in folder.rglob("*.arrow")})
    if not names:
        raise DataError("no samples", where=folder, expected="feature shards of the corpus")
    return names


def _sets(workspace: Workspace) -> dict[int, dict[str, tuple[str, ...]]]:
    """Returns the programs of each fold by set. Folds are of the whole corpus, whichever tasks are made."""
    section = workspace.params.section("split", SplitParams)
    corpus = tuple(
        ProgramInfo(entry.name, entry.application, entry.builder)
        for entry in load_manifest(workspace.programs)
    )
    splits = make_splits(section, FOLDS, corpus, workspace.params.path)
    return {
        number: {"train": fold.train, "validation": fold.validation, "test": fold.test}
        for number, fold in enumerate(splits, start=1)
    }
