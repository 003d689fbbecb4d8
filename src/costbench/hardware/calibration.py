"""Fits the simulated machine's `timing` to recorded runs of a real one; samples machines that agree.

Least squares on the log error of every recorded (kernel, tile), robust against outliers (soft L1), with a
weak prior on each parameter so that what the runs do not tell stays at its public or physical value. Kernels
weigh by the square root of the square root of their runs, so that one kernel with hundreds of tiles does not
outvote the rest.

The runs leave many parameters open. `sample_machine` samples what they leave open by the weighted Bayesian
bootstrap with random priors (Newton, Polson and Xu, "Weighted Bayesian bootstrap for scalable posterior
distributions", 2021): kernels get exponential weights, each prior's centre is drawn from the prior, and the
fit is repeated. Parameters that no recorded kernel shows are drawn around their assumed value. Nor do the
runs settle the formulas (`costbench.target.Formulas`), so machines take turns at them: each combination once
before any comes again, all numbers fitted to it. The machines are a chip's ensemble, in a file beside the
chip's, which `python -m benchmarks.calibrate_machine` writes. A result that holds for all of them hangs
neither on a parameter that nobody measured nor on the form of the machine.
"""

from __future__ import annotations

import importlib.resources
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
from scipy.optimize import least_squares

from costbench.arrays import F64, I64
from costbench.artifacts import read_json
from costbench.compiler.lowering.loop_nest import LoopNest, loop_nest
from costbench.errors import DataError, TargetError
from costbench.hardware.fidelity import (
    FidelityReport,
    KernelFidelity,
    RecordedKernel,
    evaluate_fidelity,
    report_of,
)
from costbench.hardware.machine import CHOICES
from costbench.hardware.simulator import simulate_nest
from costbench.params import parse
from costbench.rng import stream
from costbench.target import Formulas, Target, Timing, load_target

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
UNMEASURED: dict[str, float] = {"row_address_ns": 0.7, "codegen_compute_sd": 0.5, "codegen_transfer_sd": 0.5}
"""Parameters that no recorded kernel shows, with the standard deviation of the logarithm of our guess."""
SCALED_SD = 0.2
"""The same of a parameter that is scaled to a chip on which nothing was measured,"""
SCALED_BANDWIDTH_SD = 0.1
"""and of its bandwidths."""
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
ALL_FORMULAS = tuple(Formulas(*rules) for rules in product(*map(get_args, get_type_hints(Formulas).values())))
"""Every combination of rules, the default first."""
SUFFIX = ".ensemble.json"
"""Ending of the file of an ensemble, beside the chip's."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """Recorded runs of one kernel, lowered once for all fits.

    Attributes:
        kernel: the kernel with its tile sizes and runtimes.
        nest: its loop nest.
        extents: loop extents of the tile sizes, [n, num_loops].
    """

    kernel: RecordedKernel
    nest: LoopNest
    extents: I64


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted machine.

    Attributes:
        target: chip with the fitted timing.
        cost: cost of the robust least squares.
        log_sd: standard deviation of the logarithm of each parameter.
        correlation: correlation of these logarithms, [parameters, parameters].
    """

    target: Target
    cost: float
    log_sd: F64
    correlation: F64


@dataclass(frozen=True, eq=False)
class Draw:
    """One draw of the bootstrap.

    Attributes:
        weights: weights of the recorded kernels, mean 1.
        deviations: shifts of the priors' centres, in standard deviations of each prior.
    """

    weights: F64
    deviations: F64


def lower_runs(kernels: Sequence[RecordedKernel]) -> list[Recorded]:
    """Returns recorded kernels with their loop nests and the loop extents of their tiles.

    Raises:
        UnsupportedKernelError: if a kernel cannot be lowered.
    """
    nests = [loop_nest(item.kernel) for item in kernels]
    return [
        Recorded(item, nest, nest.extents(item.tile_sizes)) for item, nest in zip(kernels, nests, strict=True)
    ]


def with_values(target: Target, log_values: F64) -> Target:
    """Returns the chip with the fitted timing parameters, given by their logarithms."""
    return with_timing(target, dict(zip(PRIORS, map(float, np.exp(log_values)), strict=True)))


def with_timing(target: Target, values: Mapping[str, float]) -> Target:
    """Returns the chip with some timing parameters set."""
    return replace(target, timing=replace(target.timing, **values))


def without_codegen(target: Target) -> Target:
    """Returns the chip with perfectly regular generated code, as formulas see it."""
    return with_timing(target, {"codegen_compute_sd": 0.0, "codegen_transfer_sd": 0.0})


def fit(
    recorded: Sequence[Recorded],
    target: Target,
    pinned: Mapping[str, float] | None = None,
    prior_width: float = 1.0,
    draw: Draw | None = None,
) -> Fit:
    """Returns the machine that explains the recorded runs best, by robust least squares from the priors.

    Args:
        recorded: recorded runs.
        target: chip whose other parameters are kept.
        pinned: parameters that keep their value, zero included.
        prior_width: factor on the standard deviation of all priors.
        draw: weights and prior centres of one draw of the bootstrap, instead of equal ones and the priors'.
    """
    regular = without_codegen(target)
    fixed = dict(pinned or {})
    start = np.log([value for value, _ in PRIORS.values()])
    prior_sd = prior_width * np.array([sd for _, sd in PRIORS.values()])
    centre = start if draw is None else start + prior_sd * draw.deviations
    weights = np.ones(len(recorded)) if draw is None else draw.weights

    def residuals(log_values: F64) -> F64:
        machine = with_timing(with_values(regular, log_values), fixed)
        parts = [(log_values - centre) / prior_sd]
        for item, weight in zip(recorded, weights, strict=True):
            measured = item.kernel.runtime_ns.astype(np.float64)
            error = np.log(simulate_nest(item.nest, item.extents, machine).runtime_ns / measured)
            parts.append(error * np.sqrt(weight) * len(measured) ** -0.25 / ERROR_SCALE)
        return np.concatenate(parts)

    solution = least_squares(residuals, start, loss="soft_l1", diff_step=[1e-3], max_nfev=60)
    jacobian: F64 = np.asarray(solution.jac, dtype=np.float64)
    covariance = np.linalg.inv(jacobian.T @ jacobian)
    log_sd = np.sqrt(np.diag(covariance))
    return Fit(
        target=with_timing(with_values(target, solution.x), fixed),
        cost=float(solution.cost),
        log_sd=log_sd,
        correlation=covariance / np.outer(log_sd, log_sd),
    )


def fidelity(recorded: Sequence[Recorded], target: Target) -> FidelityReport:
    """Returns how the simulated runtimes agree with the recorded ones."""
    return evaluate_fidelity([item.kernel for item in recorded], target)


def leave_one_out(recorded: Sequence[Recorded], target: Target, prior_width: float = 1.0) -> FidelityReport:
    """Returns the fidelity of machines that never saw what they predict.

    Each kernel is predicted by a fit to the others, generated code perfectly regular.
    """
    kernels: list[KernelFidelity] = []
    for held in recorded:
        others = [item for item in recorded if item is not held]
        fitted = fit(others, target, prior_width=prior_width).target
        kernels += fidelity([held], without_codegen(fitted)).kernels
    return report_of(target.name, kernels)


def sample_machine(recorded: Sequence[Recorded], target: Target, seed: int, number: int) -> Target:
    """Returns a random machine that agrees with the recorded runs, see the module; repeatable."""
    turn, index = divmod(number, len(ALL_FORMULAS))
    order = stream(seed, "formulas", target.name, turn).permutation(len(ALL_FORMULAS))
    target = replace(target, formulas=ALL_FORMULAS[order[index]])
    generator = stream(seed, "drawn machine", target.name, number)
    weights = generator.exponential(size=len(recorded))
    draw = Draw(weights / weights.mean(), generator.standard_normal(len(PRIORS)))
    guesses = {
        name: getattr(target.timing, name) * float(np.exp(sd * generator.standard_normal()))
        for name, sd in UNMEASURED.items()
    }
    return with_timing(fit(recorded, target, draw=draw).target, guesses)


def scale_timing(source: Target, chip: Target) -> Target:
    """Returns a chip on which nothing was measured with timing that is scaled by the public ratios.

    Nanoseconds of control and latency scale with the clocks, transfers with the nominal bandwidths; what is
    counted in cycles, registers or shares stays, and so do the formulas.
    """
    clock = source.architecture.clock_mhz / chip.architecture.clock_mhz
    bandwidth = chip.architecture.hbm_gb_per_s / source.architecture.hbm_gb_per_s
    values = asdict(source.timing)
    values |= {name: values[name] * clock for name in BY_CLOCK}
    values |= {name: values[name] * bandwidth for name in BY_BANDWIDTH}
    values["bank_ns"] /= bandwidth
    return replace(chip, timing=replace(source.timing, **values), formulas=source.formulas)


def sample_scaling(source: Target, chip: Target, seed: int, number: int) -> Target:
    """Returns a chip as `scale_timing` does, with a random error on each fitted parameter.

    Nobody measured whether the ratios hold.
    """
    generator, scaled = stream(seed, "drawn scaling", chip.name, number), scale_timing(source, chip)
    values = {}
    for name in PRIORS:
        sd = SCALED_BANDWIDTH_SD if name in BY_BANDWIDTH else SCALED_SD
        values[name] = getattr(scaled.timing, name) * float(np.exp(sd * generator.standard_normal()))
    return with_timing(scaled, values)


@dataclass(frozen=True)
class _Machine:
    """What a line of an ensemble's file holds."""

    formulas: Formulas
    timing: Timing


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
        content = read_json(path)
    except DataError as error:
        raise error.recast(TargetError) from error
    rows = content.get("machines") if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise TargetError("broken ensemble", where=path, expected="a list `machines`")
    machines = [
        parse(_Machine, row, where=path, field=f"machines[{number}]", error=TargetError)
        for number, row in enumerate(rows)
    ]
    return tuple(
        replace(target, name=f"{target.name}/{number}", timing=machine.timing, formulas=machine.formulas)
        for number, machine in enumerate(machines)
    )


def ensemble_text(machines: Sequence[Target]) -> str:
    """Returns the file of an ensemble: JSON, a machine a line, four digits."""
    rows = [
        json.dumps(
            {
                "formulas": asdict(machine.formulas),
                "timing": {name: float(f"{value:.4g}") for name, value in asdict(machine.timing).items()},
            }
        )
        for machine in machines
    ]
    return '{"machines": [\n' + ",\n".join(rows) + "\n]}\n"


def machines_by_rule(machines: Sequence[Target]) -> Iterator[tuple[str, str, list[int]]]:
    """Yields each rule and choice of `Formulas` with the numbers of the machines that have it, if any."""
    for rule, choices in CHOICES.items():
        for choice in choices:
            numbers = [i for i, machine in enumerate(machines) if getattr(machine.formulas, rule) == choice]
            if numbers:
                yield rule, choice, numbers
