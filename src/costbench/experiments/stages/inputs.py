"""Stage `inputs`: writes for every other stage one file with the parameters and code that it depends on.

DVC compares files and knows nothing of code. So this stage runs first, every time, in about a second, and
writes for each stage the parameters that it reads and the digests of the modules that it runs. The other
stages depend on their file instead of on sources: a changed comment leaves the file as it was, a new version
of a library changes it, and a comparison of the file shows module by module why a stage is out of date.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from costbench.artifacts import digest_file, digest_files, write_json
from costbench.errors import ParamsError
from costbench.execution.dotted import is_part
from costbench.experiments.grid.cells import experiment_names
from costbench.experiments.identity import EXCLUDED, module_closure, part_digest
from costbench.experiments.parameter_file import SECTION, Params, load_params
from costbench.experiments.tpugraphs.samples import listing_digest
from costbench.experiments.workspace import chip_files, load_workspace
from costbench.extensions import REPORT_SECTIONS, StageExtension, load_extensions
from costbench.extensions import STAGES as STAGE_EXTENSIONS
from costbench.programs.manifest import user_programs

# Parameters of a stage as paths in the file; `*` is the experiment that a stage runs for, or all of them.
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "generate": ("generate",),
    "split": ("split",),
    "features": ("features",),
    "sweep": ("sweep", "train"),
    "train": ("train", "baselines", "experiments.*"),
    "evaluate": ("evaluate", "experiments.*"),
    "autotune": ("autotune", "experiments.autotuned"),
    "register": ("register",),
    "report": ("report", "train", "experiments"),
}
# The one stage whose code is a package of its own.
_MODULES = {"report": "costbench.reports.stage"}
# What a stage follows from although the results of others do not: that of `register` is the tracking itself.
_FOLLOWS = {"register": ("costbench.experiments.tracking",)}
_TESTS = ("evaluate", "autotune")
"""Stages that test models on a user's own programs, which are in no digest of the samples before them."""
_PART_KEYS = frozenset({"encoder", "reduction", "loss", "features", "nodes", "models"})
"""Keys of parameters below which modules of a user's own are named."""
STAGES = tuple(_PARAMETERS)
EACH_EXPERIMENT = ("train", "evaluate")
# That of packed results (`costbench.experiments.archive`, whose imports would take a second).
_MANIFEST_FILE = "archive.json"


def run(params: Path) -> None:
    """Writes `<stage>.json`, or `<stage>/<experiment>.json` for a stage that runs once per experiment.

    Raises:
        CostbenchError: for a parameter file that cannot be read, or files that cannot be written.
    """
    profile = load_params(params)
    workspace = load_workspace(profile)
    sections = profile.sections
    folder = workspace.stage("inputs")
    experiments = _mapping(sections.get(SECTION))
    programs = {
        entry.name: digest_file(workspace.programs / entry.file)
        for entry in user_programs(workspace.programs)
    }
    of_user = dict.fromkeys(_TESTS, {"programs": programs} if programs else {})
    for stage in STAGES:
        code = asdict(
            module_closure(
                _MODULES.get(stage, f"{__package__}.{stage}"),
                without=tuple(name for name in EXCLUDED if name not in _FOLLOWS.get(stage, ())),
            )
        )
        if stage in EACH_EXPERIMENT:
            for name in experiment_names(profile):
                values = parameters(stage, sections, name)
                content = {"parameters": values, **code}
                entry = _mapping(experiments.get(name))
                if "data" in entry:
                    # Imported files are no dependency that dvc.yaml could name, nor are a user's own modules.
                    content["data"] = listing_digest(entry, workspace.root)
                content |= _sources(values, params) | of_user.get(stage, {})
                write_json(folder / stage / f"{name}.json", content)
        else:
            values = parameters(stage, sections)
            content = {"parameters": values, **code, **_sources(values, params), **of_user.get(stage, {})}
            # The user's own tables are files that dvc.yaml does not name.
            if tables := _sequence(_mapping(sections.get(stage)).get("tables")):
                content["tables"] = {str(table): digest_file(workspace.root / str(table)) for table in tables}
            content |= _packed(_mapping(sections.get(stage)), workspace.root)
            if stage == "generate":
                content |= _machines(profile, workspace.root)
            if stage == "report":
                content |= _with_sections(code)
            write_json(folder / f"{stage}.json", content)
    for name, extension in load_extensions(STAGE_EXTENSIONS, StageExtension).items():
        code = asdict(module_closure(extension.module))
        write_json(folder / f"{name}.json", {"parameters": dict(extension.parameters(params)), **code})


def _with_sections(code: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Returns the code of the report with that of the sections which other packages add to it."""
    # Their modules are read, not imported: that would take longer than all notes.
    added = [asdict(module_closure(point.module)) for point in entry_points(group=REPORT_SECTIONS)]
    return {kind: dict(sorted(ChainMap(*(one[kind] for one in [*added, code])).items())) for kind in code}


def _machines(params: Params, root: Path) -> dict[str, object]:
    """Returns digests of a user's own chips and of the records of real machines; empty without any."""
    digests: dict[str, object] = {name: digest_file(Path(file)) for name, file in chip_files(params).items()}
    recorded = _mapping(_mapping(params.sections.get("generate")).get("recorded"))
    for name, records in recorded.items():
        folder = root / str(records)
        digests[str(name)] = digest_files(sorted(folder.glob("*.parquet")), folder)
    return {"machines": digests} if digests else {}


def _packed(section: Mapping[str, object], root: Path) -> dict[str, object]:
    """Returns digests of the packed results that a section names, which dvc.yaml cannot.

    Those of an archive are in its manifest; searches on a machine are files of a folder.
    """
    digests: dict[str, object] = {}
    for name in ("headline", "real"):
        if packed := _mapping(section.get(name)).get("results"):
            manifest = root / str(packed) / _MANIFEST_FILE
            digests[name] = digest_file(manifest) if manifest.is_file() else ""
    if searches := section.get("machine_searches"):
        folder = root / str(searches)
        digests["machine_searches"] = digest_files(sorted(folder.glob("*")), folder)
    return digests


def _sources(values: object, params: Path) -> dict[str, object]:
    """Returns the digests of a user's own modules that parameters name, by dotted path; empty without any."""
    try:
        digests = {text: part_digest(text, field) for field, text in _parts(values, "")}
    except ParamsError as error:
        raise error.recast(ParamsError, where=params) from error
    return {"sources": digests} if digests else {}


def _parts(value: object, field: str) -> Iterator[tuple[str, str]]:
    """Yields the fields that name a user's own modules, below one of these keys, and the dotted paths."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _parts(inner, f"{field}.{key}" if field else str(key))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _parts(inner, field)
    elif isinstance(value, str) and is_part(value) and not _PART_KEYS.isdisjoint(field.split(".")):
        yield field, value


def parameters(stage: str, sections: Mapping[str, Any], experiment: str = "") -> dict[str, object]:
    """Returns the parameters that a stage reads, unparsed, by their paths in the file.

    Args:
        stage: name of the stage.
        sections: sections of the parameter file; a missing one is an error of the stage alone.
        experiment: experiment that the stage runs for; empty where it runs for all of them at once.
    """
    values: dict[str, object] = {}
    experiments = _mapping(sections.get(SECTION))
    entry = _mapping(experiments.get(experiment))
    for path in _PARAMETERS[stage]:
        if path == "experiments.*":
            values[f"{SECTION}.{experiment}"] = entry
            # What an entry leaves out is the first of these lists.
            for key, named, listed in (("splits", "split", "names"), ("chips", "features", "chips")):
                if key not in entry:
                    values[f"{named}.{listed}"] = _mapping(sections.get(named)).get(listed)
        elif path == "experiments.autotuned":
            tuned = _mapping(sections.get("autotune")).values()
            models = [str(name) for tuning in tuned for name in _sequence(_mapping(tuning).get("models"))]
            # Models are named `EXPERIMENT` or `EXPERIMENT.VARIANT`.
            names = dict.fromkeys(model.partition(".")[0] for model in models)
            values |= {f"{SECTION}.{name}": experiments.get(name) for name in names}
        elif path == "baselines":
            # Only of the experiment's own task, and only where it has baselines.
            if entry.get("baselines") or entry.get("budgets"):
                section = _mapping(sections.get(path))
                task = str(entry.get("task"))
                values |= {f"{path}.{name}": section.get(name) for name in ("seed", task)}
        elif path == "train" and entry:
            # Only the settings of the experiment's own task count.
            task = str(entry.get("task"))
            values[f"train.{task}"] = _mapping(sections.get("train")).get(task)
        else:
            values[path] = sections.get(path)
    return values


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _sequence(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
