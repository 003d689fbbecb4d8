"""Stage `inputs`: writes for every other stage one file with the parameters and code that it depends on.

DVC compares files and knows nothing of code. So this stage runs first, every time, in about a second, and
writes for each stage the parameters that it reads and the digests of the modules that it runs. The other
stages depend on their file instead of on sources: a changed comment leaves the file as it was, a new version
of a library changes it, and a comparison of the file shows module by module why a stage is out of date.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from costbench.artifacts import digest_file, write_json
from costbench.execution.dotted import is_dotted, source_digest
from costbench.experiments.grid.cells import experiment_names
from costbench.experiments.identity import EXCLUDED, module_closure
from costbench.experiments.parameter_file import SECTION, load_params
from costbench.experiments.tpugraphs.samples import listing_digest
from costbench.experiments.workspace import load_workspace
from costbench.extensions import STAGES as STAGE_EXTENSIONS
from costbench.extensions import StageExtension, load_extensions

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
STAGES = tuple(_PARAMETERS)
EACH_EXPERIMENT = ("train", "evaluate")


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
    for stage in STAGES:
        code = asdict(
            module_closure(
                _MODULES.get(stage, f"{__package__}.{stage}"),
                without=tuple(name for name in EXCLUDED if name not in _FOLLOWS.get(stage, ())),
            )
        )
        if stage in EACH_EXPERIMENT:
            for name in experiment_names(profile):
                found = {"parameters": parameters(stage, sections, name), **code}
                own = _mapping(experiments.get(name))
                # Imported files are no dependency that dvc.yaml could name.
                found |= {"data": listing_digest(own, workspace.root)} if "data" in own else {}
                found |= _model_digests(found["parameters"])
                write_json(folder / stage / f"{name}.json", found)
        else:
            found = {"parameters": parameters(stage, sections), **code}
            tables = _mapping(sections.get(stage)).get("tables") or ()
            # The user's own tables are files that dvc.yaml does not name.
            found |= {"tables": {one: digest_file(workspace.root / one) for one in tables}} if tables else {}
            write_json(folder / f"{stage}.json", found)
    for name, extension in load_extensions(STAGE_EXTENSIONS, StageExtension).items():
        code = asdict(module_closure(extension.module))
        write_json(folder / f"{name}.json", {"parameters": dict(extension.parameters(params)), **code})


def parameters(stage: str, sections: Mapping[str, Any], experiment: str = "") -> dict[str, object]:
    """Returns the parameters that a stage reads, unparsed, by their paths in the file.

    Args:
        stage: name of the stage.
        sections: sections of the parameter file; a missing one is an error of the stage alone.
        experiment: that the stage runs for.
    """
    found: dict[str, object] = {}
    experiments = _mapping(sections.get(SECTION))
    own = _mapping(experiments.get(experiment))
    for path in _PARAMETERS[stage]:
        if path == "experiments.*":
            found[f"{SECTION}.{experiment}"] = own
            # What an entry leaves out is the first of these lists.
            for key, named, listed in (("splits", "split", "names"), ("chips", "features", "chips")):
                if key not in own:
                    found[f"{named}.{listed}"] = _mapping(sections.get(named)).get(listed)
        elif path == "experiments.autotuned":
            tuned = _mapping(sections.get("autotune")).values()
            models = [name for one in tuned for name in _mapping(one).get("models", ())]
            found |= {f"{SECTION}.{name}": experiments.get(name) for name in models}
        elif path == "baselines":
            # Only of the experiment's own task, and only where it has baselines.
            if own.get("baselines"):
                section = _mapping(sections.get(path))
                task = str(own.get("task"))
                found |= {f"{path}.{name}": section.get(name) for name in ("seed", task)}
        elif path == "train" and own:
            # Only the settings of the experiment's own task count.
            found[f"train.{own.get('task')}"] = _mapping(sections.get("train")).get(str(own.get("task")))
        else:
            found[path] = sections.get(path)
    return found


def _model_digests(found: Mapping[str, Any]) -> dict[str, object]:
    """Returns the digests of the files of the user's own cost models, where a stage asks any."""
    names = _mapping(found.get("evaluate")).get("models") or ()
    digests = {str(name): source_digest(str(name)) for name in names if is_dotted(str(name))}
    return {"models": digests} if digests else {}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
