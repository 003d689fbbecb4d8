"""The file `schedules.yaml`: parameters of the stage `schedules`, beside the parameter file of a profile."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from costbench.params import load_yaml

SECTION = "schedules"
DEFAULT_TABLES = "data/schedules"
_FILE = "schedules.yaml"


def section_file(params: Path) -> Path:
    """Returns the path of the file beside a parameter file; a profile may have none."""
    return params.with_name(_FILE)


def read_sections(params: Path) -> Mapping[str, object]:
    """Returns the file's contents, unparsed; empty without it.

    Raises:
        ParamsError: for a file that is no YAML.
    """
    path = section_file(params)
    return load_yaml(path) if path.exists() else {}


def recorded_tables(params: Path) -> str:
    """Returns the folder of the recorded tables, relative to the repository's root.

    Raises:
        ParamsError: for a file that is no YAML.
    """
    keys: object = read_sections(params)
    for key in (SECTION, "tables", "tables"):
        keys = keys.get(key) if isinstance(keys, Mapping) else None
    return DEFAULT_TABLES if keys is None else str(keys)
