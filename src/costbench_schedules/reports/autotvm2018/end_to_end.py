"""What tuned operators would save in a network: beside figure 11 of autotvm2018.

The paper times whole networks. Here the times of ResNet-18's convolutions are added up, as often as each
occurs: no other layer, no layout conversion and nothing of a framework is in the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from costbench.reports.table import Column, Table, Value
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.reports.autotvm2018.operators import compared
from costbench_schedules.reports.autotvm2018.part import Part
from costbench_schedules.reports.autotvm2018.results import ScheduleResults

RESNET18: Mapping[str, int] = {
    "C1": 1, "C2": 4, "C3": 1, "C4": 1, "C5": 1, "C6": 3,
    "C7": 1, "C8": 1, "C9": 3, "C10": 1, "C11": 1, "C12": 3,
}  # fmt: skip
"""How often each convolution of autotvm2018 (Table 1) occurs in ResNet-18: four stages of two blocks of two
3 x 3 convolutions, the first with stride 2 in stages 2 to 4, a 1 x 1 convolution past the first block of each
stage, and C1 before them."""
_FLOPS_PER_MS = 1e6
"""Of 1 GFLOPS."""


def part(results: ScheduleResults, _figures: Path) -> Part | None:
    """Returns the sum over the convolutions that were measured both ways; None without any.

    Raises:
        DataError: see `operators.library_times`.
    """
    found = {name: pair for name, pair in compared(results).items() if name in RESNET18}
    if not found:
        return None
    columns = (
        Column("workload", "Convolution"),
        Column("count", "Times", count=True),
        Column("tuned", "fastest recorded", "Milliseconds in one pass", 3, "lower", "time"),
        Column("library", "library", "Milliseconds in one pass", 3, "lower", "time"),
    )
    listed: list[tuple[Value, ...]] = []
    sums = [0.0, 0.0]
    for name, speeds in found.items():
        flops = parse_operator(name).flops * RESNET18[name]
        times = [flops / speed / _FLOPS_PER_MS for speed in speeds]
        sums = [total + time for total, time in zip(sums, times, strict=True)]
        listed.append((name, RESNET18[name], *times))
    count = sum(RESNET18[name] for name in found)
    whole = sum(RESNET18.values())
    part_of = "all" if count == whole else f"{count} of the"
    table = Table(
        "schedule_resnet18",
        f"{part_of.capitalize()} {whole} convolutions of ResNet-18, one image, one thread",
        columns,
        (*listed, ("Sum", count, *sums)),
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
