"""Compares recorded runtimes of a real TPU with those of the simulated chip."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike

from costbench.datasets.tpugraphs.raw import read_tile_tuning
from costbench.errors import DataError
from costbench.hardware.calibration import leave_one_out, load_ensemble, lower_runs, machines_by_rule
from costbench.hardware.fidelity import (
    FidelityReport,
    FidelitySpread,
    RecordedKernel,
    evaluate_fidelity,
    fidelity_spread,
)
from costbench.target import Target


@dataclass(frozen=True)
class RecordedRunsReport:
    """How well a chip predicts recorded runs.

    Attributes:
        chip: by the chip's own timing.
        spread: over the machines of its ensemble; None for a chip without one.
        by_rule: rule of the formulas -> its choice -> the same over those machines that have it.
        held_out: each kernel by a machine fitted to the others; None where this was not asked for.
    """

    chip: FidelityReport
    spread: FidelitySpread | None = None
    by_rule: Mapping[str, Mapping[str, FidelitySpread]] = field(default_factory=dict)
    held_out: FidelityReport | None = None

    def to_dict(self) -> dict[str, object]:
        """Returns plain values for JSON: of the chip, then `ensemble`, `by_rule` and `leave_one_out`."""
        by_rule = {
            rule: {choice: spread.to_dict() for choice, spread in choices.items()}
            for rule, choices in self.by_rule.items()
        }
        return self.chip.to_dict() | {
            "ensemble": self.spread and self.spread.to_dict(),
            "by_rule": by_rule,
            "leave_one_out": self.held_out and self.held_out.to_dict(),
        }


def recorded_kernels(path: str | PathLike[str]) -> list[RecordedKernel]:
    """Returns the kernels of a raw TpuGraphs tile-tuning file that ran at least once.

    Raises:
        DataError: if the file is missing, no tile-tuning file, or holds no run that did not fail.
    """
    recorded = [
        RecordedKernel(item.module.name, item.kernel, item.tile_sizes, item.runtime_ns)
        for item in read_tile_tuning(path)
        if len(item.runtime_ns)
    ]
    if not recorded:
        raise DataError("no runs", where=path, expected="tile sizes that were measured and did not fail")
    return recorded


def evaluate_file(
    path: str | PathLike[str], target: Target, *, with_held_out: bool = False
) -> RecordedRunsReport:
    """Prices every recorded (kernel, tile size) of a raw TpuGraphs tile-tuning file and compares.

    Args:
        path: the file.
        target: the chip; if it ships with an ensemble, every machine of it is compared as well.
        with_held_out: whether machines are fitted to all kernels of the file but one, and compared on that.

    Raises:
        DataError: if the file is missing, no tile-tuning file, or holds no run that did not fail; or if it
            holds a single kernel where one is to be held out.
        UnsupportedKernelError: if the simulated chip can price none of the kernels.
    """
    recorded = recorded_kernels(path)
    if with_held_out and len(recorded) < 2:
        raise DataError("one kernel with runs", where=path, expected="two or more, to hold one out")
    report = evaluate_fidelity(recorded, target)
    priced_names = {kernel.name for kernel in report.kernels}
    priced = [kernel for kernel in recorded if kernel.name in priced_names]
    machines = load_ensemble(target)
    reports = [evaluate_fidelity(priced, machine) for machine in machines]
    by_rule: dict[str, dict[str, FidelitySpread]] = {}
    for rule, choice, numbers in machines_by_rule(machines):
        by_rule.setdefault(rule, {})[choice] = fidelity_spread([reports[number] for number in numbers])
    return RecordedRunsReport(
        chip=report,
        spread=fidelity_spread(reports) if reports else None,
        by_rule=by_rule,
        held_out=leave_one_out(lower_runs(priced), target) if with_held_out else None,
    )
