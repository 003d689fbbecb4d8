"""Searches every tuning table of data/gpu_tuning with every strategy, and packs the scores.

    python tools/gpu_searches.py            # what is missing, then data/results/gpu_tuning/scores.parquet
    python tools/gpu_searches.py --pack     # only packs what is finished

Searches are files below out/gpu_searches, one for each strategy, table and block of repeats; a run that was
interrupted goes on where it was. Blocks are in order of repeats, so that at any time all strategies of a
group have about as many. Prints each strategy against Kernel Tuner's best, on all tables, on those that the search
was developed on, and on the others.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from costbench.artifacts import read_json, write_json
from costbench.experiments.identity import code_digest
from costbench_schedules.experiments.gpu_tuning import tuning_files, tuning_table
from costbench_schedules.experiments.replayed_tables import related, repeat_search
from costbench_schedules.experiments.table_scores import TableSearches, score_rows
from costbench_schedules.experiments.table_summary import compare_with_best, expected_trials
from costbench_schedules.search.table_strategies import KERNEL_TUNER

ROOT = Path(__file__).parents[1]
TRIALS, REPEATS, BLOCK, SEED = 500, 30, 5, 0
DEVELOPMENT = (
    "convolution-A100",
    "convolution-A4000",
    "convolution_ktt-RTX_2080_Ti",
    "gemm-RTX_2080_Ti",
    "gemm-RTX_3060_laptop",
)
"""Tables that the search was made on (docs/decisions/0062)."""
QUICK = (
    "random",
    "bayesian",
    "bayesian-transfer",
    "kernel-tuner-hybrid_vndx",
    "kernel-tuner-genetic_algorithm",
    "kernel-tuner-simulated_annealing",
    "kernel-tuner-adaptive_tabu_greywolf",
    "kernel-tuner-pso",
    "kernel-tuner-dual_annealing",
    "kernel-tuner-firefly_algorithm",
    "kernel-tuner-diff_evo",
    "kernel-tuner-genetic_algorithm-recommended",
    "kernel-tuner-pso-recommended",
    "kernel-tuner-diff_evo-recommended",
    "genetic",
    "annealing-1",
)
SLOW = (
    "gbt-rank",
    "gbt-regression",
    "transfer-target",
    "mlp-rank",
    "mlp-regression",
    "tpe",
    "kernel-tuner-bayes_opt",
    "kernel-tuner-greedy_ils",
    "kernel-tuner-mls",
    "kernel-tuner-greedy_mls",
    "kernel-tuner-ordered_greedy_mls",
    "kernel-tuner-basinhopping",
)
"""Strategies that take more time, or were far behind on the tables of development: they come last."""


def main() -> None:
    """Searches what is missing, and packs."""
    files = tuning_files(ROOT / "data/gpu_tuning")
    folder = ROOT / "out/gpu_searches"
    if "--pack" not in sys.argv:
        tables = [tuning_table(file) for file in files]
        for strategy, start in _blocks():
            for table in tables:
                path = _path(folder, table.name, strategy, start)
                if path.exists():
                    continue
                others = related(table, tables)
                orders = [
                    repeat_search(table, strategy, TRIALS, start + number, others, SEED).tolist()
                    for number in range(BLOCK)
                ]
                write_json(path, orders)
            print(f"{strategy}: {start + BLOCK} repeats", flush=True)
    _pack(folder)


def _blocks() -> Iterator[tuple[str, int]]:
    for group in (QUICK, SLOW):
        for start in range(0, REPEATS, BLOCK):
            for strategy in group:
                yield strategy, start


@cache
def _code() -> str:
    return code_digest(repeat_search)[:12]


def _path(folder: Path, table: str, strategy: str, start: int) -> Path:
    return folder / _code() / f"{table}-{strategy}-{start:02d}.json"


def _pack(folder: Path) -> None:
    """Writes the scores of all blocks that are finished for every table, and prints the comparison."""
    tables = [tuning_table(file) for file in tuning_files(ROOT / "data/gpu_tuning")]
    searches = []
    for strategy in (*QUICK, *SLOW):
        starts = [
            start
            for start in range(0, REPEATS, BLOCK)
            if all(_path(folder, table.name, strategy, start).exists() for table in tables)
        ]
        for table in tables if starts else ():
            orders = [
                np.array(order, dtype=np.int64)
                for start in starts
                for order in read_json(_path(folder, table.name, strategy, start))
            ]
            searches.append(TableSearches(table, strategy, TRIALS, orders))
    rows = score_rows(searches)
    out = ROOT / "data/results/gpu_tuning"
    out.mkdir(parents=True, exist_ok=True)
    wide = rows.pivot(index=["kernel", "device", "strategy", "repeat"], columns="metric", values="value")
    wide.astype(np.float32).reset_index().to_parquet(out / "scores.parquet", compression="zstd", index=False)
    name = rows["kernel"] + "-" + rows["device"]
    repeats = rows.groupby("strategy")["repeat"].max() + 1
    for title, subset in {
        "all": rows,
        "unseen": rows[~name.isin(DEVELOPMENT)],
        "development": rows[name.isin(DEVELOPMENT)],
    }.items():
        compared = compare_with_best(subset, KERNEL_TUNER)
        wide = compared.pivot(index="strategy", columns="metric", values="value")
        low = compared.pivot(index="strategy", columns="metric", values="low").add_suffix("_low")
        high = compared.pivot(index="strategy", columns="metric", values="high").add_suffix("_high")
        shown = pd.concat([wide, low, high], axis=1).sort_values("trials_to_95_ratio").round(3)
        shown.insert(0, "repeats", repeats)
        print(f"\n{title}: {subset.groupby(['kernel', 'device']).ngroups} tables")
        print(shown[sorted(shown.columns)].to_string())
        print(json.dumps(np.exp(np.log(expected_trials(subset, "95")).mean()).round(1).to_dict(), indent=0))


if __name__ == "__main__":
    main()
