"""Writes the best trial of a sweep as a parameter file, and merges its values into training settings.

The file holds only the swept values, nested as in `train.TASK`; the budget (epochs, batches, seeds) remains
that of the training which reads it. Keys are sorted and nothing depends on the time, so equal sweeps write
equal bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from io import StringIO
from os import PathLike
from pathlib import Path

from ruamel.yaml import YAML

from costbench.artifacts import write_text
from costbench.errors import ParamsError
from costbench.params import load_yaml, merge, nest, parse
from costbench.training.spec import SPECS, AnySpec

Value = bool | int | float | str | tuple[str, ...] | None
"""Value of one hyper-parameter."""


@dataclass(frozen=True)
class BestTrial:
    """Result of a sweep.

    Attributes:
        task: the compiler's decision that the model learns about.
        study: name of Optuna's study.
        trial: number of the trial in the study, retries not counted.
        monitor: name of the validation metric.
        metric: its value.
        values: values by dotted name below `train.TASK`, such as `net.hidden`.
    """

    task: str
    study: str
    trial: int
    monitor: str
    metric: float
    values: Mapping[str, Value]


def best_path(folder: Path, task: str) -> Path:
    """Returns the path of a task's best trial in the folder of the stage `sweep`."""
    return folder / f"{task}.yaml"


def write_best(path: Path, best: BestTrial) -> None:
    """Writes the file, atomically. Raises: DataError, if that is impossible."""
    content = asdict(best) | {"model": nest(best.values)}
    del content["values"]
    text = StringIO()
    writer = YAML(typ="safe", pure=True)  # sorts keys
    writer.default_flow_style = False
    writer.dump(json.loads(json.dumps(content)), text)  # lists for tuples, which YAML would write with a tag
    write_text(path, text.getvalue())


def read_best(path: Path) -> Mapping[str, object]:
    """Returns the values that a sweep found, as changes to the settings of its task.

    Raises:
        ParamsError: naming the file, if it is missing, is not a result of a sweep, or holds a value that no
            model accepts.
    """
    content = load_yaml(path)
    model, kind = content.get("model"), SPECS.get(str(content.get("task")))
    if not isinstance(model, Mapping) or kind is None:
        raise ParamsError("missing", where=path, field="model", expected="a result of the stage `sweep`")
    parse(kind, merge(asdict(kind()), model), where=path, field="model")
    return model


def with_values(
    spec: AnySpec, values: Mapping[str, Value], *, where: str | PathLike[str], field: str = ""
) -> AnySpec:
    """Returns `spec` with some hyper-parameters, given by dotted name, replaced.

    Raises:
        ParamsError: naming `where` and, below `field`, the hyper-parameter that does not exist or cannot have
            the value.
    """
    return parse(type(spec), merge(asdict(spec), nest(values)), where=where, field=field)
