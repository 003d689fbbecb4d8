"""Compares recorded layout runs of a real program with the simulated chip: one whole program, many layouts.

Each recorded run names layouts of configurable nodes. The program is compiled under these layouts, and its
kernels are priced at the compiler's tiles, generated code perfectly regular. What the machine cannot run
(collectives between cores) costs nothing, in all runs alike.

    python -m benchmarks.recorded_layouts layout_module.pb --json layouts.json
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.layout_compiler import CompiledComputation, LayoutCompiler, peak_bytes
from costbench.arrays import F64, I16, I64
from costbench.artifacts import write_json
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel import Kernel
from costbench.compiler.layout.space import LayoutSpace, layout_space, option_features
from costbench.compiler.lowering.loop_nest import Lowering
from costbench.compiler.tile_space import nest_tile_space
from costbench.datasets.tpugraphs.raw import TuningProgram, read_layout_tuning
from costbench.errors import UnsupportedKernelError
from costbench.hardware.calibration import without_codegen
from costbench.hardware.simulator import simulate_nest
from costbench.metrics.ranking import kendall_tau
from costbench.metrics.selection import mape
from costbench.target import Target, load_target

_GIB = 1 << 30
PLATEAU_GAP = 1e-3
"""Step between sorted runtimes, as a share, that parts plateaus."""


@dataclass(frozen=True)
class Agreement:
    """Simulated and recorded runs of one program.

    Attributes:
        num_runs: recorded runs that did not fail.
        num_nodes: configurable nodes whose recorded layouts were found among ours, over all runs alike.
        num_missing: recorded layouts, over runs and nodes, that are no option here; the default is used.
        num_programs: different programs that the runs compile to.
        kendall_tau: between simulated and recorded runtimes.
        mape: mean absolute error of the simulated runtimes, percent.
        plateaus: runs on each plateau of recorded runtimes, fastest first; on one, runtimes that follow one
            another differ by less than 0.1%, twice the noise.
        plateau_tau: Kendall's tau between simulated runtimes and plateaus; the order of the runs on one is
            noise.
        recorded_ms: recorded runtime of the default run.
        simulated_ms: the same simulated, collectives left out.
        recorded_spread: slowest over fastest recorded run.
        simulated_spread: the same simulated.
        fastest_to_default: fastest simulated run over the default one.
        memory_gib: least and most main memory that the runs need.
        longest_kernels: milliseconds of the longest kernels of the default run, longest first.
    """

    num_runs: int
    num_nodes: int
    num_missing: int
    num_programs: int
    kendall_tau: float
    mape: float
    plateaus: tuple[int, ...]
    plateau_tau: float
    recorded_ms: float
    simulated_ms: float
    recorded_spread: float
    simulated_spread: float
    fastest_to_default: float
    memory_gib: tuple[float, float]
    longest_kernels: tuple[float, ...]


class RegularPricer:
    """Prices computations compiled under layout configs on a machine with regular code, without noise.

    Args:
        compiler: of the program.
        target: the chip.
    """

    def __init__(self, compiler: LayoutCompiler, target: Target) -> None:
        self._compiler, self._target = compiler, without_codegen(target)
        self._model = AnalyticalModel(target.architecture)
        self.kernel_ns: dict[int, float] = {}

    def total_ns(self, parts: Sequence[CompiledComputation]) -> float:
        """Returns nanoseconds of a run of the program."""
        total = 0.0
        for part in parts:
            lowering = Lowering(part.program(self._compiler.space.module))
            keys = part.hashes.tolist()
            for number, key in enumerate(keys):
                if key not in self.kernel_ns:
                    self.kernel_ns[key] = self._price(lowering, part.kernel(number, lowering.module))
            total += part.trip_count * sum(self.kernel_ns[key] for key in keys)
        return total

    def _price(self, lowering: Lowering, kernel: Kernel) -> float:
        try:
            nest = lowering.loop_nest(kernel)
            extents = self._model.choose(nest_tile_space(nest, self._target.architecture))
            return float(simulate_nest(nest, extents[None], self._target).runtime_ns[0])
        except UnsupportedKernelError:
            return 0.0


def memory_bytes(parts: Sequence[CompiledComputation], entry: int) -> int:
    """Returns the bytes of the entry computation plus those of the largest computation that it calls."""
    callees = [peak_bytes(part) for part in parts if part.computation != entry]
    return sum(peak_bytes(part) for part in parts if part.computation == entry) + max(callees, default=0)


def configs_of(program: TuningProgram, space: LayoutSpace) -> tuple[I16, int, int]:
    """Returns the recorded runs as configs [c, m].

    Beside them, the number of nodes that are configurable on both sides, and that of recorded layouts that
    are no option here.
    """
    first = np.cumsum([0, *(len(body.instructions) for body in program.module.computations)])
    column = {int(node): place for place, node in enumerate(program.node_config_ids)}
    configs = np.zeros((len(program.runtime_ns), len(space.nodes)), dtype=np.int16)
    found = missing = 0
    for k, node in enumerate(space.nodes):
        place = column.get(int(first[node.computation]) + node.position)
        if place is None:
            continue
        found += 1
        options = option_features(node).astype(np.int64)
        for run, layouts in enumerate(program.minor_to_major[:, place].reshape(len(configs), -1)):
            equal = np.flatnonzero((options == layouts).all(axis=1))
            missing += len(equal) == 0
            configs[run, k] = equal[0] if len(equal) else 0
    return configs, found, missing


def plateaus_of(runtime_ns: F64) -> I64:
    """Returns the plateau of each run, counted from the fastest."""
    order = np.argsort(runtime_ns, kind="stable")
    steps = np.diff(runtime_ns[order]) > PLATEAU_GAP * runtime_ns[order][:-1]
    plateaus = np.empty(len(order), dtype=np.int64)
    plateaus[order] = np.concatenate([[0], np.cumsum(steps)])
    return plateaus


def agreement(program: TuningProgram, target: Target) -> Agreement:
    """Compiles and prices the program under all recorded layouts."""
    space = layout_space(program.module)
    configs, found, missing = configs_of(program, space)
    compiler = LayoutCompiler(space)
    pricer = RegularPricer(compiler, target)
    totals, memory, keys = [], [], set()
    for config in configs:
        parts = compiler.compile(config)
        totals.append(pricer.total_ns(parts))
        memory.append(memory_bytes(parts, space.module.entry) / _GIB)
        keys.add(tuple(part.hashes.tobytes() for part in parts))
    default = compiler.compile(space.default)
    default_ns = pricer.total_ns(default)
    longest = sorted(
        (pricer.kernel_ns[key] for part in default for key in part.hashes.tolist()), reverse=True
    )
    runtime = program.runtime_ns.astype(np.float64)
    simulated = np.array(totals)
    plateaus = plateaus_of(runtime)
    return Agreement(
        num_runs=len(runtime),
        num_nodes=found,
        num_missing=missing,
        num_programs=len(keys),
        kendall_tau=kendall_tau(simulated, runtime),
        mape=mape(simulated, runtime),
        plateaus=tuple(np.bincount(plateaus).tolist()),
        plateau_tau=kendall_tau(simulated, plateaus.astype(np.float64)),
        recorded_ms=program.normalizer_ns / 1e6,
        simulated_ms=default_ns / 1e6,
        recorded_spread=float(runtime.max() / runtime.min()),
        simulated_spread=float(simulated.max() / simulated.min()),
        fastest_to_default=float(simulated.min() / default_ns),
        memory_gib=(min(memory), max(memory)),
        longest_kernels=tuple(ns / 1e6 for ns in longest[:5]),
    )


def main(arguments: Sequence[str]) -> None:
    """Reads the arguments, compares, prints, writes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="raw TpuGraphs layout-tuning file (.pb)")
    parser.add_argument("--chip", default="tpu_v3", help="chip by name or file")
    parser.add_argument("--json", type=Path, help="where the result is written")
    options = parser.parse_args(arguments)
    found = asdict(agreement(read_layout_tuning(options.file), load_target(options.chip)))
    for name, value in found.items():
        print(f"{name:<20}{value}")
    if options.json is not None:
        write_json(options.json, found)


if __name__ == "__main__":
    main(sys.argv[1:])
