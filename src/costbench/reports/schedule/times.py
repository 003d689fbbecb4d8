"""Wall times of models of schedules: facts of the machine at hand (docs/decisions/0034)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from costbench.artifacts import write_json
from costbench.metrics.rows import MetricRow
from costbench.reports.schedule.results import SCHEDULE, TIMES_FILE, ModelTime, ScheduleResults


def rows(results: ScheduleResults) -> tuple[MetricRow, ...]:
    """Returns the times as rows for claims: metric `seconds`, variant `fit` or `predict`."""
    return tuple(
        _row(one, variant, seconds)
        for one in results.times
        for variant, seconds in (("fit", one.fit_s), ("predict", one.predict_s))
    )


def _row(one: ModelTime, variant: str, seconds: float) -> MetricRow:
    return MetricRow(
        task=SCHEDULE,
        split="recorded",
        chip=one.target,
        model=one.arm,
        variant=variant,
        seed=0,
        application=one.application,
        program=one.workload,
        kernels="all",
        metric="seconds",
        value=seconds,
        params_digest="",
        data_digest="",
        git_revision="",
    )


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
