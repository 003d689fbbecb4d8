"""A roofline of a machine of which only runtimes are known: four constants, fitted to training programs.

A kernel takes a start, and then either as long as its arithmetic or as long as its traffic:

    t = launch + max(a FLOPs + c special functions, b (bytes read + bytes written))

The work is that of the static performance features, counted from the operations alone. The constants have
the least mean of |log(t / runtime)| over training kernels, each application counting the same: a kernel that
takes twice as long as estimated counts as one that takes half as long. Relative errors would be least for
hardly any time at all, since too short a time has at most 100% of them. The sum is not convex, so a simplex
search (Nelder and Mead) goes down from a start of the right scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from costbench.arrays import F64
from costbench.artifacts import read_json, write_json
from costbench.compiler.kernel import Kernel
from costbench.compiler.spaces import TileSizes
from costbench.errors import DataError
from costbench.features.decision_features import static_performance
from costbench.params import parse

ROOFLINE_FILE = "roofline.json"
"""File beside a trained model that reads the estimates of a roofline fitted to its training programs."""
_EVALUATIONS, _RESTARTS, _GAIN = 600, 6, 1e-3


@dataclass(frozen=True)
class Roofline:
    """A fitted roofline; also a cost model of kernels without tile sizes.

    Attributes:
        launch_ns: time to start a kernel.
        ns_per_flop: time of a floating-point operation.
        ns_per_byte: time to read or write a byte.
        ns_per_transcendental: time of a special function.
    """

    launch_ns: float
    ns_per_flop: float
    ns_per_byte: float
    ns_per_transcendental: float

    def estimate(self, static: F64) -> F64:
        """Returns the estimates of kernels in ns, float64 [k], of their static features [k, 4]."""
        return _times(np.array(astuple(self)), static)

    def predict(self, kernel: Kernel, decisions: TileSizes) -> F64:
        """Returns the estimate of a kernel for each decision, which all have the same, float64 [n]."""
        static = static_performance(kernel).astype(np.float64)
        return np.repeat(self.estimate(static[None]), len(decisions))


def _times(constants: F64, static: F64) -> F64:
    flops, read, written, transcendentals = static.T
    launch, per_flop, per_byte, per_transcendental = constants
    compute = per_flop * flops + per_transcendental * transcendentals
    times: F64 = launch + np.maximum(compute, per_byte * (read + written))
    return times


def fit_roofline(static: F64, runtime_ns: F64, weights: F64) -> Roofline:
    """Returns the constants of least mean log error, sum of weights |log(t / runtime)|.

    Args:
        static: static performance features of kernels, float64 [k, 4].
        runtime_ns: their runtimes, float64 [k], positive.
        weights: how much each counts, float64 [k].

    Raises:
        DataError: for no kernels.
    """
    from scipy.optimize import minimize

    if not len(static):
        raise DataError("no kernels to fit a roofline to", expected="one or more")
    share = weights / weights.sum()
    traffic = static[:, 1] + static[:, 2]
    work = np.stack([np.ones(len(static)), static[:, 0], traffic, static[:, 3]], axis=1)
    # Rates that alone explain a quarter of the kernels with such work, and the shortest runtime as launch.
    start = np.array([_rate(runtime_ns, column) for column in work.T])
    start[0] = float(np.min(runtime_ns))

    measured = np.log(runtime_ns)

    def error(logs: F64) -> float:
        return float(share @ np.abs(np.log(_times(np.exp(logs), static)) - measured))

    options: Any = {"maxfev": _EVALUATIONS, "xatol": 1e-4, "fatol": 1e-7, "adaptive": True}
    logs, least = np.log(start), np.inf
    # A simplex that has shrunk onto a fold of the maximum goes on from there once it is large again.
    for _ in range(_RESTARTS):
        optimum = minimize(error, logs, method="Nelder-Mead", options=options)
        logs, before, least = optimum.x, least, float(optimum.fun)
        if least > before - _GAIN:
            break
    return Roofline(*(float(f"{value:.6g}") for value in np.exp(logs)))


def _rate(runtime_ns: F64, work: F64) -> float:
    """Returns the lower quartile of time per unit of work; 1e-3 ns where no kernel has such work."""
    has_work = work > 0.0
    return float(np.quantile(runtime_ns[has_work] / work[has_work], 0.25)) if has_work.any() else 1e-3


def even_weights(applications: Sequence[str]) -> F64:
    """Returns the weight of each kernel, float64 [k], such that all applications count the same."""
    _, index, counts = np.unique(np.array(applications), return_inverse=True, return_counts=True)
    weights: F64 = 1.0 / counts[index]
    return weights


def write_roofline(folder: Path, roofline: Roofline) -> None:
    """Writes a roofline beside the model that reads its estimates. Raises: DataError, if that fails."""
    write_json(folder / ROOFLINE_FILE, asdict(roofline))


def read_roofline(folder: Path) -> Roofline | None:
    """Returns the roofline of a model's folder; None where its estimates are a compiler's.

    Raises:
        DataError: for a damaged file.
    """
    path = folder / ROOFLINE_FILE
    if not path.is_file():
        return None
    return parse(Roofline, read_json(path), where=path, error=DataError)
