"""Reads what the stage `schedules` leaves behind about recorded tables, and defines the parts of the section.

Rows have the type of all result rows: `task` is `schedule`, `split` is `recorded`, `chip` the target that
code was built for, `program` the workload, `application` its operator, `model` the arm, `seed` the repeat.
`kernels` is `all`; every row exists a second time with the operator's name (`conv2d:all`), for claims about
one operator. Wall times of models are facts of the machine at hand (docs/decisions/0034).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path

import pandas as pd

from costbench.artifacts import write_json
from costbench.metrics.rows import MetricRow, RowOrigin, read_rows
from costbench.reports.dataset_files import read_list
from costbench.reports.frame import frame_of, number, select
from costbench.reports.page import PageFigure
from costbench.reports.table import Table
from costbench_schedules.metrics import ModelTime
from costbench_schedules.reports.curves import NO_CURVES, read_curves

SCHEDULE, SPLIT = "schedule", "recorded"
TEMPLATE = Path(__file__).with_name("section.txt.j2")
"""Text of the section."""
ROWS_FILE, CURVES_FILE, TABLES_FILE = "rows.jsonl", "curves.json", "tables.json"
TIMES_FILE = "wall_times.json"
BEST = "best"
"""In place of an arm: what was recorded, whatever searches for it."""


@dataclass(frozen=True)
class RecordedFacts:
    """What is known of a recorded table.

    Attributes:
        target: target that was built for.
        workload: name of the workload.
        operator: description with all extents.
        processor: processor that was measured on.
        configs: number of configurations.
        failed: number of those that failed.
        best_gflops: GFLOPS that the fastest is expected to have when it is measured again.
        fast_share: share of the configurations that have at least 95% of that, measured again.
        median_gflops: median GFLOPS of those that ran.
        tau: rank correlation of repeated with first measurements; None where nothing was repeated.
        spread: 90th percentile of the ratio of two measurements of one configuration.
        trusted: whether tau is high enough for an order of schedules to be the machine's, not the noise's.
        scored: whether searches of it are scored: its fastest schedule was fast a second time.
    """

    target: str
    workload: str
    operator: str
    processor: str
    configs: int
    failed: int
    best_gflops: float
    fast_share: float
    median_gflops: float
    tau: float | None
    spread: float
    trusted: bool
    scored: bool = True


@dataclass(frozen=True, eq=False)
class ScheduleResults:
    """All results on schedules; empty where the stage was not run for them.

    Attributes:
        rows: result rows, see the module's description.
        curves: curves of searches, see `read_curves`.
        tables: facts of the recorded tables.
        times: wall times of models, which differ from machine to machine.
        data: folder of the recorded tables and of what was measured beside them; None without one.
    """

    rows: tuple[MetricRow, ...] = ()
    curves: pd.DataFrame = field(default_factory=NO_CURVES.copy)
    tables: tuple[RecordedFacts, ...] = ()
    times: tuple[ModelTime, ...] = ()
    data: Path | None = None

    @property
    def targets(self) -> tuple[str, ...]:
        """Returns the targets that were searched on; the processor's own before others."""
        return tuple(self.curves["target"].unique())

    def workloads(self, target: str) -> tuple[str, ...]:
        """Returns the workloads that were searched on a target, C1 to C12 before others."""
        return tuple(select(self.curves, target=target)["workload"].unique())

    @property
    def processors(self) -> tuple[str, ...]:
        """Returns the names of the processors that were measured on, sorted."""
        return tuple(sorted({table.processor for table in self.tables}))

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Returns the rows as a frame, see `frame_of`."""
        return frame_of(self.rows)

    @cached_property
    def medians(self) -> pd.DataFrame:
        """Returns medians over repeats: a row for each target, workload and arm, a column for each metric."""
        frame = select(self.frame, split=SPLIT, group="all")
        return frame.groupby(["chip", "program", "model", "metric"])["value"].median().unstack("metric")

    def median(self, target: str, workload: str, arm: str, metric: str) -> float | None:
        """Returns the median over repeats of a metric, or None where the arm was not run."""
        return number(self.medians[metric].get((target, workload, arm))) if metric in self.medians else None


def load_schedules(folder: Path, data: Path | None = None) -> ScheduleResults:
    """Returns the results in the folder `tables` of the stage `schedules`; empty ones without rows.

    Raises:
        DataError: naming the file, if one is missing or malformed.
    """
    if not (folder / ROWS_FILE).is_file():
        return ScheduleResults()
    return ScheduleResults(
        rows=read_rows(folder / ROWS_FILE),
        curves=read_curves(folder / CURVES_FILE),
        tables=read_list(RecordedFacts, folder / TABLES_FILE),
        times=read_list(ModelTime, folder / TIMES_FILE) if (folder / TIMES_FILE).exists() else (),
        data=data,
    )


def time_rows(results: ScheduleResults) -> tuple[MetricRow, ...]:
    """Returns the times as rows for claims: metric `seconds`, variant `fit` or `predict`."""
    metric_rows: list[MetricRow] = []
    for model_time in results.times:
        origin = RowOrigin(
            SCHEDULE, SPLIT, model_time.target, model_time.application, model_time.workload, "", "", ""
        )
        times = {
            (model_time.arm, "fit", 0): {"seconds": model_time.fit_s},
            (model_time.arm, "predict", 0): {"seconds": model_time.predict_s},
        }
        metric_rows += origin.rows("all", times)
    return tuple(metric_rows)


def write_machine_times(results: ScheduleResults, folder: Path) -> tuple[Path, ...]:
    """Writes the times into the machine's folder; returns the path, or none where nothing was timed.

    Raises:
        DataError: if the file cannot be written.
    """
    if not results.times:
        return ()
    path = folder / f"schedule_{TIMES_FILE}"
    write_json(path, [asdict(model_time) for model_time in results.times])
    return (path,)


@dataclass(frozen=True)
class Part:
    """Text, figures and tables of a part of the section.

    Attributes:
        paragraphs: paragraphs of plain text.
        figures: figures that are shown below the text of all parts.
        tables: tables that are shown below the figures.
        shown: number of tables that are open; the others are folded.
    """

    paragraphs: tuple[str, ...] = ()
    figures: tuple[PageFigure, ...] = ()
    tables: tuple[Table, ...] = ()
    shown: int = 1
