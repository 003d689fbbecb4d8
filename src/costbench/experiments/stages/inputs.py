"""Stage `inputs`: what every other stage follows from besides data, one file a stage.

DVC compares files, not code. So this stage runs first, every time, in about a second, and writes down for
each stage the parameters that it reads and the digests of the code that it runs. The others depend on their
file instead of on sources: a comment that changes leaves it as it was, the new version of a library does not,
and the file says module by module why a stage is out of date.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from costbench.artifacts import write_json
from costbench.experiments.grid.spec import SECTION, experiment_names
from costbench.experiments.identity import BYSTANDERS, module_closure
from costbench.experiments.workspace import load_workspace
from costbench.params import load_yaml

# Parameters of a stage as paths in the file; `*` is the experiment that a stage is done for, or all of them.
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "generate": ("generate",),
    "split": ("split",),
    "features": ("features",),
    "sweep": ("sweep", "train"),
    "train": ("train", "experiments.*"),
    "evaluate": ("evaluate", "experiments.*"),
    "autotune": ("autotune", "experiments.autotuned"),
    "register": ("register",),
    "report": ("report", "train", "experiments"),
}
# The one stage whose code is a package of its own.
_MODULES = {"report": "costbench.reports.stage"}
# Tracking is what this stage does; no other result follows from it.
_TRACKS = ("register",)
STAGES = tuple(_PARAMETERS)
EACH_EXPERIMENT = ("train", "evaluate")


def run(params: Path) -> None:
    """Write `<stage>.json`, or `<stage>/<experiment>.json` for a stage that is done for each experiment.

    Raises:
        CostbenchError: for a parameter file that cannot be read, or files that cannot be written.
    """
    workspace = load_workspace(params)
    sections = load_yaml(params)
    folder = workspace.stage("inputs")
    for stage in STAGES:
        code = asdict(
            module_closure(
                _MODULES.get(stage, f"{__package__}.{stage}"), without=() if stage in _TRACKS else BYSTANDERS
            )
        )
        if stage in EACH_EXPERIMENT:
            for name in experiment_names(params):
                found = {"parameters": parameters(stage, sections, name), **code}
                write_json(folder / stage / f"{name}.json", found)
        else:
            write_json(folder / f"{stage}.json", {"parameters": parameters(stage, sections), **code})


def parameters(stage: str, sections: Mapping[str, Any], experiment: str = "") -> dict[str, object]:
    """The parameters that a stage reads, as they stand in the file, by their paths in it.

    Args:
        stage: by name.
        sections: of the parameter file; what is missing is left to the stage to complain about.
        experiment: that the stage is done for.
    """
    found: dict[str, object] = {}
    experiments = _mapping(sections.get(SECTION))
    own = _mapping(experiments.get(experiment))
    for path in _PARAMETERS[stage]:
        if path == "experiments.*":
            found[f"{SECTION}.{experiment}"] = own
        elif path == "experiments.autotuned":
            tuned = _mapping(sections.get("autotune")).values()
            models = [name for one in tuned for name in _mapping(one).get("models", ())]
            found |= {f"{SECTION}.{name}": experiments.get(name) for name in models}
        elif path == "train" and own:
            # Models of the other task have settings of their own.
            found[f"train.{own.get('task')}"] = _mapping(sections.get("train")).get(str(own.get("task")))
        else:
            found[path] = sections.get(path)
    return found


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
