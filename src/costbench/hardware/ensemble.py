"""A chip as an ensemble of machines, all of which agree with what was measured, and spreads over them.

The runs of a few kernels do not determine a machine. Beside a chip's file, `<chip>.ensemble.json` holds
timings drawn by `hardware.calibration`, which `python -m benchmarks.calibrate_machine` writes. A result that
holds for all of them does not hang on a parameter that nobody measured.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

import numpy as np

from costbench.errors import ParamsError, TargetError
from costbench.hardware.fidelity import FidelityReport
from costbench.params import parse
from costbench.target import Target, Timing, load_target

SUFFIX = ".ensemble.json"
LOW, HIGH = 0.05, 0.95
"""Quantiles between which nine of ten machines lie."""


@dataclass(frozen=True)
class Spread:
    """Median of a figure over an ensemble, and its 5% and 95% quantiles."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class FidelitySpread:
    """Spreads of the means of `FidelityReport` over the machines of an ensemble; None if undefined."""

    num_machines: int
    kendall_tau: Spread | None
    tau_fastest_quartile: Spread | None
    top1_slowdown: Spread | None
    mape: Spread | None

    def to_dict(self) -> dict[str, object]:
        """Returns plain values for JSON."""
        return asdict(self)


def ensemble_path(chip: str) -> Path:
    """Returns where the ensemble of a chip that ships with the package is kept."""
    return Path(str(importlib.resources.files("costbench") / "chips" / (chip + SUFFIX)))


def load_ensemble(target: Target) -> tuple[Target, ...]:
    """Returns the machines of the ensemble of a chip as it ships with the package, none for any other.

    Machine i is called `<chip>/<i>`, so that the structured effects of generated code, which are drawn by
    name, differ from machine to machine as well.

    Raises:
        TargetError: if the file is damaged.
    """
    path = ensemble_path(target.name)
    if not path.is_file() or target != load_target(target.name):
        return ()
    return read_ensemble(path, target)


def read_ensemble(path: Path, target: Target) -> tuple[Target, ...]:
    """Does the same for a file that `ensemble_text` wrote.

    Raises:
        TargetError: if it holds something else.
    """
    try:
        machines = list(json.loads(path.read_text("utf-8"))["machines"])
    except (ValueError, TypeError, KeyError) as error:
        raise TargetError(f"broken ensemble: {error}", where=path, expected="a list `machines`") from None
    try:
        timings = [
            parse(Timing, timing, where=path, field=f"machines[{i}]") for i, timing in enumerate(machines)
        ]
    except ParamsError as error:
        raise TargetError(
            error.problem, where=error.where, field=error.field, expected=error.expected
        ) from None
    return tuple(
        replace(target, name=f"{target.name}/{number}", timing=timing)
        for number, timing in enumerate(timings)
    )


def ensemble_text(machines: Sequence[Target]) -> str:
    """Returns the file of an ensemble: JSON, a machine a line, four digits."""
    names = [field.name for field in fields(Timing)]
    rows = [
        json.dumps({name: float(f"{getattr(machine.timing, name):.4g}") for name in names})
        for machine in machines
    ]
    return '{"machines": [\n' + ",\n".join(rows) + "\n]}\n"


def spread(values: Sequence[float | None]) -> Spread | None:
    """Returns the spread of the values that are defined; None if there are none."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    low, median, high = np.quantile(known, (LOW, 0.5, HIGH))
    return Spread(float(median), float(low), float(high))


def fidelity_spread(reports: Sequence[FidelityReport]) -> FidelitySpread:
    """Returns the spreads over reports of the same runs by different machines."""
    return FidelitySpread(
        num_machines=len(reports),
        kendall_tau=spread([report.kendall_tau for report in reports]),
        tau_fastest_quartile=spread([report.tau_fastest_quartile for report in reports]),
        top1_slowdown=spread([report.top1_slowdown for report in reports]),
        mape=spread([report.mape for report in reports]),
    )
