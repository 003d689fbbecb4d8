"""Makes the data of the suite from corpus and records, by stages of costbench, as Parquet files."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pyarrow as pa
from ruamel.yaml import YAML

from costbench.artifacts import seal, write_json, write_text
from costbench.datasets.machine_records import MACHINE
from costbench.datasets.splits import FOLDS, ProgramInfo
from costbench.errors import DataError
from costbench.experiments.parameter_file import load_params, load_sections
from costbench.experiments.stages import features, generate
from costbench.experiments.stages.split import SplitParams, make_splits
from costbench.experiments.workspace import Workspace, load_workspace
from costbench.features.feature_shards import sample_paths
from costbench.hardware.calibration import load_ensemble
from costbench.installation import installed_files
from costbench.programs.manifest import load_manifest
from costbench.rng import stream
from costbench.target import Target, load_target
from costbench_suite.croissant import describe, write_croissant
from costbench_suite.kernel_samples import fusion_tables, recorded_tables, tile_tables
from costbench_suite.layout_samples import layout_tables
from costbench_suite.program_tables import digest_table, table_writers
from costbench_suite.readme import write_readme
from costbench_suite.samples import Samples, Sets
from costbench_suite.schedule_samples import schedule_samples
from costbench_suite.task_data import FACTS_FILE, PROGRAMS, SPLITS, DataFacts
from costbench_suite.tasks import CHIP, TASKS, VERSION, SuiteTask
from costbench_suite.tuning_samples import tuning_samples

_MADE_BY = "costbench suite data"
_DATA_SECTIONS = ("run", "generate", "split", "features")


@dataclass(frozen=True)
class ShardSource:
    """How the data of a task follow from shards of costbench's stages.

    Attributes:
        profile: parameter file among the files of a project.
        task: name of the stages' task.
        chip: chip of the shards.
        tables: function from a feature shard, and the output folder of the stage `generate`, to the tables
            of its program.
    """

    profile: str
    task: str
    chip: str
    tables: Callable[[Path, Path], Mapping[str, pa.Table]]

    def work(self, folder: Path) -> Path:
        """Returns where its stages work, in a folder of intermediate results."""
        return folder if self.profile == _SIMULATED else folder / Path(self.profile).stem

    def measured_on(self, fresh: int) -> str:
        """Returns the name of its chip, or of the machine of a fresh test set."""
        return f"{self.chip}_fresh{fresh}" if fresh else self.chip


_SIMULATED, _RECORDED = "profiles/suite/params.yaml", "profiles/suite/xla_cpu.yaml"
SHARD_SOURCES: Mapping[str, ShardSource] = {
    "tile": ShardSource(_SIMULATED, "tile", CHIP, lambda path, _: tile_tables(path)),
    "fusion": ShardSource(_SIMULATED, "fusion", CHIP, lambda path, _: fusion_tables(path)),
    "layout": ShardSource(_SIMULATED, "layout", CHIP, lambda path, _: layout_tables(path)),
    "fusion_xla_cpu": ShardSource(_RECORDED, "fusion", "xla_cpu", recorded_tables),
}
_FROM_TABLES: Mapping[str, Callable[[], Samples]] = {"gpu": tuning_samples, "schedules": schedule_samples}
"""Functions that return the samples of tasks whose measurements come with costbench, by folder."""


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
    sources = {name: SHARD_SOURCES[name] for name in tasks if name in SHARD_SOURCES}
    made: list[MadeTask] = []
    for profile in dict.fromkeys(source.profile for source in sources.values()):
        of_profile = {name: source for name, source in sources.items() if source.profile == profile}
        folder = next(iter(of_profile.values())).work(work)
        params = _parameter_file(
            profile, folder, [s.task for s in of_profile.values()], jobs, fresh, programs
        )
        for stage in (generate, features):
            progress(f"stage {stage.__name__.rpartition('.')[2]} of {', '.join(of_profile)}")
            stage.run(params)
        workspace = load_workspace(load_params(params))
        for name, source in of_profile.items():
            progress(f"writing {name}")
            made.append(_write_task(out / name, TASKS[name], _of_shards(source, workspace, fresh), fresh))
    for folder_name in dict.fromkeys(TASKS[name].folder for name in tasks if name not in SHARD_SOURCES):
        progress(f"writing {folder_name}")
        samples = _FROM_TABLES[folder_name]()
        made.append(_write_task(out / folder_name, TASKS[folder_name], samples, 0))
    return tuple(made)


def _parameter_file(
    profile: str, work: Path, tasks: Sequence[str], jobs: int, fresh: int, programs: Sequence[str]
) -> Path:
    """Writes the parameters of a profile for these tasks and this folder, and returns the file."""
    files = installed_files()
    sections = load_sections(files[profile])
    sections = {name: dict(sections[name]) for name in _DATA_SECTIONS}
    path = work / "params.yaml"
    corpus = files[f"{sections['run']['programs']}/manifest.json"].parent
    sections["run"] |= {"root": ".", "params": path.name, "out": ".", "reports": "reports", "jobs": jobs}
    sections["run"]["programs"] = str(corpus.resolve())
    generated = sections["generate"]
    recorded = generated.get("recorded") or {}
    generated["recorded"] = {
        chip: str(files[f"{folder}/{MACHINE}"].parent.resolve()) for chip, folder in recorded.items()
    }
    generated["programs"] = list(programs)
    generated["tasks"] = sections["features"]["tasks"] = list(tasks)
    if fresh:
        chip = work / f"{CHIP}_fresh{fresh}.yaml"
        _write_yaml(chip, asdict(_fresh_machine(chip.stem, fresh)))
        generated["chips"] = sections["features"]["chips"] = [str(chip.resolve())]
        for name in tasks:
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


def _of_shards(source: ShardSource, workspace: Workspace, fresh: int) -> Samples:
    folder = workspace.stage("features")
    chip = source.measured_on(fresh)
    names = _programs_with_samples(folder / source.task / chip)
    known = {entry.name: entry.application for entry in load_manifest(workspace.programs)}

    def tables() -> Iterator[Mapping[str, pa.Table]]:
        for name in names:
            paths = sample_paths(folder, source.task, chip, name)
            parts = [source.tables(path, workspace.stage("generate")) for path in paths]
            yield {table: pa.concat_tables([part[table] for part in parts]) for table in parts[0]}

    return Samples({name: known[name] for name in names}, _sets(workspace), tables())


def _write_task(folder: Path, task: SuiteTask, samples: Samples, fresh: int) -> MadeTask:
    names = list(samples.applications)
    tested_in = {program: fold for fold, parts in samples.sets.items() for program in parts["test"]}
    rows = [
        (fold, part, name)
        for fold, parts in samples.sets.items()
        for part, members in parts.items()
        for name in members
        if name in samples.applications
    ]
    with table_writers(folder, (PROGRAMS, SPLITS, *task.tables)) as writers:
        folds = pa.array([tested_in[name] for name in names], pa.int32())
        applications = list(samples.applications.values())
        programs = pa.table({"program": names, "application": applications, "fold": folds})
        writers[PROGRAMS].write(programs)
        columns = dict(zip(("fold", "set", "program"), zip(*rows, strict=True), strict=True))
        writers[SPLITS].write(pa.table({name: list(values) for name, values in columns.items()}))
        for of_program in samples.tables:
            for table in task.tables:
                writers[table].write(of_program[table])
        # From here on tables are replaced: a run that is killed must not leave them under the old identity.
        (folder / FACTS_FILE).unlink(missing_ok=True)
    digests = {table: digest_table(folder / f"{table}.parquet") for table in (PROGRAMS, SPLITS, *task.tables)}
    described = describe(folder, task)
    write_readme(folder, task, described, digests)
    write_croissant(folder, task, described)
    write_json(folder / FACTS_FILE, asdict(DataFacts(VERSION, task.folder, fresh, digests)))
    seal(folder, _MADE_BY)
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    return MadeTask(task, folder, digests, size)


def _programs_with_samples(folder: Path) -> list[str]:
    names = sorted({path.stem for path in folder.rglob("*.arrow")})
    if not names:
        raise DataError("no samples", where=folder, expected="feature shards of the corpus")
    return names


def _sets(workspace: Workspace) -> dict[int, Sets]:
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
