"""Machines on which one effect at a time costs anything, so that times can be worked out by hand."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import loop_nest
from costbench.hardware.simulator import Breakdown, simulate_nest
from costbench.target import Architecture, Target, Timing

ENDLESS = 1e30
NEUTRAL = {
    "read_gb_per_s": ENDLESS,
    "write_gb_per_s": ENDLESS,
    "overlap_exponent": 500.0,
    "packed_move_factor": 1.0,
    "failure_floor": 0.5,
}


def machine(*, num_mxus: int = 1, **timing: float) -> Target:
    """A machine with a clock of 1 GHz (a cycle is a nanosecond) on which only what is named takes time.

    A bandwidth of 1 GB/s moves a byte per nanosecond.
    """
    values = {field.name: 0.0 for field in fields(Timing)} | NEUTRAL | timing
    architecture = Architecture(
        clock_mhz=1000.0,
        num_mxus=num_mxus,
        mxu_size=128,
        hbm_gb_per_s=1.0,
        scratchpad_bytes=16 * 2**20,
        lanes=128,
        sublanes=8,
    )
    return Target("test", architecture, Timing(**values))


def changed(target: Target, **timing: float) -> Target:
    """The same machine with other timing."""
    return replace(target, timing=replace(target.timing, **timing))


def with_rules(target: Target, **rules: str) -> Target:
    """The same machine with other formulas."""
    return replace(target, formulas=replace(target.formulas, **rules))


def price(kernel: Kernel, target: Target, *extents: tuple[int, ...]) -> list[float]:
    """Nanoseconds for loop extents in native tiles, rounded against the arithmetic's last digits."""
    return [round(float(t), 6) for t in breakdown(kernel, target, *extents).runtime_ns]


def breakdown(kernel: Kernel, target: Target, *extents: tuple[int, ...]) -> Breakdown:
    """Where the time goes."""
    nest = loop_nest(kernel)
    return simulate_nest(nest, np.array(extents, dtype=np.int64).reshape(len(extents), -1), target)
