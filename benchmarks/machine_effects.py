"""How much each effect of the simulated machine matters: all parameters refitted without it.

An effect that real runs do not show would lose nothing when it is left out. Every line is a machine with one
effect switched off and everything else fitted anew to the same runs, so that other parameters may make up for
it; code is perfectly regular throughout.

    python -m benchmarks.machine_effects tile_calibration.pb --json effects.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.calibrate_machine import read_recorded
from costbench.artifacts import write_json
from costbench.compiler.lowering.packed import unpacked
from costbench.hardware.calibration import Recorded, fidelity, fit, without_codegen
from costbench.hardware.simulator import simulate_nest
from costbench.metrics.ranking import kendall_tau
from costbench.target import Target, load_target

EFFECTS: dict[str, dict[str, float]] = {
    "nothing left out": {},
    "overlap of copies and compute": {"overlap_exponent": 1.0},
    "pieces, descriptors and banks": {"chunk_ns": 0.0, "descriptor_ns": 0.0, "bank_ns": 0.0},
    "banks": {"bank_ns": 0.0},
    "weight load": {"weight_load_cycles": 0.0},
    "matrix unit drain": {"convolution_drain_ns": 0.0, "dot_drain_ns": 0.0},
    "accumulation": {"accumulate_cycles": 0.0},
    "issue of copies": {"transfer_ns": 0.0},
    "control of iterations": {"iteration_ns": 0.0},
    "latency across lanes": {"cross_lane_ns": 0.0},
    "latency across sublanes": {"cross_sublane_ns": 0.0},
    "moving rows": {"row_move_cycles": 0.0},
    "launch": {"launch_ns": 0.0},
}


@dataclass(frozen=True)
class Effect:
    """A machine without one effect.

    Attributes:
        name: what is left out.
        kendall_tau: mean over kernels of five runs or more.
        tau_fastest_quartile: the same within the fastest quarter.
        top1_slowdown: mean slowdown of the tile it thinks best.
        mape: mean error, percent.
        cost: of the robust least squares, lower is better.
    """

    name: str
    kendall_tau: float | None
    tau_fastest_quartile: float | None
    top1_slowdown: float
    mape: float
    cost: float


def in_memory_order(recorded: Sequence[Recorded]) -> list[Recorded]:
    """The same kernels with loops in the order of memory, not with columns outermost and sums innermost."""
    found = []
    for item in recorded:
        nest = replace(item.nest, words=item.nest.words.copy())
        order = unpacked(nest.words).order
        order.sort()
        found.append(replace(item, nest=nest))
    return found


def without(name: str, recorded: Sequence[Recorded], target: Target, pinned: dict[str, float]) -> Effect:
    """Refits everything but what is pinned, and compares with the runs."""
    found = fit(recorded, target, pinned)
    machine = without_codegen(found.target)
    taus, fast, slow, errors = [], [], [], []
    for item in recorded:
        predicted = simulate_nest(item.nest, item.extents, machine).runtime_ns
        measured = item.kernel.runtime_ns.astype(np.float64)
        quick = measured <= np.quantile(measured, 0.25)
        slow.append(float(measured[predicted.argmin()] / measured.min() - 1.0))
        errors.append(float(np.abs(predicted / measured - 1.0).mean() * 100.0))
        if len(measured) >= 5:
            taus.append(kendall_tau(predicted, measured))
            fast.append(kendall_tau(predicted[quick], measured[quick]))
    means = [float(np.nanmean(values)) for values in (taus, fast, slow, errors)]
    return Effect(name, *means, cost=found.cost)


def order_bias(recorded: Sequence[Recorded], target: Target) -> float:
    """Mean error, percent, over the convolution's tiles that cut rows and columns but not the sum."""
    machine = without_codegen(fit(recorded, target).target)
    item = max(recorded, key=lambda r: len(r.kernel.runtime_ns))
    nest, trips = item.nest, item.nest.trips(item.extents)
    last = nest.num_output_loops
    chosen = (trips[:, last:] == 1).all(axis=1) & (trips[:, last - 1] > 1)
    chosen &= (trips[:, : last - 1] > 1).any(axis=1)
    predicted = simulate_nest(item.nest, item.extents, machine).runtime_ns
    return float(np.abs(predicted / item.kernel.runtime_ns - 1.0)[chosen].mean() * 100.0)


def main(arguments: Sequence[str]) -> None:
    """Reads the arguments, refits without each effect, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="raw TpuGraphs tile-tuning file (.pb)")
    parser.add_argument("--chip", default="tpu_v3", help="chip to start from, by name or file")
    parser.add_argument("--json", type=Path, help="where results are written")
    options = parser.parse_args(arguments)

    target, recorded = load_target(options.chip), read_recorded(options.file)
    other_order = in_memory_order(recorded)
    rows = [without(name, recorded, target, pinned) for name, pinned in EFFECTS.items()]
    rows.append(without("columns outermost, sums innermost", other_order, target, {}))
    print(f"{'without':<36}{'tau':>8}{'fastest':>9}{'top-1':>8}{'MAPE':>8}{'cost':>8}")
    for row in rows:
        print(
            f"{row.name:<36}{row.kendall_tau:>8.3f}{row.tau_fastest_quartile:>9.3f}"
            f"{row.top1_slowdown:>8.2%}{row.mape:>7.1f}%{row.cost:>8.1f}"
        )
    outermost, memory = order_bias(recorded, target), order_bias(other_order, target)
    print("tiles of the largest kernel that cut rows and columns but not the sum, mean error:")
    print(f"  columns outermost {outermost:.1f}%, order of memory {memory:.1f}%")
    if options.json is not None:
        result = {"effects": [vars(row) for row in rows], "fidelity": fidelity(recorded, target).to_dict()}
        write_json(options.json, result | {"order_error": {"columns": outermost, "memory": memory}})


if __name__ == "__main__":
    main(sys.argv[1:])
