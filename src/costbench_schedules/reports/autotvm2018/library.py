"""Single operators against the vendor library: figure 10 of autotvm2018, and what that means for a network.

The library's times are those of `costbench record-library`, in `library.json` beside the recorded tables.
They count only if they were measured on the processor that the schedules were measured on. Beside figure 11,
for which the paper times whole networks, the times of ResNet-18's convolutions are added up, as often as each
occurs: no other layer, no layout conversion and nothing of a framework is in the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from costbench.artifacts import read_json
from costbench.errors import DataError
from costbench.metrics.measures import geometric_mean
from costbench.metrics.rows import MAIN, MetricRow, RowOrigin
from costbench.reports.dataset_files import parse_data
from costbench.reports.declared_tables import fill_table
from costbench.reports.figures.canvas import PALETTE, drawing, save
from costbench.reports.page import page_figure, paragraphs
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.reports.autotvm2018.results import (
    BEST,
    SCHEDULE,
    SPLIT,
    TEMPLATE,
    Part,
    ScheduleResults,
)
from costbench_schedules.reports.curves import in_order
from costbench_schedules.reports.tables import TABLES

LIBRARY_FILE = "library.json"
LIBRARY, METRIC, TARGET = "library", "gflops_confirmed", "native"
"""The library in place of an arm; its target is the processor's own."""


@dataclass(frozen=True)
class LibraryTimes:
    """What the library takes.

    Attributes:
        processor: processor that it was timed on.
        gflops: GFLOPS by workload.
        remark: remark on the way it was called.
    """

    processor: str
    gflops: Mapping[str, float]
    remark: str


@dataclass(frozen=True)
class _Speed:
    gflops: float


def library_times(results: ScheduleResults) -> LibraryTimes | None:
    """Returns the library's times; None without any.

    Raises:
        DataError: naming file and field, for a file that `costbench record-library` did not write.
    """
    if results.data is None or not (results.data / LIBRARY_FILE).is_file():
        return None
    path = results.data / LIBRARY_FILE
    content = read_json(path)
    workloads = content.get("workloads") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(workloads, dict):
        raise DataError("no times", where=path, field="workloads", expected="costbench record-library's file")
    speeds = {}
    for name, entry in workloads.items():
        known = {"gflops": entry.get("gflops")} if isinstance(entry, dict) else entry
        speeds[str(name)] = parse_data(_Speed, known, path, f"workloads.{name}").gflops
    return LibraryTimes(str(content.get("processor_name")), speeds, str(content.get("remark", "")))


def compared(results: ScheduleResults) -> Mapping[str, tuple[float, float]]:
    """Returns GFLOPS of the fastest schedule, measured again, and of the library by workload, in order.

    Nothing where the library was timed on another processor; a table without repeats is left out.

    Raises:
        DataError: see `library_times`.
    """
    times = library_times(results)
    processors = {facts.processor for facts in results.tables if facts.target == TARGET}
    if times is None or processors != {times.processor}:
        return {}
    speeds = {}
    for name in sorted(times.gflops, key=in_order):
        best = results.median(TARGET, name, BEST, METRIC)
        if best is not None:
            speeds[name] = (best, times.gflops[name])
    return speeds


def library_rows(results: ScheduleResults) -> tuple[MetricRow, ...]:
    """Returns the library's speeds as rows for claims, of the workloads that were recorded.

    Raises:
        DataError: see `library_times`.
    """
    kinds = {
        facts.workload: facts.operator.partition(":")[0] for facts in results.tables if facts.target == TARGET
    }
    metric_rows: list[MetricRow] = []
    for name, (_, speed) in compared(results).items():
        origin = RowOrigin(SCHEDULE, SPLIT, TARGET, kinds.get(name, ""), name, "", "", "")
        metric_rows += origin.rows("all", {(LIBRARY, MAIN, 0): {METRIC: speed}})
    return tuple(metric_rows)


def library_part(results: ScheduleResults, figures: Path) -> Part | None:
    """Returns the figure and its table; None without times of the library.

    Raises:
        DataError: if the figure cannot be written, or see `library_times`.
    """
    times = library_times(results)
    if times is None or not results.tables:
        return None
    speeds = compared(results)
    words = {"library": times, "operators": len(speeds)}
    if not speeds:
        return Part(paragraphs(TEMPLATE, "library", ratio=None, processors=results.processors, **words))
    svg, _ = _draw_library(speeds, figures)
    ratios = [(name, best, library, best / library) for name, (best, library) in speeds.items()]
    rows = pd.DataFrame(ratios, columns=["workload", "tuned", "library", "ratio"])
    means = rows.drop(columns="workload").agg(geometric_mean)
    won = int((rows["tuned"] > rows["library"]).sum())
    text = paragraphs(TEMPLATE, "library", ratio=means["ratio"], won=won, **words)
    rows = pd.concat([rows, pd.DataFrame([{"workload": "Geometric mean"} | means.to_dict()])])
    table = fill_table("schedule_library", rows, TABLES, averages=1)
    return Part(text, (page_figure(svg, TEMPLATE, "bars", **words),), (table,))


def _draw_library(speeds: Mapping[str, tuple[float, float]], folder: Path) -> tuple[Path, ...]:
    """Draws pairs of bars into `autotvm2018_figure10.svg` and `.png`; returns the paths."""
    with drawing((0.62 * len(speeds) + 1.6, 2.9)) as (figure, ((axes,),)):
        for side, label in enumerate(("fastest recorded", "library")):
            positions = [position + 0.4 * side - 0.2 for position in range(len(speeds))]
            heights = [pair[side] for pair in speeds.values()]
            axes.bar(positions, heights, 0.4, color=PALETTE[side], label=label)
        axes.set_xticks(range(len(speeds)), list(speeds), rotation=45, ha="right")
        axes.set_ylabel("GFLOPS")
        figure.legend(loc="outside upper center", ncols=2, frameon=False)
        return save(figure, folder / "autotvm2018_figure10")


RESNET18: Mapping[str, int] = {
    "C1": 1, "C2": 4, "C3": 1, "C4": 1, "C5": 1, "C6": 3,
    "C7": 1, "C8": 1, "C9": 3, "C10": 1, "C11": 1, "C12": 3,
}  # fmt: skip
"""How often each convolution of autotvm2018 (Table 1) occurs in ResNet-18: four stages of two blocks of two
3 x 3 convolutions, the first with stride 2 in stages 2 to 4, a 1 x 1 convolution past the first block of each
stage, and C1 before them."""
_FLOPS_PER_MS = 1e6
"""Of 1 GFLOPS."""


def resnet_part(results: ScheduleResults, _figures: Path) -> Part | None:
    """Returns the sum over the convolutions that were measured both ways; None without any.

    Raises:
        DataError: see `library_times`.
    """
    speeds = {name: pair for name, pair in compared(results).items() if name in RESNET18}
    if not speeds:
        return None
    flops = {name: parse_operator(name).flops * RESNET18[name] for name in speeds}
    times = [[flops[name] / speed / _FLOPS_PER_MS for speed in pair] for name, pair in speeds.items()]
    tuned, library = (sum(column) for column in zip(*times, strict=True))
    rows: list[dict[str, object]] = [
        {"workload": name, "count": RESNET18[name], "tuned": own, "library": others}
        for name, (own, others) in zip(speeds, times, strict=True)
    ]
    count, whole = sum(RESNET18[name] for name in speeds), sum(RESNET18.values())
    rows.append({"workload": "Sum", "count": count, "tuned": tuned, "library": library})
    part = "all" if count == whole else f"{count} of the"
    words = {"part": part, "whole": whole, "tuned": tuned, "library": library}
    table = fill_table("schedule_resnet18", rows, TABLES, averages=1, part=part.capitalize(), whole=whole)
    return Part(paragraphs(TEMPLATE, "resnet", **words), (), (table,))
