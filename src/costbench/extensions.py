"""What other installed packages add: commands, stages of the pipeline, sections of the report.

A package names what it adds in its entry points (`[project.entry-points."costbench.commands"]` and so on in
its `pyproject.toml`); nothing of costbench names the package. `costbench_schedules`, which ships in the same
wheel, joins by these three tables alone. An entry point that cannot be loaded is one error that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TypeVar

from costbench.errors import DataError

COMMANDS = "costbench.commands"
"""Group of entry points that are a `CommandGroup`."""
STAGES = "costbench.stages"
"""Group of entry points that are a `StageExtension`; their names are those of the stages."""
REPORT_SECTIONS = "costbench.report_sections"
"""Group of entry points that are a `reports.extension.ReportExtension`."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class CommandGroup:
    """Commands that `costbench --help` lists together.

    Attributes:
        title: heading of the list.
        commands: functions as Typer takes them; `tune_NAME` also serves `costbench tune --task NAME`.
        groups: commands with commands of their own, `costbench NAME COMMAND`, as applications of Typer.
    """

    title: str
    commands: tuple[Callable[..., None], ...]
    groups: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class StageExtension:
    """A stage of the pipeline that another package has.

    Attributes:
        command: the stage as a command; its name is that of the stage.
        module: name of the module whose code the stage runs, for the stage `inputs`.
        parameters: returns what the stage reads of a parameter file and of files beside it, unparsed.
        results: patterns of the files in the stage's folder that the report reads, for `costbench results`.
        sections: dataclass of each section of `parameters`, as module:class, for `costbench params`.
        commands: functions that become `costbench NAME COMMAND`, by their names; the stage itself then takes
            a `typer.Context` first, and runs if that invokes no command.
    """

    command: Callable[..., None]
    module: str
    parameters: Callable[[Path], Mapping[str, object]]
    results: tuple[str, ...] = ()
    sections: Mapping[str, str] = field(default_factory=dict)
    commands: Mapping[str, Callable[..., None]] = field(default_factory=dict)


def load_extensions(group: str, kind: type[_T]) -> dict[str, _T]:
    """Returns what the entry points of a group load, by their names, sorted.

    Args:
        group: name of the group.
        kind: type that each of them must have.

    Raises:
        DataError: naming the entry point, if it cannot be imported or is something else.
    """
    return {name: _load(point, kind) for name, point in sorted(_entry_points(group).items())}


def extension_packages() -> tuple[str, ...]:
    """Returns the names of the import packages that add to costbench, sorted; `costbench` itself is none."""
    points = [
        point for group in (COMMANDS, STAGES, REPORT_SECTIONS) for point in _entry_points(group).values()
    ]
    return tuple(sorted({point.module.partition(".")[0] for point in points} - {__package__}))


@cache
def _entry_points(group: str) -> Mapping[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=group)}


def _load(point: metadata.EntryPoint, kind: type[_T]) -> _T:
    where = f"entry point {point.name} of {point.group}"
    try:
        extension = point.load()
    except (ImportError, AttributeError) as error:
        raise DataError(f"cannot be loaded: {error}", where=where, expected=point.value) from error
    if not isinstance(extension, kind):
        raise DataError(f"is a {type(extension).__name__}", where=where, expected=f"a {kind.__name__}")
    return extension
