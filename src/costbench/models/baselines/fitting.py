"""Fits the baselines of a task, keeps them in files, and asks them.

The rows of `costbench.baselines` name the classes. A fitted baseline is one JSON file of a folder that holds
its numbers and their digest: a file is complete and unchanged or fails to load, and trees stand in it as text
in LightGBM's own format. Nothing that is read can run code, and equal models give equal bytes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, Self, cast

import numpy as np

from costbench.arrays import F64
from costbench.artifacts import digest_bytes, read_json, write_json
from costbench.baselines import BASELINES
from costbench.errors import DataError, choose
from costbench.features.feature_shards import FeatureShard
from costbench.features.roofline import Roofline
from costbench.metrics.ranking import count_pairs, tau_of
from costbench.models.baselines.kernel_tables import (
    KernelTable,
    features_digest,
    program_tables,
    sample_kernels,
)
from costbench.models.baselines.layouts import layout_features_digest, sample_layouts
from costbench.models.baselines.spec import BaselineSpec, SampleSpec
from costbench.models.baselines.trees import Trees
from costbench.params import parse
from costbench.tasks import LEARNED

FORMAT = "costbench baseline 1"
_KEYS = ("baseline", "features", "format", "model", "model_sha256", "task")


class FittedBaseline(Protocol):
    """A model of a table's rows: a frozen dataclass of numbers, strings and tuples, which can be stored."""

    @classmethod
    def fit(cls, train: KernelTable, validation: KernelTable, spec: BaselineSpec, seed: int) -> Self:
        """Returns the model fitted to training programs; validation programs may decide when to stop."""
        ...

    def predict(self, table: KernelTable) -> F64:
        """Returns the cost of each row, float64 [D]; in ns if the task asks for runtimes, else in any unit.

        Costs are finite, lower for faster rows, and do not depend on the other rows.
        """
        ...


@cache
def classes_of(task: str) -> Mapping[str, type[FittedBaseline]]:
    """Returns the classes of a task's fitted baselines, by the name of the model in result rows.

    Raises:
        ChoiceError: for a task that no model is trained on.
    """
    choose(LEARNED, task, "task")
    return {
        name: getattr(import_module(row.fitted[task][0]), row.fitted[task][1])
        for name, row in BASELINES.items()
        if task in row.fitted
    }


class _Sampler(Protocol):
    """Draws the samples of some feature shards."""

    def __call__(
        self, paths: Sequence[Path], spec: SampleSpec, seed: int, *, min_configs: int, estimate: str
    ) -> KernelTable: ...


@dataclass(frozen=True)
class _Rows:
    """The rows that baselines read.

    Attributes:
        sample: function that draws those that models are fitted to, from the paths of feature shards.
        digest: function that returns a digest of the names of their columns.
    """

    sample: _Sampler
    digest: Callable[[], str]


_ROWS: Mapping[str, _Rows] = {
    "kernel": _Rows(sample_kernels, features_digest),
    "program": _Rows(sample_layouts, layout_features_digest),
}
"""By what a sample of the task is of."""


@dataclass(frozen=True)
class Fit:
    """A fitted baseline, and what it was given.

    Attributes:
        model: the fitted baseline.
        kernels: number of kernels that it was fitted to.
        samples: number of their decisions.
        validation: mean of Kendall's tau over the validation kernels where decisions are ranked, else the
            mean relative error in percent, of the kernels' weights.
        core_seconds: processor time of reading the samples and fitting.
    """

    model: FittedBaseline
    kernels: int
    samples: int
    validation: float
    core_seconds: float

    @property
    def trees(self) -> int:
        """Returns the number of boosted trees; 0 for other models."""
        return self.model.loaded.num_trees() if isinstance(self.model, Trees) else 0


def fit_all(
    task: str,
    train: Sequence[Path],
    validation: Sequence[Path],
    spec: BaselineSpec,
    seed: int,
    estimate: str = "",
    *,
    only_boosted: bool = False,
    roofline: Roofline | None = None,
) -> dict[str, Fit]:
    """Returns all baselines of a task by name, fitted to the same samples.

    Args:
        task: name of the task.
        train: paths of the feature shards of the training programs.
        validation: paths of the feature shards of the validation programs.
        spec: samples and sizes of the models.
        seed: seed of all draws.
        estimate: quality of the estimates; only baselines that read these are fitted. Empty for all
            baselines, with the estimates of the chip's compiler.
        only_boosted: whether only boosted trees are fitted.
        roofline: formula of the estimates of kernels that a real machine ran; None for the stored ones.

    Raises:
        ChoiceError: for a task that no model is trained on.
        DataError: for damaged shards, or programs without kernels that can be ranked or predicted.
    """
    classes, start = classes_of(task), time.process_time()
    # One decision can be predicted, but there is nothing to rank.
    min_configs = min(2, spec.training.configs)
    fitted, held_out = (
        _ROWS[LEARNED[task].samples].sample(paths, samples, seed, min_configs=min_configs, estimate=estimate)
        for paths, samples in ((train, spec.training), (validation, spec.validation))
    )
    if roofline is not None:
        fitted, held_out = (
            replace(table, analytical_ns=roofline.estimate(table.static)) for table in (fitted, held_out)
        )
    reading_seconds, fits = time.process_time() - start, {}
    for name, cls in classes.items():
        row = BASELINES[name]
        if (estimate and not row.reads_estimate) or (only_boosted and not row.is_boosted):
            continue
        start = time.process_time()
        model = cls.fit(fitted, held_out, spec, seed)
        core_seconds = reading_seconds + time.process_time() - start
        validation_value = _validation_value(task, model, held_out)
        fits[name] = Fit(model, len(fitted.counts), len(fitted), validation_value, core_seconds)
    return fits


def _validation_value(task: str, model: FittedBaseline, table: KernelTable) -> float:
    costs = model.predict(table)
    if not LEARNED[task].ranks_decisions:
        return 100.0 * float(np.average(np.abs(costs / table.runtime_ns - 1.0), weights=table.row_weights))
    ends = np.cumsum(table.counts)[:-1]
    kernels = zip(np.split(costs, ends), np.split(table.runtime_ns, ends), strict=True)
    taus = [tau_of(count_pairs(*kernel)) for kernel in kernels]
    return float(np.average(np.nan_to_num(taus), weights=table.kernel_weights))


def predict_program(models: Mapping[str, FittedBaseline], shard: FeatureShard) -> dict[str, F64]:
    """Returns the costs of all decisions of all kernels of a program by model, float64 [D], in their order.

    Raises:
        DataError: for a damaged shard.
    """
    costs: dict[str, list[F64]] = {name: [np.empty(0)] for name in models}
    for table in program_tables(shard):
        for name, model in models.items():
            costs[name].append(model.predict(table))
    return {name: np.concatenate(parts) for name, parts in costs.items()}


def save_baselines(folder: Path, task: str, models: Mapping[str, FittedBaseline]) -> None:
    """Writes `<name>.json` for each model.

    Raises:
        DataError: if a number is NaN or infinite, or a file cannot be written.
    """
    for name, model in models.items():
        content = asdict(cast("Any", model))
        note = {
            "format": FORMAT,
            "task": task,
            "baseline": name,
            "features": _ROWS[LEARNED[task].samples].digest(),
            "model": content,
            "model_sha256": _digest(content),
        }
        write_json(folder / f"{name}.json", note)


def load_baselines(folder: Path, task: str, names: Iterable[str]) -> dict[str, FittedBaseline]:
    """Returns the named models of a folder.

    Raises:
        ChoiceError: for a name that is no baseline of the task.
        DataError: naming file and field, if one is missing, damaged, of other features or no baseline at all.
    """
    classes = classes_of(task)
    return {name: _load(folder / f"{name}.json", task, choose(classes, name, "baseline")) for name in names}


def _load(path: Path, task: str, cls: type[FittedBaseline]) -> FittedBaseline:
    content = read_json(path)
    if not isinstance(content, dict) or sorted(content) != sorted(_KEYS):
        raise DataError("no baseline", where=path, expected=f"the keys {', '.join(_KEYS)}")
    expected = {
        "format": FORMAT,
        "task": task,
        "baseline": path.stem,
        "features": _ROWS[LEARNED[task].samples].digest(),
        "model_sha256": _digest(content["model"]),
    }
    for key, value in expected.items():
        if content[key] != value:
            raise DataError(f"{str(content[key])[:80]!r}", where=path, field=key, expected=str(value))
    return cast(
        "FittedBaseline",
        parse(cast("Any", cls), content["model"], where=path, field="model", error=DataError),
    )


def _digest(model: object) -> str:
    return digest_bytes(json.dumps(model, sort_keys=True, separators=(",", ":")).encode())
