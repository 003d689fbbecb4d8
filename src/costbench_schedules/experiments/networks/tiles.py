"""Curves over tile sizes, predicted beside measured (crop2024, Figure 6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from costbench.metrics.rows import MAIN, MetricRow, RowOrigin
from costbench_schedules.operators.networks import workload_name
from costbench_schedules.records.networks.estimated import CURVES, read_estimated
from costbench_schedules.spaces.space import ScheduleSpace, tile_name

SPLIT = "tiles"


def tile_rows(folder: Path, origin: tuple[str, str, str]) -> Iterator[MetricRow]:
    """Yields rows of the split `tiles`; none where no curves are recorded.

    The program is an operator. Model `crop` has `chosen_us`, the measured runtime of the tile size that is
    predicted fastest, and `predicted_us:S` for tile size S; model `measured` has `chosen_us`, the fastest
    runtime, and `measured_us:S`.

    Args:
        folder: of `costbench estimate-networks`.
        origin: digests of parameters and programs, revision of the code.

    Raises:
        DataError: if the file of curves is damaged.
    """
    if not (folder / CURVES).is_file():
        return
    found = read_estimated(folder / CURVES)
    columns = found.columns
    for place, operator in enumerate(found.operators):
        own = (columns["operator"] == place) & columns["analysed"] & (columns["native_ns"] > 0)
        if not own.any():
            continue
        space = ScheduleSpace(operator)
        knob = tile_name(operator.spatial[-1])
        tiles = [space.choices(row)[knob] for row in space.rows(columns["number"][own].tolist())]
        sizes = [int(tile[-1]) for tile in tiles if isinstance(tile, tuple)]
        measured = columns["native_ns"][own] / 1e3
        predicted = found.estimates["total"][own] / 1e3
        chosen = float(measured[int(np.argmin(predicted))])
        rows = {
            ("crop", MAIN, 0): {"chosen_us": chosen}
            | {f"predicted_us:{size}": float(v) for size, v in zip(sizes, predicted, strict=True)},
            ("measured", MAIN, 0): {"chosen_us": float(measured.min())}
            | {f"measured_us:{size}": float(v) for size, v in zip(sizes, measured, strict=True)},
        }
        where = RowOrigin("schedule", SPLIT, "native", operator.name, workload_name(operator), *origin)
        yield from where.rows("all", rows)
