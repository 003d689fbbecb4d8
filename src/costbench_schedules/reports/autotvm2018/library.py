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

from matplotlib.figure import Figure

from costbench.artifacts import read_json
from costbench.errors import DataError
from costbench.metrics.measures import geometric_mean
from costbench.metrics.rows import MAIN, MetricRow, RowOrigin
from costbench.reports.dataset_files import parse_data
from costbench.reports.figures.canvas import PALETTE, save, styled
from costbench.reports.page import PageFigure
from costbench.reports.table import Column, Table, Value
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.reports.autotvm2018.results import (
    BEST,
    SCHEDULE,
    SPLIT,
    Part,
    ScheduleResults,
)
from costbench_schedules.reports.curves import in_order

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
    if times is None or results.processors != (times.processor,):
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
    if not speeds:
        measured = " and ".join(results.processors)
        return Part(
            (
                f"Times of the vendor library are of another processor ({times.processor}) than the "
                f"schedules ({measured}), or of other workloads, so they are not compared.",
            )
        )
    svg, _ = _draw_library(speeds, figures)
    ratio = geometric_mean([best / library for best, library in speeds.values()])
    won = sum(best > library for best, library in speeds.values())
    text = (
        f"Against the vendor library ({times.remark}), the fastest schedules that were recorded are "
        f"{ratio:.3f} times as fast, geometric mean over {len(speeds)} operators, and faster on {won}. They "
        "are the fastest of small sub-spaces, a live search has the whole space; their speed is that of a "
        "second measurement, for the first is the least of a thousand."
    )
    caption = (
        "Ours of autotvm2018's figure 10, single operators: GFLOPS of the fastest recorded schedule, "
        f"measured again, and of the vendor library, one thread of {times.processor}."
    )
    alt = f"Pairs of bars of GFLOPS for {len(speeds)} operators: fastest recorded schedule, vendor library."
    return Part((text,), (PageFigure(svg, alt, caption),), (_library_table(speeds),))


def _library_table(speeds: Mapping[str, tuple[float, float]]) -> Table:
    columns = (
        Column("workload", "Workload"),
        Column("tuned", "fastest, measured again", "GFLOPS", 1, "higher", "speed"),
        Column("library", "library", "GFLOPS", 1, "higher", "speed"),
        Column("ratio", "Tuned over library", "", 3),
    )
    workload_rows = tuple((name, best, library, best / library) for name, (best, library) in speeds.items())
    mean = (
        "Geometric mean",
        geometric_mean([best for best, _ in speeds.values()]),
        geometric_mean([library for _, library in speeds.values()]),
        geometric_mean([best / library for best, library in speeds.values()]),
    )
    return Table(
        "schedule_library", "Single operators and the vendor library", columns, (*workload_rows, mean), 1
    )


def _draw_library(speeds: Mapping[str, tuple[float, float]], folder: Path) -> tuple[Path, ...]:
    """Draws pairs of bars into `autotvm2018_figure10.svg` and `.png`; returns the paths."""
    with styled():
        figure = Figure(figsize=(0.62 * len(speeds) + 1.6, 2.9), layout="constrained")
        axes = figure.subplots()
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
    columns = (
        Column("workload", "Convolution"),
        Column("count", "Times", count=True),
        Column("tuned", "fastest recorded", "Milliseconds in one pass", 3, "lower", "time"),
        Column("library", "library", "Milliseconds in one pass", 3, "lower", "time"),
    )
    convolution_rows: list[tuple[Value, ...]] = []
    sums = [0.0, 0.0]
    for name, pair in speeds.items():
        flops = parse_operator(name).flops * RESNET18[name]
        times = [flops / speed / _FLOPS_PER_MS for speed in pair]
        sums = [total + time for total, time in zip(sums, times, strict=True)]
        convolution_rows.append((name, RESNET18[name], *times))
    count = sum(RESNET18[name] for name in speeds)
    whole = sum(RESNET18.values())
    part_of = "all" if count == whole else f"{count} of the"
    table = Table(
        "schedule_resnet18",
        f"{part_of.capitalize()} {whole} convolutions of ResNet-18, one image, one thread",
        columns,
        (*convolution_rows, ("Sum", count, *sums)),
        1,
        ("Times of single operators, added up; other layers and layout conversions are not in them.",),
    )
    text = (
        f"Beside figure 11 of autotvm2018, which times whole networks: {part_of} {whole} convolutions of "
        f"ResNet-18 take {sums[0]:.2f} ms with the fastest recorded schedules, measured again, "
        f"and {sums[1]:.2f} ms with the library, {sums[1] / sums[0]:.3f} times as long. This "
        "is a sum of single operators, not a run of the network."
    )
    return Part((text,), (), (table,))
