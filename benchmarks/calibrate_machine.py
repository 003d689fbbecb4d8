"""Fits the simulated machine's `timing` to real tile-tuning runs, and tests the fit on kernels left out.

Least squares on the log error of every recorded (kernel, tile), robust against outliers (soft L1), with a
weak prior on each parameter so that what the runs do not tell stays at its public or physical value. Kernels
weigh by the square root of the square root of their runs, so that one kernel with hundreds of tiles does not
outvote the rest. Prints fidelity before and after, each kernel predicted by a fit without it, and how well
each parameter is known.

    python -m benchmarks.calibrate_machine tile_calibration.pb
    python -m benchmarks.calibrate_machine tile_calibration.pb --write src/costbench/chips/tpu_v3.yaml \\
        --scaled src/costbench/chips/tpu_v2.yaml
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from costbench import artifacts
from costbench.compiler.lowering.loop_nest import LoopNest, loop_nest
from costbench.datasets.tpugraphs.raw import read_tile_tuning
from costbench.hardware.fidelity import FidelityReport, RecordedKernel, evaluate_fidelity
from costbench.hardware.simulator import simulate_nest
from costbench.target import Target, load_target

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

PRIORS: dict[str, tuple[float, float]] = {
    # Parameter: (value expected before any fit, standard deviation of its logarithm).
    "launch_ns": (375.0, 0.15),  # launches of 0.3 to 0.45 us
    "iteration_ns": (50.0, 0.7),  # 70 to 125 ns of control and latency per iteration, all copies together
    "transfer_ns": (50.0, 0.7),
    "read_gb_per_s": (417.0, 0.03),  # large contiguous reads
    "write_gb_per_s": (375.0, 0.05),
    "chunk_ns": (2.0, 1.0),
    "descriptor_ns": (8.0, 1.0),
    "bank_ns": (6.6, 0.4),  # half of the contiguous rate for pieces of 4 KiB
    "overlap_exponent": (4.0, 0.5),
    "weight_load_cycles": (128.0, 0.15),  # a matrix unit has 128 rows of weights
    "convolution_drain_ns": (376.0, 0.2),  # tiny convolution tiles take some 400 ns more than others
    "dot_drain_ns": (222.0, 0.3),
    "accumulate_cycles": (0.85, 0.4),
    "vector_cycles": (0.5, 0.5),  # two operations per cycle
    "unroll_registers": (6.0, 0.7),
    "transcendental_cycles": (4.0, 0.1),
    "random_cycles": (4.0, 1.0),
    "cross_lane_ns": (150.0, 0.2),
    "cross_sublane_ns": (75.0, 0.7),
    "row_move_cycles": (0.125, 0.7),  # eight rows per cycle
    "packed_move_factor": (2.5, 0.2),
}
ERROR_SCALE = 0.06
"""Typical relative error of a good fit; separates noise from outliers."""
BY_CLOCK = (
    "launch_ns",
    "iteration_ns",
    "transfer_ns",
    "chunk_ns",
    "descriptor_ns",
    "convolution_drain_ns",
    "dot_drain_ns",
    "cross_lane_ns",
    "cross_sublane_ns",
    "row_address_ns",
)
BY_BANDWIDTH = ("read_gb_per_s", "write_gb_per_s")


@dataclass(frozen=True, eq=False)
class Recorded:
    """One kernel, its tiles laid out once for all fits."""

    kernel: RecordedKernel
    nest: LoopNest
    extents: IntArray


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted machine.

    Attributes:
        target: with the fitted timing.
        cost: of the robust least squares.
        log_sd: standard deviation of the logarithm of each parameter.
        correlation: of these logarithms, [parameters, parameters].
    """

    target: Target
    cost: float
    log_sd: FloatArray
    correlation: FloatArray


def read_recorded(path: Path) -> list[Recorded]:
    """Kernels of a tuning file that ran at least once."""
    found = []
    for item in read_tile_tuning(path):
        if len(item.runtime_ns):
            nest = loop_nest(item.kernel)
            kernel = RecordedKernel(item.name, item.kernel, item.tile_sizes, item.runtime_ns)
            found.append(Recorded(kernel, nest, nest.extents(item.tile_sizes)))
    return found


def with_values(target: Target, log_values: FloatArray) -> Target:
    """The chip with other timing parameters."""
    values = dict(zip(PRIORS, map(float, np.exp(log_values)), strict=True))
    return replace(target, timing=replace(target.timing, **values))


def with_pinned(target: Target, values: Mapping[str, float]) -> Target:
    """The chip with some timing parameters set."""
    return replace(target, timing=replace(target.timing, **values))


def without_codegen(target: Target) -> Target:
    """The chip with perfectly regular generated code, as formulas see it."""
    return with_pinned(target, {"codegen_compute_sd": 0.0, "codegen_transfer_sd": 0.0})


def fit(
    recorded: Sequence[Recorded],
    target: Target,
    pinned: Mapping[str, float] | None = None,
    prior_width: float = 1.0,
) -> Fit:
    """Least squares over all recorded runs; `pinned` parameters keep their value, zero included."""
    regular = without_codegen(target)
    fixed = dict(pinned or {})
    start = np.log([value for value, _ in PRIORS.values()])
    prior_sd = prior_width * np.array([sd for _, sd in PRIORS.values()])

    def residuals(log_values: FloatArray) -> FloatArray:
        machine = with_pinned(with_values(regular, log_values), fixed)
        parts = [(log_values - start) / prior_sd]
        for item in recorded:
            measured = item.kernel.runtime_ns.astype(np.float64)
            error = np.log(simulate_nest(item.nest, item.extents, machine).runtime_ns / measured)
            parts.append(error * len(measured) ** -0.25 / ERROR_SCALE)
        return np.concatenate(parts)

    found = least_squares(residuals, start, loss="soft_l1", diff_step=1e-3, max_nfev=60)
    covariance = np.linalg.inv(found.jac.T @ found.jac)
    log_sd = np.sqrt(np.diag(covariance))
    return Fit(
        target=with_pinned(with_values(target, found.x), fixed),
        cost=float(found.cost),
        log_sd=log_sd,
        correlation=covariance / np.outer(log_sd, log_sd),
    )


def fidelity(recorded: Sequence[Recorded], target: Target) -> FidelityReport:
    """Simulated against measured."""
    return evaluate_fidelity([item.kernel for item in recorded], target)


def leave_one_out(recorded: Sequence[Recorded], target: Target, prior_width: float) -> list[FidelityReport]:
    """Each kernel as predicted by a machine that was fitted to the others."""
    reports = []
    for held in recorded:
        others = [item for item in recorded if item is not held]
        found = fit(others, target, prior_width=prior_width)
        reports.append(fidelity([held], without_codegen(found.target)))
    return reports


def print_report(title: str, reports: Sequence[FidelityReport]) -> None:
    """One line per kernel, and means: tau over kernels of five runs or more, errors over all."""
    print(f"\n{title}")
    print(f"  {'kernel':<14}{'runs':>5}{'tau':>8}{'fastest':>9}{'top-1':>8}{'MAPE':>8}")
    kernels = [kernel for report in reports for kernel in report.kernels]
    for k in kernels:
        tau, fast = (
            "-" if value is None else f"{value:.3f}" for value in (k.kendall_tau, k.tau_fastest_quartile)
        )
        print(f"  {k.name:<14}{k.num_runs:>5}{tau:>8}{fast:>9}{k.top1_slowdown:>8.2%}{k.mape:>7.1f}%")
    taus = [k.kendall_tau for k in kernels if k.num_runs >= 5 and k.kendall_tau is not None]
    fast = [k.tau_fastest_quartile for k in kernels if k.num_runs >= 5 and k.tau_fastest_quartile is not None]
    slow = float(np.mean([k.top1_slowdown for k in kernels]))
    error = float(np.mean([k.mape for k in kernels]))
    mean_tau = float(np.mean(taus)) if taus else float("nan")
    mean_fast = float(np.mean(fast)) if fast else float("nan")
    print(f"  {'mean':<19}{mean_tau:>8.3f}{mean_fast:>9.3f}{slow:>8.2%}{error:>7.1f}%")


def print_parameters(before: Target, found: Fit) -> None:
    """Values before and after, how well they are known, and what they cannot be told apart from."""
    print(f"\n  {'parameter':<22}{'before':>10}{'after':>10}{'known to':>10}  told apart badly from")
    names = list(PRIORS)
    for i, name in enumerate(names):
        after = getattr(found.target.timing, name)
        row = np.abs(np.where(np.arange(len(names)) == i, 0.0, found.correlation[i]))
        other = int(row.argmax())
        confused = f"{names[other]} ({found.correlation[i, other]:+.2f})" if row[other] > 0.6 else ""
        line = f"  {name:<22}{getattr(before.timing, name):>10.4g}{after:>10.4g}{found.log_sd[i]:>9.0%}  "
        print((line + confused).rstrip())


def scaled(source: Target, chip: Target) -> Target:
    """Timing for a chip on which nothing was measured, by the public ratios.

    Nanoseconds of control and latency scale with the clocks, transfers with the nominal bandwidths; what is
    counted in cycles, registers or shares stays.
    """
    clock = source.architecture.clock_mhz / chip.architecture.clock_mhz
    bandwidth = chip.architecture.hbm_gb_per_s / source.architecture.hbm_gb_per_s
    values = asdict(source.timing)
    values |= {name: values[name] * clock for name in BY_CLOCK}
    values |= {name: values[name] * bandwidth for name in BY_BANDWIDTH}
    values["bank_ns"] /= bandwidth
    return replace(chip, timing=replace(source.timing, **values))


def write_timing(path: Path, target: Target) -> None:
    """Puts timing into a chip's file, to four digits; everything else in it stays."""
    text = path.read_text("utf-8")
    for name, value in asdict(target.timing).items():
        text, count = re.subn(rf"(?m)^  {name}: .*$", f"  {name}: {float(f'{value:.4g}')}", text)
        if count != 1:
            raise SystemExit(f"{path}: {name} occurs {count} times, expected once")
    artifacts.write_text(path, text)


def main(arguments: Sequence[str]) -> None:
    """Reads the arguments, fits, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="raw TpuGraphs tile-tuning file (.pb)")
    parser.add_argument("--chip", default="tpu_v3", help="chip to start from, by name or file")
    parser.add_argument("--prior-width", type=float, default=1.0, help="how much wider priors are taken")
    parser.add_argument("--write", type=Path, help="chip file whose timing is replaced")
    parser.add_argument("--scaled", type=Path, help="file of another chip that gets the scaled timing")
    parser.add_argument("--json", type=Path, help="where results are written")
    options = parser.parse_args(arguments)

    target = load_target(options.chip)
    recorded = read_recorded(options.file)
    before = fidelity(recorded, target)
    found = fit(recorded, target, prior_width=options.prior_width)
    after, regular = fidelity(recorded, found.target), fidelity(recorded, without_codegen(found.target))
    held_out = leave_one_out(recorded, target, options.prior_width)
    print_report(f"{target.name} as it is", [before])
    print_report("fitted", [after])
    print_report("fitted, generated code perfectly regular", [regular])
    print_report("each kernel as predicted by a fit to the others, generated code regular", held_out)
    print_parameters(target, found)
    if options.write is not None:
        write_timing(options.write, found.target)
    if options.scaled is not None:
        write_timing(options.scaled, scaled(found.target, load_target(options.scaled)))
    if options.json is not None:
        result = {
            "before": before.to_dict(),
            "after": after.to_dict(),
            "regular_code": regular.to_dict(),
            "leave_one_out": [asdict(kernel) for report in held_out for kernel in report.kernels],
            "timing": asdict(found.target.timing),
            "log_sd": dict(zip(PRIORS, map(float, found.log_sd), strict=True)),
            "cost": found.cost,
        }
        artifacts.write_text(options.json, json.dumps(result, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
