"""Profiles: named sets of sizes (`laptop`, ...), how large each is, and how one is set in `params.yaml`.

`profiles/NAME/params.yaml` has what differs from the profile that it extends. Once a profile is set, plain
`dvc repro` and `costbench train` work at its sizes, in the folders of section `run`, in which only the name
of the profile changes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from ruamel.yaml import YAML

from costbench.artifacts import write_text
from costbench.errors import ParamsError
from costbench.experiments.grid.cells import experiment_names
from costbench.experiments.grid.experiment import load_experiment
from costbench.experiments.parameter_file import EXTENDS, FILE, load_params, load_sections, profile_file
from costbench.experiments.workspace import RunParams, load_workspace
from costbench.tasks import LEARNED

_WIDTH = 118
_RUN = re.compile(r"(?ms)^run:[^\n]*\n.*?(?=^\S)")
_NAME = re.compile(r"(?m)^  name: [^\s#]+")


@dataclass(frozen=True)
class ProfileSizes:
    """Sizes of the work that a parameter file asks for, in the order of tables.

    Attributes:
        name: name of the profile.
        tiles: measured tile sizes per kernel, at most.
        fusions: fusion configs per program, at most.
        hidden: smallest and largest width of the trained networks, including those that sweeps try.
        steps: training steps of the longest run.
        runs: number of training runs of all experiments.
        total_steps: training steps of all runs together.
        trials: number of trials of the sweep, summed over its tasks.
    """

    name: str
    tiles: int
    fusions: int
    hidden: tuple[int, int]
    steps: int
    runs: int
    total_steps: int
    trials: int


def sizes(params: Path) -> ProfileSizes:
    """Returns the sizes of a parameter file.

    Raises:
        ParamsError: for a file that is not a parameter file or lacks a section.
    """
    profile = load_params(params)
    sections = profile.sections
    try:
        specs = [
            (variant.spec, len(experiment.cells) // len(experiment.variants))
            for experiment in (load_experiment(profile, name) for name in experiment_names(profile))
            for variant in experiment.variants.values()
        ]
        steps = [(spec.epochs * spec.steps_per_epoch, runs) for spec, runs in specs]
        widths = {sections["train"][task]["net"]["hidden"] for task in LEARNED}
        for space in sections["sweep"]["space"].values():
            widths |= set(space.get("net.hidden", {}).get("choices", ()))
        generate, sweep = sections["generate"], sections["sweep"]
        return ProfileSizes(
            name=str(sections["run"]["name"]),
            tiles=generate["tile"]["max_tiles_per_kernel"],
            fusions=generate["fusion"]["max_configs"],
            hidden=(min(widths), max(widths)),
            steps=max(num_steps for num_steps, _ in steps),
            runs=sum(runs for _, runs in steps),
            total_steps=sum(num_steps * runs for num_steps, runs in steps),
            trials=sweep["trials"] * len(sweep["tasks"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ParamsError(f"no profile: {error!r}", where=params, expected="all sections") from error


def profiles(root: Path) -> dict[str, Path]:
    """Returns the parameter files of the profiles in folder `profiles`, by name."""
    return {path.parent.name: path for path in sorted((root / "profiles").glob(f"*/{FILE}"))}


def set_profile(root: Path, name: str) -> Path:
    """Writes the sizes of a profile into `params.yaml` and returns the file's path.

    The previous contents are kept in the output folder under the previous profile's name
    (`out/laptop/params.laptop.yaml`); setting that name restores them.

    Args:
        root: root of the repository.
        name: name of a profile, or of earlier contents of `params.yaml` that were kept.

    Raises:
        ParamsError: for an unknown name, or a broken file.
    """
    params = root / FILE
    workspace = load_workspace(load_params(params))
    if workspace.name == name:
        return params
    earlier = {path.name.split(".")[1]: path for path in sorted(workspace.out.glob("params.*.yaml"))}
    # Kept files of the user win over those of the folder `profiles`.
    known = profiles(root) | earlier
    if name not in known:
        expected = ", ".join(sorted({*known, workspace.name}))
        raise ParamsError(f"no profile {name!r}", where=root / "profiles", expected=expected)
    sizes(known[name])
    text, content = whole_text(known[name]), params.read_text("utf-8")
    run = _RUN.search(content)
    if run is None:
        raise ParamsError("no section", where=params, field="run", expected="a block of lines")
    block = _NAME.sub(f"  name: {name}", run[0], count=1)
    write_text(workspace.out / f"params.{workspace.name}.yaml", content)
    write_text(params, _RUN.sub(lambda _: block, text, count=1))
    return params


def write_whole(root: Path, name: str, path: Path) -> None:
    """Writes the parameter file of a profile, with everything that it extends, to be used where it is.

    Args:
        root: root of the repository.
        name: name of the profile.
        path: file that is written.

    Raises:
        ParamsError: for an unknown name, or a broken file.
    """
    source, here, there = profile_file(root / FILE, {}, name), path.resolve(), root.resolve()
    load_params(source).section("run", RunParams)
    values = {"root": os.path.relpath(there, here.parent), "params": os.path.relpath(here, there)}
    write_text(path, _with_run(whole_text(source), values))


def _with_run(text: str, values: Mapping[str, str]) -> str:
    """Returns the text of a parameter file with other values of section `run`."""
    sections = YAML(typ="safe", pure=True).compose(text).value
    for key, value in reversed(next(section.value for key, section in sections if key.value == "run")):
        if key.value in values:
            end = text[value.end_mark.index :]
            text = text[: value.start_mark.index] + json.dumps(values[key.value]) + end
    return text


def whole_text(params: Path) -> str:
    """Returns a parameter file as one that extends no other, with all experiments written out.

    Raises:
        ParamsError: for a file that cannot be read, or that extends what is not there.
    """
    content = params.read_text("utf-8") if params.is_file() else ""
    if re.search(rf"(?m)^{EXTENDS}:", content) is None:
        load_sections(params)
        return content
    # The section `run` in lines of its own, since DVC and people edit it.
    sections = load_sections(params)
    return _dumped({"run": sections.pop("run", {})}, flow=False) + _dumped(sections, flow=None)


def _dumped(sections: Mapping[str, object], *, flow: bool | None) -> str:
    text = StringIO()
    writer = YAML()
    writer.default_flow_style = flow
    writer.width = _WIDTH
    writer.representer.ignore_aliases = lambda *_: True
    writer.dump(sections, text)
    return text.getvalue()
