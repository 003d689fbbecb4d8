"""How many layout configs a second are priced incrementally, against a full compile of each.

Both price the same configs of a program, random ones and those of a genetic search, from the default on, and
must find the same runtimes and the same main memory. The baseline compiles every program that it has not met
before as a whole (`benchmarks.layout_compiler`), as this project did before; it also prices each
kernel once. Rates are in processor time, so other work on the machine hardly counts.

    python -m benchmarks.layout_pricing
    python -m benchmarks.layout_pricing --programs alexnet_b128_train_f32 --configs 50 --json out.json
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.layout_compiler import CompiledComputation, LayoutCompiler, peak_bytes
from costbench.arrays import I16
from costbench.artifacts import write_json
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel import Kernel
from costbench.compiler.layout.space import LayoutSpace, layout_space
from costbench.compiler.lowering.loop_nest import Lowering
from costbench.datasets.layout_generation import (
    ConfigRuns,
    GeneticParams,
    search_genetically,
    search_randomly,
)
from costbench.datasets.layout_pricing import ATTEMPTS, ProgramPricer, measured_alone
from costbench.errors import UnsupportedKernelError
from costbench.hardware.device import Device
from costbench.hlo.reader import read_module
from costbench.rng import stream
from costbench.target import load_target

PROGRAMS = (
    "alexnet_b128_train_f32",
    "mobilenet_b32_infer_f32",
    "resnet_v1_18_cifar_b128_train_f32",
    "resnet_v2_34_b128_infer_bf16",
    "resnet_parallel_50_b1024_train_bf16",
    "small_bert_L6_H512_b64_train_bf16",
)
FOLDER = Path(__file__).resolve().parents[1] / "data" / "programs"


@dataclass(frozen=True)
class Throughput:
    """Rates for one program.

    Attributes:
        program: its name.
        instructions: number of its instructions.
        configs: number of configs that were priced both ways.
        incremental_per_second: configs per second of processor time.
        full_per_second: the same with full compiles.
        ratio: of the two.
    """

    program: str
    instructions: int
    configs: int
    incremental_per_second: float
    full_per_second: float
    ratio: float


class FullPricer:
    """Prices configs by compiling each new program as a whole; the default first.

    Args:
        space: of the program.
        device: to measure on.
    """

    def __init__(self, space: LayoutSpace, device: Device) -> None:
        self._compiler = LayoutCompiler(space)
        self._device = device
        self._model = AnalyticalModel(device.target.architecture)
        self._kernel_ns: dict[int, float] = {}
        self._programs: dict[int, tuple[float, int]] = {}
        self.price(space.default, attempts=None)

    def price(self, config: I16, attempts: int | None = ATTEMPTS) -> tuple[float, int]:
        """Returns the sum of the kernels' runtimes in ns, and the bytes of main memory."""
        orders, choices = self._compiler.assign(config)
        key = hash(self._compiler.key(orders, choices))
        if key not in self._programs:
            parts = self._compiler.compile_key(orders, choices)
            self._programs[key] = self._total(parts, attempts), memory_bytes(parts, self._compiler.space)
        return self._programs[key]

    def _total(self, parts: Sequence[CompiledComputation], attempts: int | None) -> float:
        total = 0.0
        for part in parts:
            keys = part.hashes.tolist()
            new = {key: number for number, key in reversed(list(enumerate(keys)))}
            new = {key: number for key, number in new.items() if key not in self._kernel_ns}
            if new:
                # One lowering per computation: its kernels share parts that are lowered once.
                lowering = Lowering(part.program(self._compiler.space.module))
                for key, number in new.items():
                    kernel = part.kernel(number, lowering.module)
                    self._kernel_ns[key] = self._kernel(lowering, kernel, attempts)
            total += part.trip_count * sum(self._kernel_ns[key] for key in keys)
        return total

    def _kernel(self, lowering: Lowering, kernel: Kernel, attempts: int | None) -> float:
        try:
            nest = lowering.loop_nest(kernel)
        except UnsupportedKernelError:
            if attempts is None:
                raise
            return float("inf")
        return measured_alone(nest, self._device, self._model, attempts)


def memory_bytes(parts: Sequence[CompiledComputation], space: LayoutSpace) -> int:
    """Returns the bytes of the entry computation plus those of the largest computation that it calls."""
    entry = space.module.entry
    callees = [peak_bytes(part) for part in parts if part.computation != entry]
    return sum(peak_bytes(part) for part in parts if part.computation == entry) + max(callees, default=0)


def configs_of(space: LayoutSpace, pricer: ProgramPricer, name: str, count: int) -> I16:
    """Returns the configs of both searches, half each, in the order in which they are measured."""
    trials = ConfigRuns(space, pricer.measure)
    search_randomly(space, trials, stream(0, "benchmark random", name), count // 2)
    search_genetically(space, trials, stream(0, "benchmark genetic", name), count, GeneticParams())
    return trials.columns()["config_options"].astype(np.int16)


def compare_pricers(name: str, count: int, chip: str) -> Throughput:
    """Prices configs of a program both ways.

    Raises:
        RuntimeError: if they differ.
    """
    module = read_module(FOLDER / f"{name}.hlo.pb.zst")
    device = Device(load_target(chip))
    configs = configs_of(layout_space(module), _pricer(layout_space(module), device), name, count)
    spaces = [layout_space(module) for _ in range(2)]
    start = time.process_time()
    batched = _pricer(spaces[0], device).priced(configs)
    middle = time.process_time()
    pricer = FullPricer(spaces[1], device)
    single = np.array([pricer.price(config) for config in configs])
    end = time.process_time()
    is_equal = (batched.total_ns[:, 0] == single[:, 0]) & (batched.num_bytes == single[:, 1])
    if not is_equal.all():
        raise RuntimeError(
            f"{name}: {np.count_nonzero(~is_equal)} of {len(is_equal)} configs are priced differently"
        )
    rates = len(configs) / (middle - start), len(configs) / (end - middle)
    return Throughput(name, module.num_instructions, len(configs), *rates, rates[0] / rates[1])


def _pricer(space: LayoutSpace, device: Device) -> ProgramPricer:
    return ProgramPricer(space, [device], memory_gib=16.0)


def main(arguments: Sequence[str]) -> int:
    """Prints one line per program; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", nargs="*", default=list(PROGRAMS), help="names of programs")
    parser.add_argument("--configs", type=int, default=240, help="configs per program")
    parser.add_argument("--chip", default="tpu_v3", help="chip to measure on")
    parser.add_argument("--json", type=Path, help="file for the results")
    options = parser.parse_args(arguments)
    compare_pricers("ncf_b8192_infer_bf16", 8, options.chip)  # compiles the compiled functions
    rows = []
    print(f"{'program':44s} {'instructions':>12s} {'configs/s':>10s} {'full':>8s} {'ratio':>7s}")
    for name in options.programs:
        row = compare_pricers(name, options.configs, options.chip)
        rows.append(row)
        rates = f"{row.incremental_per_second:10.1f} {row.full_per_second:8.1f} {row.ratio:7.1f}"
        print(f"{name:44s} {row.instructions:12d} {rates}", flush=True)
    if options.json:
        write_json(options.json, [asdict(row) for row in rows])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
