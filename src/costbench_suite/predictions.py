"""Predictions: one cost for each measured decision, from a file or from a model."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pandas as pd
import pyarrow as pa

from costbench.arrays import F64
from costbench.errors import DataError
from costbench.execution.dotted import errors_of, load_dotted
from costbench_suite.program_tables import ColumnKinds, is_text, read_columns, table_writer
from costbench_suite.task_data import TaskData

_SEED = "seed"
_KINDS: ColumnKinds = {
    "id": is_text,
    "decision": pa.types.is_integer,
    "cost": lambda kind: pa.types.is_floating(kind) or pa.types.is_integer(kind),
    _SEED: pa.types.is_integer,
}
_EXPECTED = "columns id (text), decision (whole number), cost (number), and seed where there are several"


@runtime_checkable
class SuiteModel(Protocol):
    """A cost model as the suite runs one; a class without arguments, in any framework.

    A method `fit(data, train, validation)` is called before the predictions of each fold, on a new model,
    with the names of the programs of the two sets; a model that is fitted to nothing has none.
    """

    def predict(self, data: TaskData, program: str) -> Any:
        """Returns a cost for each row of `data.decisions(program)`, in order; lower is faster."""
        ...


@dataclass(frozen=True)
class Predictions:
    """Costs of all decisions.

    Attributes:
        costs: seed -> program -> cost of each of its decisions, in the order of the data.
        digest: digest of all costs with what they are about, 64 hexadecimal digits.
        fit_s: seconds that fitting took; None where unknown.
        predict_s: seconds that predicting took, without reading the data; None where unknown.
    """

    costs: dict[int, dict[str, F64]]
    digest: str
    fit_s: float | None = None
    predict_s: float | None = None

    @property
    def count(self) -> int:
        """Returns the number of costs."""
        return sum(len(costs) for of_seed in self.costs.values() for costs in of_seed.values())


def read_predictions(path: Path, data: TaskData) -> Predictions:
    """Returns the predictions in a Parquet file, in any order, in the order of the data.

    Raises:
        DataError: in one line with counts, if a decision is missing, predicted twice or unknown, or a cost is
            not finite; for a file that has other columns.
    """
    frame = _read(path)
    expected = {
        program: data.table("decisions", program, ("id", "decision")) for program in data.programs.index
    }
    whole = pd.concat(expected.values(), ignore_index=True)
    seeds = sorted(frame[_SEED].unique().tolist()) or [0]
    costs: dict[int, dict[str, F64]] = {}
    for seed in seeds:
        ordered = _in_order(
            frame[frame[_SEED] == seed], whole, path, f"seed {seed}" if len(seeds) > 1 else ""
        )
        ends = np.cumsum([len(rows) for rows in expected.values()])[:-1]
        costs[int(seed)] = dict(zip(expected, np.split(ordered, ends), strict=True))
    return Predictions(costs, digest_costs(costs))


def _read(path: Path) -> pd.DataFrame:
    table = read_columns(path, _KINDS, _EXPECTED, optional=_SEED)
    # What pandas notes of an index would take a column out of the frame.
    frame: pd.DataFrame = table.to_pandas(ignore_metadata=True).astype(
        {"id": str, "decision": np.int64, "cost": np.float64}
    )
    return frame if _SEED in frame else frame.assign(**{_SEED: 0})


def _in_order(frame: pd.DataFrame, expected: pd.DataFrame, path: Path, field: str) -> F64:
    """Returns the costs of the expected decisions in their order."""
    keys = ["id", "decision"]
    num_double = int(frame.duplicated(keys).sum())
    joined = expected.merge(frame.drop_duplicates(keys), on=keys, how="left", sort=False)
    costs = joined["cost"].to_numpy(dtype=np.float64)
    num_known = int(joined[_SEED].notna().sum())
    counts = {
        "missing": len(expected) - num_known,
        "unknown": len(frame) - num_double - num_known,
        "double": num_double,
        "not finite": int((~np.isfinite(frame["cost"])).sum()),
    }
    if any(counts.values()):
        problem = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        described = f"{len(expected):,} decisions, each with one finite cost"
        raise DataError(problem, where=path, field=field, expected=described)
    return costs


def run_model(name: str, data: TaskData) -> Predictions:
    """Fits a model to each fold and returns its predictions of the fold's tests.

    Args:
        name: `module:Class`.
        data: data of a task.

    Raises:
        DataError: if the model cannot be loaded, fails, or returns anything but a finite cost for each
            decision.
    """
    model_class = load_dotted(name)
    costs: dict[str, F64] = {}
    fit_s = predict_s = 0.0
    for fold in data.folds:
        with errors_of(name):
            model: Any = model_class() if callable(model_class) else model_class
            if not isinstance(model, SuiteModel):
                raise DataError("has no method predict", where=name, expected="predict(data, program)")
            start = time.perf_counter()
            if hasattr(model, "fit"):
                model.fit(data, list(fold.train), list(fold.validation))
            fit_s += time.perf_counter() - start
        for program in fold.test:
            count = len(data.table("decisions", program, ("decision",)))
            start = time.perf_counter()
            with errors_of(name):
                values = np.asarray(model.predict(data, program), dtype=np.float64)
            predict_s += time.perf_counter() - start
            if values.shape != (count,) or not np.isfinite(values).all():
                problem = f"costs of shape {list(values.shape)} for {program}"
                raise DataError(problem, where=name, field="predict", expected=f"{count} finite numbers")
            costs[program] = values
    by_seed = {0: {program: costs[program] for program in data.programs.index}}
    return Predictions(by_seed, digest_costs(by_seed), fit_s, predict_s)


def write_predictions(path: Path, predictions: Predictions, data: TaskData) -> None:
    """Writes predictions as a file that `read_predictions` reads.

    Raises:
        DataError: if it cannot be written.
    """
    with table_writer(path) as writer:
        for seed, by_program in predictions.costs.items():
            for program, costs in by_program.items():
                rows = data.table("decisions", program, ("id", "decision"))
                table = pa.Table.from_pandas(
                    rows.assign(cost=costs, seed=np.int64(seed)), preserve_index=False
                )
                writer.write(table)


def digest_costs(costs: dict[int, dict[str, F64]]) -> str:
    """Returns the digest of costs by seed and program, 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for seed, by_program in sorted(costs.items()):
        for program, values in by_program.items():
            digest.update(f"{seed} {program} {len(values)}\n".encode())
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()
