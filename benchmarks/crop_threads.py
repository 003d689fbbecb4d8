"""What a second thread brings to parallel schedules: times of the analytical model beside measured ones.

Schedules with parallel loops are drawn at random: those of the recorded sub-spaces, with any loops run in
parallel and any tile of the first axis, so that some numbers of iterations do not divide by the threads. Each
is built and timed by wall time with one thread and with two, in turn, on a machine with nothing else to do;
what is fastest of all rounds counts. Their features are taken once and predict both times. Printed are:

- `tau` and `MAPE` of the predicted times, with each number of threads;
- speed-ups, measured and predicted, of each schedule, and their errors if every schedule were twice as fast
  (`ideal`), if only its serial part stayed (`even`), and as predicted, where the thread that does most is
  waited for (`crop`). From `even` to `crop` is what imbalance explains.

Measurements and features are kept in `--out`; what is there is not taken again. Needs the extra `cpu`.

    python -m benchmarks.crop_threads
    python -m benchmarks.crop_threads C6 --schedules 20 --processor my_cpu.yaml --out out/threads
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from costbench.artifacts import write_json
from costbench.errors import CostbenchError, DataError
from costbench.metrics.ranking import kendall_tau
from costbench.metrics.regression import mape
from costbench.rng import stream
from costbench_schedules.crop.estimate import Estimator
from costbench_schedules.devices.device import CpuDevice
from costbench_schedules.devices.instrumented.analysis import Analyzer
from costbench_schedules.devices.instrumented.schedules import kernel_of
from costbench_schedules.devices.process import Limits
from costbench_schedules.devices.processor import load_processor
from costbench_schedules.devices.timing import TimingSpec
from costbench_schedules.llvm.features import ProgramFeatures
from costbench_schedules.operators.operators import Operator, parse_operator
from costbench_schedules.spaces.space import PARALLEL, ScheduleSpace, tile_name
from costbench_schedules.spaces.sub_spaces import recorded_space

FloatArray = npt.NDArray[np.float64]
THREADS = (1, 2)
TIMING = TimingSpec(block_ns=2_000_000, blocks=15, max_blocks=60, budget_ns=300_000_000)
_NS_OF_US = 1e3


@dataclass(frozen=True)
class Measured:
    """Wall times of a schedule.

    Attributes:
        workload: its operator.
        row: its choices in the unrestricted space.
        one: nanoseconds with one thread, of each round.
        two: nanoseconds with two.
    """

    workload: str
    row: tuple[int, ...]
    one: tuple[int, ...]
    two: tuple[int, ...]

    @property
    def times(self) -> tuple[int, int]:
        """Returns the least nanoseconds with one and with two threads."""
        return min(self.one), min(self.two)

    @property
    def spread(self) -> float:
        """Returns by how much the rounds differ, the larger of largest / least - 1."""
        return max(max(times) / min(times) for times in (self.one, self.two)) - 1.0


@dataclass(frozen=True)
class Predicted:
    """Times of a schedule by the analytical model, in nanoseconds.

    Attributes:
        one: with one thread.
        two: with two.
        even: with two, if parallel work were divided evenly.
    """

    one: float
    two: float
    even: float


def drawn(operator: Operator, count: int, seed: int) -> npt.NDArray[np.int64]:
    """Returns different configurations of the unrestricted space [count, m] with parallel loops."""
    space, full = recorded_space(operator), ScheduleSpace(operator)
    names = [knob.name for knob in full.knobs]
    parallel = names.index("parallel")
    first = next(axis for axis in operator.spatial if axis.extent > 1)
    tile = names.index(tile_name(first))
    generator = stream(seed, "parallel schedules", operator.text)
    rows: dict[tuple[int, ...], None] = {}
    while len(rows) < count:
        [row] = space.full_rows(space.sample(generator, 1).astype(np.int64))
        row[parallel] = generator.integers(1, len(PARALLEL))
        row[tile] = generator.integers(len(full.knobs[tile].values))
        rows[tuple(row.tolist())] = None
    return np.array(list(rows), dtype=np.int64)


def measure(options: argparse.Namespace) -> list[Measured]:
    """Returns wall times of the schedules that run, until `--minutes` are over, evenly over workloads."""
    limits = [Limits(build_s=60.0, run_s=8.0, threads=each) for each in THREADS]
    found = []
    with ExitStack() as stack:
        devices = [stack.enter_context(CpuDevice("native", TIMING, each, clock="wall")) for each in limits]
        for place, workload in enumerate(options.workloads):
            left = options.minutes * 60 - (time.monotonic() - options.begin)
            stop = time.monotonic() + left / (len(options.workloads) - place)
            operator = parse_operator(workload)
            for row in drawn(operator, options.schedules, options.seed):
                if time.monotonic() > stop:
                    break
                times = _times(devices, ScheduleSpace(operator), row, options.rounds)
                if times is None:
                    print(f"{workload} {row.tolist()} fails, left out", flush=True)
                    continue
                found.append(Measured(workload, tuple(row.tolist()), *times))
    return found


def _times(
    devices: Iterable[CpuDevice], space: ScheduleSpace, row: npt.NDArray[np.int64], rounds: int
) -> list[tuple[int, ...]] | None:
    """Returns the times of each round on each device; None if the schedule fails on one."""
    found: list[list[int]] = [[] for _ in THREADS]
    for _ in range(rounds):
        for times, device in zip(found, devices, strict=True):
            one = device.measure(space, row[None])
            if one.failed[0]:
                return None
            times.append(int(one.runtime_ns[0]))
    return [tuple(each) for each in found]


def measurements(options: argparse.Namespace) -> list[Measured]:
    """Returns the measurements that are kept, or takes them."""
    path = options.out / "measured.json"
    drawn_by = {name: getattr(options, name) for name in ("workloads", "schedules", "rounds", "seed")}
    if path.exists():
        found = json.loads(path.read_text(encoding="utf-8"))
        if found["options"] != drawn_by:
            raise DataError(f"measurements of {found['options']}", where=path, expected=f"{drawn_by}")
        kept = found["measured"]
        return [
            Measured(one["workload"], tuple(one["row"]), tuple(one["one"]), tuple(one["two"])) for one in kept
        ]
    before = os.getloadavg()[0]
    measured = measure(options)
    kept = [asdict(one) for one in measured]
    write_json(path, {"load before": before, "options": drawn_by, "measured": kept})
    return measured


def predictions(
    measured: Sequence[Measured], options: argparse.Namespace
) -> list[tuple[Measured, Predicted]]:
    """Returns schedules with their predictions; each program's features are taken once."""
    processor = load_processor(options.processor)
    one, two = (Estimator(processor, each) for each in THREADS)
    found = []
    with Analyzer(THREADS) as analyzer:
        for each in measured:
            try:
                features = _features(each, analyzer, options.out)
            except DataError as error:
                print(f"{each.workload} {each.row} left out: {error}", flush=True)
                continue
            parts = two.breakdown(features)
            even = parts.total - parts.imbalance
            found.append((each, Predicted(one.runtime_ns(features), parts.total, even)))
    return found


def _features(one: Measured, analyzer: Analyzer, folder: Path) -> ProgramFeatures:
    path = folder / "features" / f"{one.workload}-{'-'.join(map(str, one.row))}.npz"
    if path.exists():
        return ProgramFeatures.load(path)
    operator = parse_operator(one.workload)
    choices = ScheduleSpace(operator).choices(np.array(one.row, dtype=np.int64))
    found = analyzer.features(kernel_of(operator, choices))
    path.parent.mkdir(parents=True, exist_ok=True)
    found.save(path)
    return found


@dataclass(frozen=True)
class Summary:
    """How well times and speed-ups are predicted.

    Attributes:
        schedules: how many.
        tau: of times, by threads.
        error: MAPE of times in percent, by threads.
        speed_up: medians of speed-ups, measured and predicted.
        speed_up_tau: Kendall's tau of predicted and measured speed-ups.
        speed_up_error: MAPE of speed-ups in percent: `ideal`, `even` and `crop`.
    """

    schedules: int
    tau: tuple[float, float]
    error: tuple[float, float]
    speed_up: tuple[float, float]
    speed_up_tau: float
    speed_up_error: dict[str, float]


def summary(pairs: Sequence[tuple[Measured, Predicted]]) -> Summary:
    """Returns how well the predictions are; at least one schedule has to be there."""
    times = np.array([one.times for one, _ in pairs], dtype=np.float64)
    ours = np.array([(one.one, one.two, one.even) for _, one in pairs])
    true, crop, even = times[:, 0] / times[:, 1], ours[:, 0] / ours[:, 1], ours[:, 0] / ours[:, 2]
    by_threads = range(len(THREADS))
    taus = [kendall_tau(ours[:, at], times[:, at]) for at in by_threads]
    errors = [mape(ours[:, at], times[:, at]) for at in by_threads]
    ideal = np.full(len(true), float(THREADS[-1]))
    return Summary(
        len(pairs),
        (taus[0], taus[1]),
        (errors[0], errors[1]),
        (float(np.median(true)), float(np.median(crop))),
        kendall_tau(crop, true),
        {"ideal": mape(ideal, true), "even": mape(even, true), "crop": mape(crop, true)},
    )


def _print_schedules(pairs: Sequence[tuple[Measured, Predicted]]) -> None:
    heads = f"{'measured µs, 1 and 2':>24}{'predicted µs':>24}"
    print(f"{'workload':<12}{'parallel':<9}{heads}  speed-up, even, crop")
    for one, ours in pairs:
        choices = ScheduleSpace(parse_operator(one.workload)).choices(np.array(one.row))
        times = [value / _NS_OF_US for value in (*one.times, ours.one, ours.two)]
        print(
            f"{one.workload:<12}{choices['parallel']!s:<9}"
            + "".join(f"{value:12.1f}" for value in times)
            + f"{times[0] / times[1]:10.2f}{ours.one / ours.even:6.2f}{ours.one / ours.two:6.2f}"
        )


def _print_summary(name: str, found: Summary) -> None:
    errors = ", ".join(f"{key} {value:.1f}%" for key, value in found.speed_up_error.items())
    print(
        f"{name}: {found.schedules} schedules; tau {found.tau[0]:.3f} and {found.tau[1]:.3f}, MAPE "
        f"{found.error[0]:.1f}% and {found.error[1]:.1f}%; speed-up {found.speed_up[0]:.2f}, predicted "
        f"{found.speed_up[1]:.2f}, tau {found.speed_up_tau:.3f}, MAPE {errors}"
    )


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("workloads", nargs="*", default=["C6", "matmul-256", "matmul-512"])
    found.add_argument("--schedules", type=int, default=16, help="of each workload")
    found.add_argument("--rounds", type=int, default=2)
    found.add_argument("--minutes", type=float, default=8.0, help="most for all measurements")
    found.add_argument("--processor", default="amd_epyc_zen4", help="its name or a description")
    found.add_argument("--seed", type=int, default=0)
    found.add_argument("--out", type=Path, default=Path("out/crop_threads"))
    found.add_argument("--only-measure", action="store_true", help="predict in a later run")
    return found


def _report(options: argparse.Namespace) -> None:
    measured = measurements(options)
    if not measured:
        raise DataError("no schedule ran", expected="one that does")
    spread = np.median([one.spread for one in measured])
    print(f"{len(measured)} schedules, rounds differ by a median of {100 * spread:.1f}%", flush=True)
    if options.only_measure:
        return
    pairs = predictions(measured, options)
    _print_schedules(pairs)
    for name in dict.fromkeys(one.workload for one, _ in pairs):
        _print_summary(name, summary([pair for pair in pairs if pair[0].workload == name]))
    whole = summary(pairs)
    _print_summary("all", whole)
    write_json(options.out / "summary.json", asdict(whole))


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line per schedule, then a summary per workload and of all."""
    options = parser().parse_args(arguments)
    options.begin = time.monotonic()
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        _report(options)
    except CostbenchError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
