"""Chip descriptions: one YAML file per chip, read strictly into frozen values.

`architecture` holds what is public and what compilers and analytical models may use; `timing` holds the
measured behaviour that only the simulated machine (costbench.hardware) knows.
"""

from __future__ import annotations

import importlib.resources
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from costbench.errors import ParamsError, TargetError, nearest
from costbench.params import later, load_yaml, parse

_MAY_BE_ZERO = frozenset(
    {"codegen_compute_sd", "codegen_transfer_sd", "noise_sd", "noise_short_ns", "failure_rate", "bank_ns"}
)


@dataclass(frozen=True)
class Architecture:
    """Public figures of one core.

    Attributes:
        clock_mhz: clock of the core.
        num_mxus: number of matrix units.
        mxu_size: number of rows and columns of a matrix unit.
        hbm_gb_per_s: nominal bandwidth of main memory, 1e9 bytes per second.
        scratchpad_bytes: size of the scratchpad (VMEM).
        lanes: minor extent of a native tile.
        sublanes: second-minor extent of a native tile.
        estimate: quality of the estimates by which the chip's compiler chooses tile sizes, a key of
            `costbench.compiler.estimate_quality.QUALITIES`.
    """

    clock_mhz: float
    num_mxus: int
    mxu_size: int
    hbm_gb_per_s: float
    scratchpad_bytes: int
    lanes: int
    sublanes: int
    estimate: str = "compiler"

    @property
    def cycle_ns(self) -> float:
        """Returns the nanoseconds of a clock cycle."""
        return 1e3 / self.clock_mhz


@dataclass(frozen=True)
class Timing:
    """Behaviour of the real machine that the simulator reproduces; see docs/hardware.md for each effect.

    Attributes:
        launch_ns: time to start a kernel.
        iteration_ns: time of loop control and synchronisation of one iteration.
        transfer_ns: time to issue one copy by the core.
        read_gb_per_s: sustained bandwidth from main memory.
        write_gb_per_s: sustained bandwidth to main memory.
        chunk_ns: cost of one contiguous piece of a tile.
        descriptor_ns: cost of one strided descriptor.
        bank_ns: extra time of a 4 KiB piece when all pieces fall into the same banks.
        overlap_exponent: q of the soft maximum (a^q + b^q)^(1/q) of transfer and compute.
        weight_load_cycles: cycles to load one 128 x 128 block of weights.
        convolution_drain_ns: fixed time of the matrix unit per iteration of a convolution.
        dot_drain_ns: fixed time of the matrix unit per iteration of a dot.
        accumulate_cycles: cycles to add one register of partial sums.
        vector_cycles: cycles of one vector operation on one register, averaged over issue slots.
        unroll_registers: registers lost to prologue and epilogue of each vector loop.
        transcendental_cycles: cycles of one transcendental on one register.
        random_cycles: cycles to draw random bits for one register.
        cross_lane_ns: latency of reductions across lanes, per iteration.
        cross_sublane_ns: latency of reductions across sublanes, and of moving rows between them.
        row_move_cycles: cycles to move one row of 128 lanes to another sublane.
        packed_move_factor: factor by which that is slower for 16-bit rows, which share a register.
        row_address_ns: time to issue one indexed row (gather, scatter, dynamic slice).
        codegen_compute_sd: log-normal spread of generated code, keyed on its structure.
        codegen_transfer_sd: log-normal spread of copies, keyed on their structure.
        noise_sd: relative noise of a run.
        noise_short_ns: absolute noise that dominates in short kernels.
        failure_floor: share of the scratchpad above which a compile may fail.
        failure_rate: probability of failure with a full scratchpad.
    """

    launch_ns: float
    iteration_ns: float
    transfer_ns: float
    read_gb_per_s: float
    write_gb_per_s: float
    chunk_ns: float
    descriptor_ns: float
    bank_ns: float
    overlap_exponent: float
    weight_load_cycles: float
    convolution_drain_ns: float
    dot_drain_ns: float
    accumulate_cycles: float
    vector_cycles: float
    unroll_registers: float
    transcendental_cycles: float
    random_cycles: float
    cross_lane_ns: float
    cross_sublane_ns: float
    row_move_cycles: float
    packed_move_factor: float
    row_address_ns: float
    codegen_compute_sd: float
    codegen_transfer_sd: float
    noise_sd: float
    noise_short_ns: float
    failure_floor: float
    failure_rate: float


Overlap = Literal["power", "maximum", "share"]
Chunks = Literal["merged", "rows", "bursts"]
Edges = Literal["full", "native", "rows"]


@dataclass(frozen=True)
class Formulas:
    """Rules by which the machine's time follows from its `Timing`; the recorded runs leave them open.

    Attributes:
        overlap: how transfer a and compute b of an iteration combine. `power`: (a^q + b^q)^(1/q), as both
            vary from iteration to iteration and the longer is not always the same. `maximum`: the longer
            one, as two engines that never meet. `share`: the longer one and a share 2^(1/q) - 1 of the other,
            as both want the ports of the scratchpad. Where a equals b, `power` and `share` are the same.
        chunks: how a copy is cut. `merged`: axes that a tile covers completely merge into one contiguous
            chunk. `rows`: the copy engine takes one row of native tiles at a time. `bursts`: as `merged`, but
            memory moves whole bursts of 4 KiB, whose ends a chunk of smaller native tiles need not meet.
        edges: what the vector unit runs over in tiles at the edge of an array. `full`: the tile in full, as
            the bounds of generated loops are constants. `native`: the native tiles that the array has.
            `rows`: the rows that it has, where sublanes that hold none are packed away; lanes stay whole. The
            matrix unit takes tiles in full, which the recorded convolution shows.
    """

    overlap: Overlap = "power"
    chunks: Chunks = "merged"
    edges: Edges = "full"


@dataclass(frozen=True)
class Target:
    """A chip: its name, its public figures and its hidden behaviour, numbers and formulas."""

    name: str
    architecture: Architecture
    timing: Timing
    formulas: Formulas = later(Formulas())  # noqa: RUF009 - frozen


def available_targets() -> tuple[str, ...]:
    """Returns names of the chips that ship with the package."""
    folder = importlib.resources.files("costbench") / "chips"
    return tuple(sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml")))


def check_chip_name(name: str) -> None:
    """Raises TargetError for a name that neither is of a chip of the package nor ends as YAML files do."""
    if not name.endswith((".yaml", ".yml")) and name not in available_targets():
        problem = f"unknown chip {name!r}{nearest(name, available_targets())}"
        expected = f"one of {', '.join(available_targets())}, or a path to a .yaml file"
        raise TargetError(problem, expected=expected)


def load_target(name_or_path: str | Path) -> Target:
    """Returns a chip by name, or from a YAML file of your own.

    Raises:
        TargetError: for an unknown chip, or a file with a missing, unknown, negative or mistyped field.
    """
    text = str(name_or_path)
    check_chip_name(text)
    path = Path(text)
    if not text.endswith((".yaml", ".yml")):
        path = Path(str(importlib.resources.files("costbench") / "chips" / f"{text}.yaml"))
    try:
        target = parse(Target, load_yaml(path), where=str(path))
    except ParamsError as error:
        raise error.recast(TargetError) from None
    _check_positive(target, path)
    return target


def _check_positive(target: Target, path: Path) -> None:
    for section in ("architecture", "timing"):
        values = getattr(target, section)
        for field in fields(values):
            value = getattr(values, field.name)
            if isinstance(value, str):
                continue
            may_be_zero = field.name in _MAY_BE_ZERO
            if value < 0 or (value == 0 and not may_be_zero):
                raise TargetError(
                    f"{value}",
                    where=path,
                    field=f"{section}.{field.name}",
                    expected="a number of at least 0" if may_be_zero else "a number above 0",
                )
