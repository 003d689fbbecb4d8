"""Times of programs built for other instruction sets, predicted from the features of one build.

Features were taken of programs built for the processor itself (`costbench repeat-networks` or
`record-networks`, a folder of recordings). The same schedules built for other instruction sets are predicted
by the same features and a description of the processor that is restricted to the set: its vectors, its
registers, whether it multiplies and adds at once. Sets are `native`, `x86-64-v3` (AVX2 and fused
multiplications, which is measured here, with the extra `cpu`, and kept in `--out`) and `generic` (SSE2, which
is in the recording). Printed are, for each set, scores as in `benchmarks.crop_processors`: of the restricted
description (`crop`), of that of the whole processor, and of the times of the native build.

    python -m benchmarks.crop_targets recorded --processor amd_epyc_zen5 --most 12
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.crop_processors import FEWEST, OWN, THERE, Shared, table
from costbench.artifacts import read_json, write_json
from costbench.errors import CostbenchError, DataError
from costbench_schedules.crop.estimate import Estimator
from costbench_schedules.devices.device import CpuDevice
from costbench_schedules.devices.process import Limits
from costbench_schedules.devices.processor import OPTIONAL, Processor, load_processor
from costbench_schedules.devices.timing import TimingSpec
from costbench_schedules.llvm.features import ProgramFeatures
from costbench_schedules.operators.networks import workload_name
from costbench_schedules.records.networks.drawn import SUFFIX, DrawnPrograms, read_programs
from costbench_schedules.spaces.space import ScheduleSpace

IntArray = npt.NDArray[np.int64]
TIMING = TimingSpec(budget_ns=60_000_000)


@dataclass(frozen=True)
class InstructionSet:
    """What a target may use of a processor.

    Attributes:
        vector_bits: of its widest vectors.
        vector_registers: of them.
        fused: whether it multiplies and adds in one operation.
        gathers: whether it has gathers.
    """

    vector_bits: int
    vector_registers: int
    fused: bool
    gathers: bool


SETS: Mapping[str, InstructionSet] = {
    "x86-64-v3": InstructionSet(256, 16, fused=True, gathers=True),
    "generic": InstructionSet(128, 16, fused=False, gathers=False),
}


def restricted(processor: Processor, target: InstructionSet) -> Processor:
    """Returns the processor as programs of an instruction set see it."""
    core = replace(
        processor.core,
        vector_bits=min(processor.core.vector_bits, target.vector_bits),
        vector_registers=min(processor.core.vector_registers, target.vector_registers),
        fused=processor.core.fused and target.fused,
    )
    left_out = () if target.gathers else OPTIONAL
    operations = {name: cost for name, cost in processor.operations.items() if name not in left_out}
    return replace(processor, core=core, operations=operations, spread={})


@dataclass(frozen=True, eq=False)
class Analysed:
    """Programs of one operator whose features were taken.

    Attributes:
        table: the recording.
        places: int64 [n], which of its programs.
    """

    table: DrawnPrograms
    places: IntArray

    def times(self, column: str) -> IntArray:
        """Returns recorded runtimes in ns, int64 [n]; 0 where there is none."""
        return self.table.columns[column][self.places].astype(np.int64)

    def estimates(self, estimator: Estimator) -> npt.NDArray[np.float64]:
        """Returns predicted runtimes in ns, float64 [n]."""
        contents = [self.table.features[place] for place in self.places]
        name = workload_name(self.table.operator)
        return np.array([estimator.runtime_ns(ProgramFeatures.from_bytes(each, name)) for each in contents])


def analysed(folder: Path, most: int) -> list[Analysed]:
    """Returns the first programs of each operator of a folder, those of few operations first.

    Raises:
        DataError: if there are none.
    """
    tables = [read_programs(path) for path in sorted(folder.glob(f"*{SUFFIX}"))]
    tables.sort(key=lambda one: (one.operator.flops, one.operator.text))
    found = []
    for one in tables:
        ran = (one.columns["native_ns"] > 0) & (one.columns["generic_ns"] > 0)
        places = np.flatnonzero(ran & np.array([bool(each) for each in one.features]))[:most]
        if len(places) >= FEWEST:
            found.append(Analysed(one, places.astype(np.int64)))
    if not found:
        raise DataError("no programs with features", where=folder, expected="files of record-networks")
    return found


def measured(parts: Iterable[Analysed], target: str, folder: Path) -> list[IntArray]:
    """Returns runtimes in ns of programs built for a target, 0 where it failed; each is kept in a file."""
    found = []
    with CpuDevice(target, TIMING, Limits(run_s=6.0)) as device:
        for one in parts:
            space = ScheduleSpace(one.table.operator)
            numbers = one.table.columns["number"][one.places].tolist()
            path = folder / target / f"{workload_name(one.table.operator)}.json"
            kept = read_json(path) if path.exists() else None
            if not isinstance(kept, dict) or kept["numbers"] != numbers:
                times = device.measure(space, space.rows(numbers)).runtime_ns.tolist()
                kept = {"numbers": numbers, "runtime_ns": times}
                write_json(path, kept)
                print(f"{path.stem}: {len(numbers)} programs for {target}", file=sys.stderr, flush=True)
            found.append(np.array(kept["runtime_ns"], dtype=np.int64))
    return found


def compared(
    parts: Sequence[Analysed], times: Sequence[IntArray], own: Processor, whole: Processor
) -> Shared:
    """Returns the programs that ran for a target with what is said of them.

    Args:
        parts: of each operator.
        times: measured for the target, of each.
        own: description restricted to the target.
        whole: of the processor.
    """
    estimators = {OWN: Estimator(own), f"{OWN}, all of it": Estimator(whole)}
    ran = np.concatenate(times) > 0
    costs = {
        name: np.concatenate([one.estimates(estimator) for one in parts])[ran]
        for name, estimator in estimators.items()
    }
    costs[THERE] = np.concatenate([one.times("native_ns") for one in parts])[ran].astype(np.float64)
    operators = np.repeat(np.arange(len(parts)), [len(one.places) for one in parts])
    return Shared(operators[ran], np.concatenate(times)[ran].astype(np.float64), costs)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a table for each instruction set."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recorded", type=Path, help="folder of `repeat-networks` or `record-networks`")
    parser.add_argument("--processor", required=True, help="that it was recorded on, by name or as .yaml")
    parser.add_argument("--most", type=int, default=32, help="programs of an operator")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--out", type=Path, default=Path("out/crop_targets"))
    options = parser.parse_args(arguments)
    try:
        processor = load_processor(options.processor)
        parts = analysed(options.recorded, options.most)
        for name in options.sets:
            recorded = name == "generic"
            times = (
                [one.times("generic_ns") for one in parts] if recorded else measured(parts, name, options.out)
            )
            programs = compared(parts, times, restricted(processor, SETS[name]), processor)
            count = len(programs.runtime_ns)
            print(f"{name}: {count:,} programs of {len(parts)} operators; {THERE!r} is the native build")
            print("\n".join(table(programs)), flush=True)
    except CostbenchError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
