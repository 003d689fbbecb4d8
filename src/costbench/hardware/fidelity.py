"""Compares simulated machines with real runs: prices every recorded (kernel, tile) and reports errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from costbench.arrays import F64, I64
from costbench.compiler.kernel import Kernel
from costbench.compiler.spaces import TileSizes
from costbench.errors import DataError, UnsupportedKernelError
from costbench.hardware.simulator import simulate
from costbench.metrics.ranking import kendall_tau
from costbench.metrics.selection import mape
from costbench.target import Target

MIN_RUNS_FOR_RANKING = 5
"""Kernels with fewer runs say little about a ranking; they count for the errors only."""
FASTEST_SHARE = 0.25


@dataclass(frozen=True, eq=False)
class RecordedKernel:
    """Real runs of one kernel.

    Attributes:
        name: name of the kernel.
        kernel: kernel that ran.
        tile_sizes: `n` tile sizes that ran.
        runtime_ns: measured runtimes, [n].
    """

    name: str
    kernel: Kernel
    tile_sizes: TileSizes
    runtime_ns: I64


@dataclass(frozen=True)
class KernelFidelity:
    """Agreement of simulated with measured runtimes of one kernel.

    Attributes:
        name: name of the kernel.
        num_runs: number of recorded tile sizes.
        kendall_tau: rank correlation; None where it is undefined (all runtimes equal, or one run).
        top1_slowdown: measured runtime of the tile that the simulator ranks first, over the best, minus 1.
        mape: mean absolute percentage error of the runtimes.
        tau_fastest_quartile: rank correlation within the fastest quarter of the measured runs.
    """

    name: str
    num_runs: int
    kendall_tau: float | None
    top1_slowdown: float
    mape: float
    tau_fastest_quartile: float | None


@dataclass(frozen=True)
class UnpricedKernel:
    """A recorded kernel that the machine could not price, with the reason."""

    name: str
    num_runs: int
    reason: str


@dataclass(frozen=True)
class FidelityReport:
    """Results of all kernels of a file, and means over those that could be priced.

    `kendall_tau` and `tau_fastest_quartile` average over kernels of at least five runs, `top1_slowdown` and
    `mape` (percent) over all kernels, each kernel counting once.
    """

    chip: str
    kernels: tuple[KernelFidelity, ...]
    kendall_tau: float | None
    top1_slowdown: float
    mape: float
    tau_fastest_quartile: float | None
    unpriced: tuple[UnpricedKernel, ...] = ()

    def to_dict(self) -> dict[str, object]:
        """Returns plain values for JSON: `chip`, `kernels` and `unpriced` (lists) and `overall`."""
        overall = {
            "num_kernels": len(self.kernels),
            "num_runs": sum(k.num_runs for k in self.kernels),
            "kendall_tau": self.kendall_tau,
            "top1_slowdown": self.top1_slowdown,
            "mape": self.mape,
            "tau_fastest_quartile": self.tau_fastest_quartile,
        }
        return {
            "chip": self.chip,
            "kernels": [asdict(k) for k in self.kernels],
            "overall": overall,
            "unpriced": [asdict(k) for k in self.unpriced],
        }


def evaluate_fidelity(recorded: Sequence[RecordedKernel], target: Target) -> FidelityReport:
    """Prices every recorded tile size and compares; kernels that cannot be priced are listed in `unpriced`.

    Raises:
        DataError: if nothing was recorded.
        UnsupportedKernelError: if not one kernel can be priced.
    """
    if not recorded:
        raise DataError("no recorded kernels", expected="at least one kernel with a run that did not fail")
    priced: list[KernelFidelity] = []
    unpriced: list[UnpricedKernel] = []
    for item in recorded:
        try:
            priced.append(_kernel_fidelity(item, target))
        except UnsupportedKernelError as error:
            unpriced.append(UnpricedKernel(item.name, len(item.runtime_ns), str(error)))
            if len(unpriced) == len(recorded):
                raise
    return report_of(target.name, priced, unpriced)


def report_of(
    chip: str, kernels: Sequence[KernelFidelity], unpriced: Sequence[UnpricedKernel] = ()
) -> FidelityReport:
    """Returns the report of kernels, each of which may come from another machine; there is at least one."""
    ranked = [k for k in kernels if k.num_runs >= MIN_RUNS_FOR_RANKING]
    return FidelityReport(
        chip=chip,
        kernels=tuple(kernels),
        kendall_tau=_mean([k.kendall_tau for k in ranked]),
        top1_slowdown=float(np.mean([k.top1_slowdown for k in kernels])),
        mape=float(np.mean([k.mape for k in kernels])),
        tau_fastest_quartile=_mean([k.tau_fastest_quartile for k in ranked]),
        unpriced=tuple(unpriced),
    )


def _kernel_fidelity(item: RecordedKernel, target: Target) -> KernelFidelity:
    predicted = simulate(item.kernel, item.tile_sizes, target).runtime_ns
    measured = item.runtime_ns.astype(np.float64)
    fast = measured <= np.quantile(measured, FASTEST_SHARE)
    return KernelFidelity(
        name=item.name,
        num_runs=len(measured),
        kendall_tau=_tau(predicted, measured),
        top1_slowdown=float(measured[np.argmin(predicted)] / measured.min() - 1.0),
        mape=mape(predicted, measured),
        tau_fastest_quartile=_tau(predicted[fast], measured[fast]),
    )


def _tau(predicted: F64, measured: F64) -> float | None:
    if len(measured) < 2:
        return None
    tau = kendall_tau(predicted, measured)
    return None if np.isnan(tau) else float(tau)


def _mean(values: Sequence[float | None]) -> float | None:
    defined = [v for v in values if v is not None]
    return float(np.mean(defined)) if defined else None


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


def spread(values: Sequence[float | None]) -> Spread | None:
    """Returns the spread of the values that are defined; None if there are none."""
    defined = [value for value in values if value is not None]
    if not defined:
        return None
    low, median, high = np.quantile(defined, (LOW, 0.5, HIGH))
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
