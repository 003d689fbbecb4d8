"""Ours, TVM's MetaSchedule and the vendor library on the same operators, in one run on this machine.

Both searches make the same number of measurements, by the same worker and clock; the five fastest schedules
of each are measured three times more in the end, in turn, and the lowest median counts. The library is torch
with oneDNN on one thread (`costbench_schedules.devices.library`). `ratio` is our speed over MetaSchedule's;
its geometric mean over workloads and seeds stands at the end. Needs the extra `cpu`; a workload and seed
takes minutes. Results are printed as they come and kept in `--out`; the same command after a stop goes on
with those that are missing.

    python -m benchmarks.schedule_tuners C6 --trials 200
    python -m benchmarks.schedule_tuners C2 C6 C9 C12 matmul-256 matmul-512 --trials 200 --seeds 0 1 2
    python -m benchmarks.schedule_tuners C9 C12 --strategy bayesian --records data/schedules/native/C1.arrow
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from costbench.artifacts import read_json, write_json
from costbench.metrics.measures import geometric_mean
from costbench.params import parse
from costbench_schedules.devices.device import CpuDevice
from costbench_schedules.devices.library import library_times
from costbench_schedules.devices.reference_tuner import ReferenceSpec, ReferenceTrials, meta_schedule
from costbench_schedules.experiments.live import (
    CONFIRMED,
    GUIDED,
    ROUNDS,
    STRATEGIES,
    Hooks,
    ScheduleOptions,
    TunedSchedule,
    tune_schedule,
)
from costbench_schedules.operators.operators import Operator, parse_operator


@dataclass(frozen=True)
class Compared:
    """One workload and seed.

    Attributes:
        workload: by name.
        seed: of both searches.
        trials: of both searches.
        ours: GFLOPS.
        meta_schedule: GFLOPS.
        library: GFLOPS.
        ours_s: wall seconds of our search.
        meta_schedule_s: wall seconds of MetaSchedule's.
        ours_failed: trials that failed.
        meta_schedule_failed: trials that failed.
        load: the machine's load average over the last minute of both.
    """

    workload: str
    seed: int
    trials: int
    ours: float
    meta_schedule: float
    library: float
    ours_s: float
    meta_schedule_s: float
    ours_failed: int
    meta_schedule_failed: int
    load: float

    @property
    def ratio(self) -> float:
        """Returns our speed over MetaSchedule's."""
        return self.ours / self.meta_schedule


def compare(options: ScheduleOptions, folder: Path) -> Compared:
    """Runs both searches and the library on a workload."""
    workload, seed, trials = options.workload, options.seed, options.trials
    operator = parse_operator(workload)
    begin = time.monotonic()
    with CpuDevice() as device:
        ours = tune_schedule(folder / "ours", options, device, Hooks(), resume=False)
    middle = time.monotonic()
    reference = meta_schedule(operator, ReferenceSpec(trials, seed), folder / "meta_schedule")
    end = time.monotonic()
    speeds = confirm(operator, ours, reference)
    return Compared(
        workload,
        seed,
        trials,
        *speeds,
        library_times([workload])[workload].gflops,
        middle - begin,
        end - middle,
        ours.progress.failed,
        sum(trial.runtime_ns is None for trial in reference.trials),
        os.getloadavg()[0],
    )


def confirm(operator: Operator, ours: TunedSchedule, reference: ReferenceTrials) -> tuple[float, float]:
    """Returns the GFLOPS of both after measuring the fastest schedules of both in turn."""
    space = ours.header.space
    finalists = [finalist.number for finalist in ours.finalists]
    references = [Path(trial.program) for trial in reference.fastest(CONFIRMED)]
    times: dict[int | Path, list[float]] = {key: [] for key in (*finalists, *references)}
    with CpuDevice() as device:
        for _ in range(ROUNDS):
            for number in finalists:
                times[number] += device.measure(space, space.rows([number])).runtime_ns.tolist()
            for program in references:
                times[program] += device.measure_program(operator, program).runtime_ns.tolist()
    best = [
        min(median(times[key]) for key in keys if min(times[key]) > 0) for keys in (finalists, references)
    ]
    return operator.flops / best[0], operator.flops / best[1]


def read_comparison(path: Path) -> Compared | None:
    """Returns what an earlier run found, None where it did not get so far."""
    return parse(Compared, read_json(path), where=path) if path.exists() else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line per workload and seed, then the geometric mean of the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="+", help="names or descriptions")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--strategy", choices=STRATEGIES, default=GUIDED, help="of our search")
    parser.add_argument(
        "--records", type=Path, nargs="+", default=[], help="recorded tables that our search learns from"
    )
    parser.add_argument("--out", type=Path, default=Path("out/schedule_tuners"))
    options = parser.parse_args(arguments)
    rows: list[Compared] = []
    label = "" if options.strategy == GUIDED else f"-{options.strategy}"
    label += "-records" if options.records else ""
    print(
        f"{'workload':<14}{'seed':>5}{'ours':>9}{'MetaSch.':>9}{'library':>9}{'ratio':>7}  GFLOPS", flush=True
    )
    for seed in options.seeds:
        for workload in options.workloads:
            ours = ScheduleOptions(
                workload,
                options.trials,
                seed=seed,
                strategy=options.strategy,
                records=tuple(options.records),
            )
            folder = options.out / f"{workload}-{seed}-{options.trials}{label}"
            row = read_comparison(folder / "compared.json") or compare(ours, folder)
            write_json(folder / "compared.json", asdict(row))
            rows.append(row)
            print(
                f"{row.workload:<14}{row.seed:>5}{row.ours:>9.1f}{row.meta_schedule:>9.1f}{row.library:>9.1f}"
                f"{row.ratio:>7.2f}  {row.ours_s:.0f} s and {row.meta_schedule_s:.0f} s, "
                f"load {row.load:.1f}",
                flush=True,
            )
            write_json(options.out / "compared.json", [asdict(other) for other in rows])
    ratio = geometric_mean([row.ratio for row in rows])
    print(f"ours over MetaSchedule, geometric mean of {len(rows)}: {ratio:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
