"""Stores fitted baselines: a folder with one JSON file each, which holds its numbers and their digest.

A file is complete and unchanged or fails to load; trees are kept in it as text in LightGBM's own format.
Nothing that is read can run code, and equal models give equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from costbench.artifacts import digest_bytes, read_json, write_json
from costbench.errors import CostbenchError, DataError, choose
from costbench.models.baselines.fitting import BASELINES, ROWS, Baseline
from costbench.params import parse

FORMAT = "costbench baseline 1"
_KEYS = ("baseline", "features", "format", "model", "model_sha256", "task")


def save_baselines(folder: Path, task: str, models: Mapping[str, Baseline]) -> None:
    """Write `<name>.json` for each model.

    Raises:
        DataError: if a number is NaN or infinite, or a file cannot be written.
    """
    for name, model in models.items():
        content = asdict(cast("Any", model))
        described = {
            "format": FORMAT,
            "task": task,
            "baseline": name,
            "features": ROWS[task].digest(),
            "model": content,
            "model_sha256": _digest(content),
        }
        write_json(folder / f"{name}.json", described)


def load_baselines(folder: Path, task: str, names: Iterable[str]) -> dict[str, Baseline]:
    """Return the named models of a folder.

    Raises:
        ChoiceError: for a name that is no baseline of the task.
        DataError: naming file and field, if one is missing, damaged, of other features or no baseline at all.
    """
    kinds = choose(BASELINES, task, "task")
    return {name: _load(folder / f"{name}.json", task, choose(kinds, name, "baseline")) for name in names}


def _load(path: Path, task: str, kind: type[Baseline]) -> Baseline:
    content = read_json(path)
    if not isinstance(content, dict) or sorted(content) != sorted(_KEYS):
        raise DataError("no baseline", where=path, expected=f"the keys {', '.join(_KEYS)}")
    expected = {
        "format": FORMAT,
        "task": task,
        "baseline": path.stem,
        "features": ROWS[task].digest(),
        "model_sha256": _digest(content["model"]),
    }
    for key, value in expected.items():
        if content[key] != value:
            raise DataError(f"{str(content[key])[:80]!r}", where=path, field=key, expected=str(value))
    try:
        return cast("Baseline", parse(cast("Any", kind), content["model"], where=path, field="model"))
    except CostbenchError as error:
        raise DataError(error.problem, where=path, field=error.field, expected=error.expected) from error


def _digest(model: object) -> str:
    return digest_bytes(json.dumps(model, sort_keys=True, separators=(",", ":")).encode())
