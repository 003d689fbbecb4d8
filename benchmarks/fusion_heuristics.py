"""What XLA's published fusion rules change against the default heuristic: kernels and simulated runtime.

Every program is compiled by both heuristics (`costbench.compiler.heuristics`) and measured on the simulated
chip, each kernel at the tile size that the compiler chooses. `slowdown` is the runtime with the published
rules over that with the default; the last line is the geometric mean over programs and the totals of kernels.

    python -m benchmarks.fusion_heuristics --max-instructions 2000
    python -m benchmarks.fusion_heuristics --program nmt_b32_infer_f32 resnet50_b64_infer_bf16 --json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from costbench.autotuning.kernel_costs import MeasuredKernels, TiledKernels
from costbench.compiler.analytical.model import AnalyticalModel
from costbench.compiler.heuristics import HeuristicProgram
from costbench.hardware.device import Device
from costbench.hlo.reader import read_module
from costbench.metrics.averages import geometric_mean
from costbench.programs.manifest import all_programs
from costbench.target import Target, load_target

FOLDER = Path(__file__).resolve().parents[1] / "data" / "programs"


@dataclass(frozen=True)
class Compiled:
    """A program by one heuristic: kernels in a run of every computation, and nanoseconds of the program."""

    kernels: int
    runtime_ns: float


@dataclass(frozen=True)
class Compared:
    """A program by both."""

    program: str
    instructions: int
    kernels: int
    kernels_published: int
    slowdown: float


def compiled(path: Path, heuristic: str, target: Target) -> Compiled:
    """Compiles and measures a program; a kernel of which no tile fits (top-k of RetinaNet) counts nothing."""
    program = HeuristicProgram(read_module(path), path.name, heuristic)
    tiled = TiledKernels(program.lowering, target.architecture, AnalyticalModel(target.architecture))
    machine = MeasuredKernels(tiled, Device(target), program.fingerprints)
    unique = program.unique_kernels
    costs = machine.costs([one.kernel for one in unique])
    runs = np.array([one.runs_per_program for one in unique])
    fits = np.isfinite(costs)
    return Compiled(len(program.compiled.kernels), float(costs[fits] @ runs[fits]))


def compared(path: Path, name: str, instructions: int, target: Target) -> Compared:
    """Compares both heuristics on a program."""
    default, published = (compiled(path, heuristic, target) for heuristic in ("tpu", "published"))
    slowdown = published.runtime_ns / default.runtime_ns
    return Compared(name, instructions, default.kernels, published.kernels, slowdown)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line a program, then the mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--program", nargs="*", default=[], help="by name; all by default")
    parser.add_argument("--max-instructions", type=int, default=0, help="leave larger programs out; 0: none")
    parser.add_argument("--chip", default="tpu_v3")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    target, found = load_target(chosen.chip), []
    for entry in sorted(all_programs(FOLDER), key=lambda entry: (entry.instructions, entry.name)):
        small = chosen.max_instructions == 0 or entry.instructions <= chosen.max_instructions
        if small and (not chosen.program or entry.name in chosen.program):
            one = compared(FOLDER / entry.file, entry.name, entry.instructions, target)
            found.append(one)
            print(json.dumps(asdict(one)) if chosen.json else one, flush=True)
    mean = geometric_mean([one.slowdown for one in found])
    kernels, published = (sum(getattr(one, key) for one in found) for key in ("kernels", "kernels_published"))
    print(f"{len(found)} programs, slowdown {mean:.4f}, kernels {kernels} and {published}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
