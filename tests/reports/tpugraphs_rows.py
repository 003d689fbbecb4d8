"""Result rows of tile and layout models whose means are known by heart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costbench.metrics.rows import MetricRow
from tests.reports.conftest import make_row

KERNELS = {"p0": 1.0, "p1": 3.0}
WHERE = {"split": "random", "chip": "tpu_v3"}


def tile_rows(errors: Mapping[str, Sequence[float]]) -> list[MetricRow]:
    """Variant -> top-1 error of each program of `KERNELS`; top-5 is half of it, top-10 a tenth."""
    rows = [
        make_row(**WHERE, model="best", program=program, metric="kernels", value=count)
        for program, count in KERNELS.items()
    ]
    shares = {"kernel_top_1": 1.0, "kernel_top_5": 0.5, "kernel_top_10": 0.1}
    for variant, values in errors.items():
        for program, value in zip(KERNELS, values, strict=True):
            where = {**WHERE, "variant": variant, "program": program}
            rows += [make_row(**where, metric=name, value=value * s) for name, s in shares.items()]
            rows += [
                make_row(**where, metric="opa", value=0.9),
                make_row(**where, metric="kendall_tau", value=0.8),
            ]
    return rows


def layout_rows(taus: Mapping[tuple[str, str], Sequence[float]], model: str = "learned") -> list[MetricRow]:
    """(variant, collection) -> tau of programs; top-1 is 10 of all, top-10 5 and top-100 1."""
    rows = []
    for (variant, collection), values in taus.items():
        for place, tau in enumerate(values):
            where = {**WHERE, "task": "layout", "model": model, "variant": variant, "kernels": collection}
            where["program"] = f"{collection.partition(':')[0]}{place}"
            numbers = {"kendall_tau": tau, "opa": 0.7, "top_1": 10.0, "top_10": 5.0, "top_100": 1.0}
            rows += [make_row(**where, metric=name, value=value) for name, value in numbers.items()]
    return rows
