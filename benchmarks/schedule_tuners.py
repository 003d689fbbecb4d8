"""Ours, TVM's MetaSchedule and the vendor library on the same operators, in one run on this machine.

All searches make the same number of measurements, by the same worker and clock; the five fastest schedules
of each are measured three times more in the end, in turn, and the lowest median counts. The library is torch
with oneDNN on one thread (`costbench_schedules.devices.library`). Ratios are our speeds over MetaSchedule's;
their geometric means stand at the end, with 95% intervals over workloads (Student's t of the means of their
logarithms). Ours are strategies of `costbench tune --task schedule`, with `+records` as they begin with
`--records`. Needs the extra `cpu`; a workload and seed takes minutes. Results are printed as they come and
kept in `--out`; the same command after a stop goes on with those that are missing.

    python -m benchmarks.schedule_tuners C6 --trials 200
    python -m benchmarks.schedule_tuners C2 C6 C9 C12 matmul-256 matmul-512 --trials 200 --seeds 0 1 2
    python -m benchmarks.schedule_tuners C9 --ours bayesian+records --records data/schedules/native/C1.arrow
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import pandas as pd
from scipy.stats import sem

from costbench.artifacts import read_json, write_json
from costbench.metrics.intervals import student
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

META_SCHEDULE = "MetaSchedule"
_RECORDS = "+records"


@dataclass(frozen=True)
class Searched:
    """A search of a workload.

    Attributes:
        gflops: of the fastest schedule found, measured again.
        seconds: wall time of the search.
        failed: trials that failed.
    """

    gflops: float
    seconds: float
    failed: int


@dataclass(frozen=True)
class Compared:
    """One workload and seed.

    Attributes:
        workload: by name.
        seed: of all searches.
        trials: of each search.
        searches: ours by name, then MetaSchedule.
        library: GFLOPS.
        load: the machine's load average over the last minute of all.
    """

    workload: str
    seed: int
    trials: int
    searches: Mapping[str, Searched]
    library: float
    load: float

    def ratio(self, name: str) -> float:
        """Returns a search's speed over MetaSchedule's."""
        return self.searches[name].gflops / self.searches[META_SCHEDULE].gflops


def compare(options: Mapping[str, ScheduleOptions], folder: Path) -> Compared:
    """Runs our searches, MetaSchedule and the library on the same workload."""
    first = next(iter(options.values()))
    operator = parse_operator(first.workload)
    seconds, failed = {}, {}
    ours = {}
    for name, option in options.items():
        begin = time.monotonic()
        with CpuDevice() as device:
            ours[name] = tune_schedule(folder / name, option, device, Hooks(), resume=False)
        seconds[name], failed[name] = time.monotonic() - begin, ours[name].progress.failed
    begin = time.monotonic()
    reference = meta_schedule(operator, ReferenceSpec(first.trials, first.seed), folder / "meta_schedule")
    seconds[META_SCHEDULE] = time.monotonic() - begin
    failed[META_SCHEDULE] = sum(trial.runtime_ns is None for trial in reference.trials)
    searches = {
        name: Searched(speed, seconds[name], failed[name])
        for name, speed in confirm(operator, ours, reference).items()
    }
    library = library_times([first.workload])[first.workload].gflops
    return Compared(first.workload, first.seed, first.trials, searches, library, os.getloadavg()[0])


def confirm(
    operator: Operator, ours: Mapping[str, TunedSchedule], reference: ReferenceTrials
) -> dict[str, float]:
    """Returns the GFLOPS of each search after measuring the fastest schedules of all in turn."""
    finalists = {
        name: [(tuned.header.space, finalist.number) for finalist in tuned.finalists]
        for name, tuned in ours.items()
    }
    programs = [Path(trial.program) for trial in reference.fastest(CONFIRMED)]
    times: dict[str, list[list[float]]] = {name: [[] for _ in rows] for name, rows in finalists.items()}
    times[META_SCHEDULE] = [[] for _ in programs]
    with CpuDevice() as device:
        for _ in range(ROUNDS):
            for name, rows in finalists.items():
                for runs, (space, number) in zip(times[name], rows, strict=True):
                    runs += device.measure(space, space.rows([number])).runtime_ns.tolist()
            for runs, program in zip(times[META_SCHEDULE], programs, strict=True):
                runs += device.measure_program(operator, program).runtime_ns.tolist()
    return {
        name: operator.flops / min(median(runs) for runs in schedules if min(runs) > 0)
        for name, schedules in times.items()
    }


def read_comparison(path: Path) -> Compared | None:
    """Returns what an earlier run found, None where it did not get so far."""
    return parse(Compared, read_json(path), where=path) if path.exists() else None


def summarize(rows: Sequence[Compared], name: str) -> str:
    """Returns the geometric mean of a search's ratios, of several workloads with its interval."""
    logs = pd.DataFrame({"workload": row.workload, "log": math.log(row.ratio(name))} for row in rows)
    means = logs.groupby("workload")["log"].mean().to_numpy()
    text = f"{name} over {META_SCHEDULE}, geometric mean of {len(rows)}: {math.exp(means.mean()):.3f}"
    if len(means) < 2:
        return text
    half = float(sem(means)) * student(0.025, len(means) - 1)
    low, high = (math.exp(means.mean() + end) for end in (-half, half))
    return f"{text} [{low:.3f}, {high:.3f}]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a line per workload and seed, then the geometric means of the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [strategy + suffix for strategy in STRATEGIES for suffix in ("", _RECORDS)]
    parser.add_argument("workloads", nargs="+", help="names or descriptions")
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--ours", choices=names, nargs="+", default=[GUIDED], help="our searches")
    parser.add_argument(
        "--records",
        type=Path,
        nargs="+",
        default=[],
        help="recorded tables that those named +records learn from",
    )
    parser.add_argument("--out", type=Path, default=Path("out/schedule_tuners"))
    options = parser.parse_args(arguments)
    if any(name.endswith(_RECORDS) for name in options.ours) != bool(options.records):
        parser.error("--records and searches named +records need each other")
    rows: list[Compared] = []
    columns = [*options.ours, META_SCHEDULE, "library"]
    print(f"{'workload':<14}{'seed':>5}  " + "  ".join(columns) + "  GFLOPS", flush=True)
    for seed in options.seeds:
        for workload in options.workloads:
            searches = {
                name: ScheduleOptions(
                    workload,
                    options.trials,
                    seed=seed,
                    strategy=name.removesuffix(_RECORDS),
                    records=tuple(options.records) if name.endswith(_RECORDS) else (),
                )
                for name in options.ours
            }
            folder = options.out / "-".join([workload, str(seed), str(options.trials), *options.ours])
            row = read_comparison(folder / "compared.json") or compare(searches, folder)
            write_json(folder / "compared.json", asdict(row))
            rows.append(row)
            seconds = ", ".join(f"{row.searches[name].seconds:.0f}" for name in columns[:-1])
            speeds = [*(row.searches[name].gflops for name in columns[:-1]), row.library]
            print(
                f"{row.workload:<14}{row.seed:>5}  "
                + "  ".join(
                    f"{speed:>{len(column)}.1f}" for column, speed in zip(columns, speeds, strict=True)
                )
                + f"  ({seconds} s, load {row.load:.1f})",
                flush=True,
            )
            write_json(options.out / "compared.json", [asdict(other) for other in rows])
    for name in options.ours:
        print(summarize(rows, name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
