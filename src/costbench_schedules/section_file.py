"""The file `schedules.yaml`: parameters of the stage `schedules`, beside the parameter file of a profile.

At its top may stand another such file that it extends (`extends: ../../schedules.yaml`, from its folder);
it then holds what differs. Mappings are merged key by key, lists and values are replaced.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from costbench.errors import ParamsError
from costbench.params import load_yaml, merge

SECTION = "schedules"
DEFAULT_TABLES = "data/schedules"
_FILE = "schedules.yaml"
_EXTENDS = "extends"


def section_file(params: Path) -> Path:
    """Returns the path of the file beside a parameter file; a profile may have none."""
    return params.with_name(_FILE)


def read_sections(params: Path) -> Mapping[str, object]:
    """Returns the file's contents with those of the file that it extends, unparsed; empty without it.

    Raises:
        ParamsError: for a file that is no YAML, or that extends one that is not there or itself.
    """
    path = section_file(params)
    return _with_base(path, ()) if path.exists() else {}


def _with_base(path: Path, before: tuple[Path, ...]) -> Mapping[str, object]:
    content = load_yaml(path)
    if _EXTENDS not in content:
        return content
    base = path.parent / str(content.pop(_EXTENDS))
    if base.resolve() in (*before, path.resolve()):
        raise ParamsError("extends itself", where=path, field=_EXTENDS, expected="another file")
    return merge(_with_base(base, (*before, path.resolve())), content)


def recorded_tables(params: Path) -> str:
    """Returns the folder of the recorded tables, relative to the repository's root.

    Raises:
        ParamsError: for a file that is no YAML.
    """
    keys: object = read_sections(params)
    for key in (SECTION, "tables", "tables"):
        keys = keys.get(key) if isinstance(keys, Mapping) else None
    return DEFAULT_TABLES if keys is None else str(keys)
