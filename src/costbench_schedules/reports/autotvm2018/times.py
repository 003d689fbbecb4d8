"""Wall times of models of schedules: facts of the machine at hand (docs/decisions/0034)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from costbench.artifacts import write_json
from costbench.metrics.rows import MetricRow, RowOrigin
from costbench_schedules.reports.autotvm2018.results import SCHEDULE, SPLIT, TIMES_FILE, ScheduleResults


def rows(results: ScheduleResults) -> tuple[MetricRow, ...]:
    """Returns the times as rows for claims: metric `seconds`, variant `fit` or `predict`."""
    found: list[MetricRow] = []
    for one in results.times:
        origin = RowOrigin(SCHEDULE, SPLIT, one.target, one.application, one.workload, "", "", "")
        times = {
            (one.arm, "fit", 0): {"seconds": one.fit_s},
            (one.arm, "predict", 0): {"seconds": one.predict_s},
        }
        found += origin.rows("all", times)
    return tuple(found)


def write_machine_times(results: ScheduleResults, folder: Path) -> tuple[Path, ...]:
    """Writes the times into the machine's folder; returns the path, or none where nothing was timed.

    Raises:
        DataError: if the file cannot be written.
    """
    if not results.times:
        return ()
    path = folder / f"schedule_{TIMES_FILE}"
    write_json(path, [asdict(one) for one in results.times])
    return (path,)
