"""Stores the metrics of a training run in a CSV file after every epoch, so that the curve survives a kill."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from costbench.artifacts import read_bytes, write_text
from costbench.errors import DataError

_KEYS = ("epoch", "step")


class History:
    """Metrics of every epoch in a CSV file, with the columns epoch and step and one column per metric.

    Rows of an existing file are kept, so a resumed training continues its curve; an epoch that is logged
    again replaces its row.

    Args:
        path: of the file, which may exist.
        steps_per_epoch: training steps per epoch.

    Raises:
        DataError: if the file exists and is not a history.
    """

    def __init__(self, path: Path, steps_per_epoch: int) -> None:
        self._path = path
        self._steps_per_epoch = steps_per_epoch
        self._rows = _read(path) if path.exists() else {}

    @property
    def rows(self) -> tuple[tuple[int, Mapping[str, float]], ...]:
        """Return training steps and metrics of the epochs so far."""
        return tuple(sorted(self._rows.items(), key=lambda row: row[0]))

    def log_metrics(self, metrics: Mapping[str, float], step: int = 0) -> None:
        """Record the metrics of the epoch that ended after training step `step`, and write the file."""
        self._rows[step] = {name: float(value) for name, value in metrics.items()}
        names = sorted({name for row in self._rows.values() for name in row})
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow([*_KEYS, *names])
        for place, row in sorted(self._rows.items()):
            values = (repr(row[name]) if name in row else "" for name in names)
            writer.writerow([place // self._steps_per_epoch, place, *values])
        write_text(self._path, stream.getvalue())


def _read(path: Path) -> dict[int, dict[str, float]]:
    rows = csv.DictReader(io.StringIO(read_bytes(path).decode("utf-8")))
    try:
        return {
            int(row["step"]): {
                name: float(value) for name, value in row.items() if name not in _KEYS and value != ""
            }
            for row in rows
        }
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            "is no training history", where=path, expected="the columns epoch and step"
        ) from error
