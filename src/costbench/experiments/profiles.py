"""Profiles: named sets of sizes (`laptop`, ...), how large each is, and how one is set in `params.yaml`.

`profiles/NAME/params.yaml` has the keys of the default file with other numbers. Once a profile is set, plain
`dvc repro` and `costbench train` work at its sizes, in the folders of section `run`, in which only the name
of the profile changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from costbench.artifacts import write_text
from costbench.datasets.folds import FOLDS, expanded
from costbench.errors import ParamsError
from costbench.experiments.grid.spec import SECTION
from costbench.experiments.workspace import load_workspace
from costbench.params import load_yaml, merged
from costbench.tasks import LEARNED

if TYPE_CHECKING:
    from rich.table import Table

_FILE = "params.yaml"
_RUN = re.compile(r"(?ms)^run:\n.*?(?=^\S)")
_NAME = re.compile(r"(?m)^  name: .*$")


@dataclass(frozen=True)
class ProfileSizes:
    """Sizes of the work that a parameter file asks for.

    Attributes:
        name: of the profile.
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
    """Return the sizes of a parameter file.

    Raises:
        ParamsError: for a file that is not a parameter file or lacks a section.
    """
    sections: Any = load_yaml(params)
    try:
        found = [_cells(one, sections) for one in sections[SECTION].values()]
        counts = [count for counts in found for count in counts]
        widths = {sections["train"][task]["net"]["hidden"] for task in LEARNED}
        for space in sections["sweep"]["space"].values():
            widths |= set(space.get("net.hidden", {}).get("choices", ()))
        generate, sweep = sections["generate"], sections["sweep"]
        return ProfileSizes(
            name=str(sections["run"]["name"]),
            tiles=generate["tile"]["max_tiles_per_kernel"],
            fusions=generate["fusion"]["max_configs"],
            hidden=(min(widths), max(widths)),
            steps=max(steps for _, steps in counts),
            runs=sum(runs for runs, _ in counts),
            total_steps=sum(runs * steps for runs, steps in counts),
            trials=sweep["trials"] * len(sweep["tasks"]),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ParamsError(f"no profile: {error!r}", where=params, expected="all sections") from error


def _cells(entry: Mapping[str, Any], sections: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return (number of runs, steps of each) of every variant of an experiment."""
    base = merged(sections["train"][entry["task"]], entry.get("settings", {}))
    folds = sections["split"]["folds"]["k"] if FOLDS in entry["splits"] else 0
    runs = len(expanded(entry["splits"], folds)) * len(entry["chips"]) * len(entry["seeds"])
    specs = (merged(base, change) for change in entry["variants"].values())
    return [(runs, spec["epochs"] * _steps_per_epoch(spec)) for spec in specs]


def _steps_per_epoch(spec: Mapping[str, Any]) -> int:
    return int(spec["steps_per_epoch"] if "steps_per_epoch" in spec else spec["batch"]["per_epoch"])


def table_of(found: Iterable[ProfileSizes]) -> Table:
    """Return the sizes as a table for people, one row per profile."""
    from rich.table import Table

    table = Table()
    for header in ("profile", "tile sizes", "fusions", "hidden", "steps", "runs", "steps in all", "trials"):
        table.add_column(header, justify="left" if header == "profile" else "right")
    for one in found:
        numbers = (one.tiles, one.fusions, one.hidden, one.steps, one.runs, one.total_steps, one.trials)
        shown = (" to ".join(f"{n:,}" for n in (v if isinstance(v, tuple) else (v,))) for v in numbers)
        table.add_row(one.name, *shown)
    return table


def profiles(root: Path) -> dict[str, Path]:
    """Return the parameter files of the profiles in folder `profiles`, by name."""
    return {path.parent.name: path for path in sorted((root / "profiles").glob(f"*/{_FILE}"))}


def set_profile(root: Path, name: str) -> Path:
    """Write the sizes of a profile into `params.yaml` and return the file's path.

    The previous contents are kept in the output folder under the previous profile's name
    (`out/laptop/params.laptop.yaml`); setting that name restores them.

    Args:
        root: of the repository.
        name: of a profile, or of earlier contents of `params.yaml` that were kept.

    Raises:
        ParamsError: for an unknown name, or a broken file.
    """
    params = root / _FILE
    workspace = load_workspace(params)
    if workspace.name == name:
        return params
    kept = {path.name.split(".")[1]: path for path in sorted(workspace.out.glob("params.*.yaml"))}
    # Kept files of the user win over those of the folder `profiles`.
    known = profiles(root) | kept
    if name not in known:
        expected = ", ".join(sorted({*known, workspace.name}))
        raise ParamsError(f"no profile {name!r}", where=root / "profiles", expected=expected)
    sizes(known[name])
    text, own = known[name].read_text("utf-8"), params.read_text("utf-8")
    run = _RUN.search(own)
    if run is None or _RUN.search(text) is None:
        raise ParamsError("no section", where=params, field="run", expected="a block of lines")
    block = _NAME.sub(f"  name: {name}", run[0], count=1)
    write_text(workspace.out / f"params.{workspace.name}.yaml", own)
    write_text(params, _RUN.sub(lambda _: block, text, count=1))
    return params
