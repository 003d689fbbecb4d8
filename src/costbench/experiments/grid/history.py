"""Stores the metrics of a training run in a CSV file after every epoch, so that the curve survives a kill."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from costbench.artifacts import read_bytes, write_text
from costbench.errors import DataError

_KEYS = ("epoch", "step")
Epoch = tuple[int, int, Mapping[str, float]]
"""Number of an epoch, training steps at its end, and its metrics."""


class History:
    """Metrics of every epoch in a CSV file, with the columns epoch and step and one column per metric.

    Rows of an existing file are kept, so a resumed training continues its curve; an epoch that is logged
    again replaces its row.

    Args:
        path: path of the file, which may exist.
        steps_per_epoch: training steps per epoch.

    Raises:
        DataError: if the file exists and is not a history.
    """

    def __init__(self, path: Path, steps_per_epoch: int) -> None:
        self._path = path
        self._steps_per_epoch = steps_per_epoch
        epochs = read_epochs(path) if path.exists() else ()
        self._rows = {step: metrics for _, step, metrics in epochs}

    @property
    def rows(self) -> tuple[tuple[int, Mapping[str, float]], ...]:
        """Returns training steps and metrics of the epochs so far."""
        return tuple(sorted(self._rows.items(), key=lambda row: row[0]))

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Records the metrics of the epoch that ended after training step `step`, and writes the file."""
        self._rows[step] = {name: float(value) for name, value in metrics.items()}
        rows = ((at_step // self._steps_per_epoch, at_step, row) for at_step, row in self.rows)
        write_text(self._path, history_text(rows))


def history_text(epochs: Iterable[Epoch]) -> str:
    """Returns a history as CSV, in the order of the epochs given."""
    rows = list(epochs)
    names = sorted({name for _, _, metrics in rows for name in metrics})
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([*_KEYS, *names])
    for epoch, step, metrics in rows:
        writer.writerow([epoch, step, *(repr(metrics[name]) if name in metrics else "" for name in names)])
    return stream.getvalue()


def read_epochs(path: Path) -> tuple[Epoch, ...]:
    """Returns the rows of a history. Raises: DataError, if the file is missing or no history."""
    rows = csv.DictReader(io.StringIO(read_bytes(path).decode("utf-8")))
    try:
        return tuple(
            (
                int(row["epoch"]),
                int(row["step"]),
                {name: float(value) for name, value in row.items() if name not in _KEYS and value != ""},
            )
            for row in rows
        )
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            "is no training history", where=path, expected="the columns epoch and step"
        ) from error
