"""Results of work items that earlier runs left behind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from costbench.artifacts import read_json
from costbench.errors import DataError, ParamsError
from costbench.params import parse


class Wanted(Protocol):
    """A work item with the file of its result and the digest of everything that the result depends on."""

    @property
    def path(self) -> Path:
        """Returns the file."""
        ...

    @property
    def key(self) -> str:
        """Returns the digest."""
        ...


@dataclass(frozen=True)
class KeyedResult:
    """A result as stored in its file.

    Attributes:
        key: digest of everything that it depends on.
    """

    key: str


W = TypeVar("W", bound=Wanted)
K = TypeVar("K", bound=KeyedResult)


def kept_and_missing(cls: type[K], wanted: Mapping[str, W]) -> tuple[dict[str, K], dict[str, W]]:
    """Returns the valid results of earlier runs and the work items that have none, both by name.

    A file that is damaged or of another key is as good as none.
    """
    kept: dict[str, K] = {}
    for name, one in wanted.items():
        found = _read(cls, one)
        if found is not None:
            kept[name] = found
    return kept, {name: one for name, one in wanted.items() if name not in kept}


def _read(cls: type[K], wanted: Wanted) -> K | None:
    if not wanted.path.exists():
        return None
    try:
        found = parse(cls, read_json(wanted.path), where=wanted.path)
    except (DataError, ParamsError):
        return None
    return found if found.key == wanted.key else None
