"""How many candidate schedules a second get their features, from index row to row of features.

`candidates_per_s` are those of all processes side by side, each of which computes loops, context features
and relation features of random schedules in batches of one step of annealing chains. `plain_per_s` is one
process that does the same one schedule and one number at a time (`benchmarks.plain_schedule_features`), and
`speed_up` what one process gains. Seconds are of processor time, so that other work on the machine does not
count.

    python -m benchmarks.schedule_features
    python -m benchmarks.schedule_features --workload matmul-512 --processes 1 --json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

import numpy as np
from joblib import Parallel, delayed

from benchmarks.plain_schedule_features import loop_vectors, relations
from costbench import rng
from costbench_schedules.features.context import context_features
from costbench_schedules.features.trees import loop_trees
from costbench_schedules.features.vectors import relation_features
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.spaces.nest import nest_batch, nest_of
from costbench_schedules.spaces.space import ScheduleSpace


def measure(options: argparse.Namespace) -> dict[str, float]:
    """Returns everything by name."""
    count = options.processes
    rates_of_processes = Parallel(n_jobs=count)(delayed(rates)(options, seed) for seed in range(count))
    relation, trees = ([rate[kind] for rate in rates_of_processes] for kind in (0, 1))
    plain = plain_rate(options)
    return {
        "knobs": len(ScheduleSpace(parse_operator(options.workload)).knobs),
        "processes": count,
        "candidates_per_s": sum(relation),
        "candidates_per_s_each": sum(relation) / count,
        "trees_per_s_each": sum(trees) / count,
        "plain_per_s": plain,
        "speed_up": relation[0] / plain,
    }


def rates(options: argparse.Namespace, seed: int) -> tuple[float, float]:
    """Returns the candidates per second with relation features, and with loop trees, of one process."""
    space = ScheduleSpace(parse_operator(options.workload))
    rows = space.sample(rng.stream(seed, "benchmark"), options.candidates)
    batches = np.array_split(rows, -(-len(rows) // options.batch))
    # The first call fills caches of the operator.
    relation_features(context_features(nest_batch(space, batches[0])))
    per_second = []
    for represent in (relation_features, loop_trees):
        begun = time.process_time()
        for batch in batches:
            represent(context_features(nest_batch(space, batch)))
        per_second.append(len(rows) / (time.process_time() - begun))
    return per_second[0], per_second[1]


def plain_rate(options: argparse.Namespace) -> float:
    """Returns the candidates per second, one number at a time."""
    space = ScheduleSpace(parse_operator(options.workload))
    rows = space.sample(rng.stream(0, "benchmark"), options.plain)
    nest_of(space, rows[0])
    begun = time.process_time()
    for row in rows:
        relations(loop_vectors(nest_of(space, row)))
    return len(rows) / (time.process_time() - begun)


def parser() -> argparse.ArgumentParser:
    """Returns the command line."""
    commands = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="schedule_features"
    )
    commands.add_argument("--workload", default="C6", help="by name or description (C6)")
    commands.add_argument("--candidates", type=int, default=8192, help="of each process (8192)")
    commands.add_argument("--batch", type=int, default=128, help="candidates per call (128)")
    commands.add_argument("--plain", type=int, default=200, help="candidates one by one (200)")
    commands.add_argument("--processes", type=int, default=2, help="of one thread each, side by side (2)")
    commands.add_argument("--json", action="store_true", help="print one flat JSON object")
    return commands


def main(arguments: Sequence[str]) -> None:
    """Reads the arguments, computes, times, prints."""
    options = parser().parse_args(arguments)
    figures = measure(options)
    if options.json:
        print(json.dumps(figures, indent=1, sort_keys=True))
        return
    for name, value in figures.items():
        print(f"{name:24}{value:>16,.3f}")


if __name__ == "__main__":
    main(sys.argv[1:])
