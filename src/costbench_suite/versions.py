"""The published data of a version: what everyone's data must be, value by value, and what is known of it.

The file `versionN.json` beside this module has an entry for each folder of data whose values are final. A
task without one is not part of the version yet; its data may still change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

from costbench.artifacts import read_json, write_json
from costbench.errors import DataError
from costbench.params import parse
from costbench_suite.task_data import DataFacts
from costbench_suite.tasks import TASKS, VERSION, SuiteTask

PUBLISHED = Path(__file__).with_name(f"version{VERSION}.json")


@dataclass(frozen=True)
class PublishedTask:
    """The data of a folder that are final.

    Attributes:
        digests: digest of the values of each table, by its name.
        programs: number of programs, or of tables of a tuning space.
        decisions: number of measured decisions.
        size: bytes of all files, which differ a little between versions of the writer.
        ceiling: metrics of a second measurement of the same decisions, by name; empty if not made yet.
        earlier: digests of tables before they were the same on all processors, which score as these.
    """

    digests: Mapping[str, str]
    programs: int
    decisions: int
    size: int
    ceiling: Mapping[str, float] = field(default_factory=dict)
    earlier: Mapping[str, str] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Returns the digest of all tables, as `DataFacts` has it."""
        return DataFacts(VERSION, "", 0, self.digests).digest

    @property
    def data_digests(self) -> tuple[str, str]:
        """Returns the digests of all tables that are this data: today's and the earlier one."""
        return self.digest, DataFacts(VERSION, "", 0, {**self.digests, **self.earlier}).digest


@cache
def published(path: Path = PUBLISHED) -> Mapping[str, PublishedTask]:
    """Returns what is published of this version, by folder, in the order of the tasks.

    Raises:
        DataError: for a damaged file.
    """
    content = read_json(path) if path.is_file() else {}
    if not isinstance(content, dict):
        raise DataError("no published version", where=path, expected="an object with an entry for each task")
    folders = dict.fromkeys(task.folder for task in TASKS.values())
    return {
        folder: parse(PublishedTask, content[folder], where=path, error=DataError)
        for folder in folders
        if folder in content
    }


def unpublished() -> tuple[str, ...]:
    """Returns the folders of tasks that are not part of the version yet, in order."""
    return tuple(dict.fromkeys(task.folder for task in TASKS.values() if task.folder not in published()))


def differing_tables(task: SuiteTask, digests: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the tables whose values are not those of this version; none for a task that is not part of it.

    Args:
        task: the task.
        digests: digest of the values of each table, by its name.
    """
    if task.folder not in published():
        return ()
    entry = published()[task.folder]
    earlier = {**entry.digests, **entry.earlier}
    names = {**entry.digests, **digests}
    return tuple(
        name for name in names if digests.get(name) not in (entry.digests.get(name), earlier.get(name))
    )


def is_same_data(folder: str, first: str, second: str) -> bool:
    """Returns whether digests of all tables of a folder are equal, or both of what is published of it."""
    return first == second or (
        folder in published() and {first, second} <= set(published()[folder].data_digests)
    )


def publish(entries: Mapping[str, PublishedTask], path: Path = PUBLISHED) -> None:
    """Adds data to the published version.

    Args:
        entries: what is final, by folder.
        path: file of the version.

    Raises:
        DataError: if a folder is published with other values: versions never change.
    """
    known = published(path)
    for folder, entry in entries.items():
        if folder in known and known[folder].digest != entry.digest:
            problem = f"{folder} is published with other values, digest {known[folder].digest[:16]}"
            raise DataError(problem, where=path, expected="the same values, or another version")
    write_json(path, {folder: asdict(entry) for folder, entry in {**known, **entries}.items()})
    published.cache_clear()
