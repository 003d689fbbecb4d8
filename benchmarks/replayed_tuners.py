"""The strategies of live tuning, replayed on recorded tables of schedules, with and without records.

A table answers as the processor did, so nothing is measured, and the search is that of `costbench
tune-schedule`: batches that trees propose (`guided`), or trials that a Gaussian process proposes
(`bayesian`). With `+records` it begins with a model of the tables of other operators. Choices are scored by
second measurements (`experiments.table_scores`). The space of a table has about a thousand schedules, one
that is searched live a thousand million.

    python -m benchmarks.replayed_tuners C7 C9 C10 matmul-256 matmul-512 --sources C1 C2 C3 C4 C5 C6
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np

from costbench.arrays import I64
from costbench.metrics.measures import geometric_mean
from costbench.rng import stream
from costbench.search.space import Rows, Seen
from costbench.search.strategies import STRATEGIES as GENERATORS
from costbench.search.strategies import Strategy
from costbench_schedules.experiments.live import BAYESIAN, GUIDED, STARTS, ScheduleOptions, guidance_of
from costbench_schedules.experiments.table_scores import SHARES, TableSearches, score_rows
from costbench_schedules.experiments.table_summary import expected_trials, over_tables
from costbench_schedules.records.schedule_tuning import tuning_table
from costbench_schedules.records.table import read_table
from costbench_schedules.records.tuning_table import TuningTable
from costbench_schedules.spaces.space import ScheduleSpace

RECORDS = "+records"


def replay(
    strategy: Strategy,
    searched: tuple[ScheduleSpace, TuningTable],
    start: Rows,
    rng: np.random.Generator,
    trials: int,
) -> I64:
    """Returns the numbers of the schedules that a strategy measured, in order, int64 [at most trials]."""
    space, table = searched
    proposals = strategy(space, rng, start)
    order: list[int] = []
    rows: Rows | None = next(proposals)
    while rows is not None and len(order) < trials:
        numbers = space.numbers(rows)
        order += numbers
        try:
            rows = proposals.send(table.first_ns[numbers])
        except StopIteration:
            rows = None
    return np.array(order[:trials], dtype=np.int64)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints expected trials to shares of the best speed by table, and ratios over tables with intervals."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="+", help="names of tables that are searched")
    parser.add_argument("--sources", nargs="+", default=[], help="names of tables that records are of")
    parser.add_argument("--tables", type=Path, default=Path("data/schedules/native"))
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args(arguments)
    if {*options.sources} & {*options.workloads}:
        parser.error("a table cannot be both searched and a source")
    paths = tuple(options.tables / f"{name}.arrow" for name in options.sources)
    kinds = {"random": None}
    for strategy, records in product((GUIDED, BAYESIAN), ((), paths) if paths else ((),)):
        kinds[strategy + (RECORDS if records else "")] = ScheduleOptions(
            "", strategy=strategy, records=records
        )
    searches = []
    for workload, (kind, settings) in product(options.workloads, kinds.items()):
        recorded = read_table(options.tables / f"{workload}.arrow")
        table, space = tuning_table(recorded), recorded.space
        strategy, starts, begin = GENERATORS["random"], 0, time.process_time()
        if settings is not None:
            guidance = guidance_of(space, settings)
            strategy = guidance.strategy(options.trials)
            starts = 0 if guidance.earlier else STARTS
        orders = []
        for repeat in range(options.repeats):
            rng = stream(0, "replayed tuners", workload, repeat)
            start = space.draw(rng, starts, Seen()) if starts else space.rows([])
            orders.append(replay(strategy, (space, table), start, rng, options.trials))
        print(f"{workload} {kind}: {time.process_time() - begin:.1f} s of processor time", flush=True)
        searches.append(TableSearches(table, kind, options.trials, orders))
    rows = score_rows(searches)
    for end in SHARES:
        trials = expected_trials(rows, end)
        trials.loc[("geometric mean", ""), :] = [geometric_mean(trials[name]) for name in trials]
        print(f"\nexpected trials to {end}% of the best speed\n{trials.round(1).to_string()}")
    print(f"\nover those of {GUIDED}\n{over_tables(rows, GUIDED).round(2).to_string(index=False)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
