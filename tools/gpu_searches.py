"""Searches every tuning table of data/gpu_tuning with every strategy, and packs the searches.

    python tools/gpu_searches.py                # what data/results/gpu_tuning lacks, into it
    python tools/gpu_searches.py --pack FOLDER  # only packs what is finished in a folder of searches

Searches are files below out/gpu_searches, one for each strategy, table and block of repeats; a run that was
interrupted goes on where it was. Blocks are in order of repeats, so that at any time all strategies of a
group have about as many.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import numpy as np
import pandas as pd

from costbench.artifacts import read_bytes, write_json
from costbench.experiments.identity import code_digest
from costbench_schedules.experiments.gpu_tuning import (
    DEFAULT_ARCHIVE,
    DEFAULT_GPU_TABLES,
    tuning_files,
    tuning_table,
)
from costbench_schedules.experiments.replayed_tables import related, repeat_search
from costbench_schedules.experiments.search_archive import (
    ARCHIVE_FILE,
    ArchiveFacts,
    archived_searches,
    write_archive,
)
from costbench_schedules.experiments.table_scores import SHARES, TableSearches, score_rows
from costbench_schedules.experiments.table_summary import compare_with_best, expected_trials
from costbench_schedules.search.kernel_tuner import KERNEL_TUNER

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
    "gbt-rank-plain",
    "gbt-mean",
    "gbt-ei",
    "gbt-ucb",
    "transfer-target",
    "mlp-rank",
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
    folder = ROOT / "out/gpu_searches" / code_digest(repeat_search)[:12]
    if "--pack" in sys.argv:
        folder = Path(sys.argv[-1])
    else:
        _search(folder)
    _pack(folder)


def _archived() -> dict[tuple[str, str], TableSearches]:
    """Returns the searches that the archive has whole, by table and strategy."""
    files = {file.digest: tuning_table(file) for file in tuning_files(ROOT / DEFAULT_GPU_TABLES)}
    packed = archived_searches(ROOT / DEFAULT_ARCHIVE / ARCHIVE_FILE, files, TRIALS, SEED)
    return {
        (search.table.name, search.strategy): search for search in packed if len(search.orders) >= REPEATS
    }


def _search(folder: Path) -> None:
    tables = [tuning_table(file) for file in tuning_files(ROOT / DEFAULT_GPU_TABLES)]
    archived = _archived()
    for strategy, start in _blocks():
        for table in tables:
            if (table.name, strategy) in archived:
                continue
            path = _path(folder, table.name, strategy, start)
            if path.exists():
                continue
            repeats, others = range(start, start + BLOCK), related(table, tables)
            orders = [repeat_search(table, strategy, TRIALS, repeat, others, SEED) for repeat in repeats]
            write_json(path, [order.tolist() for order in orders])
        print(f"{strategy}: {start + BLOCK} repeats", flush=True)


def _blocks() -> Iterator[tuple[str, int]]:
    for group in (QUICK, SLOW):
        for start in range(0, REPEATS, BLOCK):
            for strategy in group:
                yield strategy, start


def _path(folder: Path, table: str, strategy: str, start: int) -> Path:
    return folder / f"{table}-{strategy}-{start:02d}.json"


def _pack(folder: Path) -> None:
    """Packs the blocks that are finished for every table beside what the archive has, and compares them."""
    files = tuning_files(ROOT / DEFAULT_GPU_TABLES)
    archived = _archived()
    searches, repeats = [], {}
    for strategy in (*QUICK, *SLOW):
        whole = [archived[file.name, strategy] for file in files if (file.name, strategy) in archived]
        if len(whole) == len(files):
            searches += whole
            repeats[strategy] = REPEATS
            continue
        starts = list(
            takewhile(
                lambda start: all(_path(folder, file.name, strategy, start).exists() for file in files),  # noqa: B023
                range(0, REPEATS, BLOCK),
            )
        )
        if not starts:
            continue
        repeats[strategy] = BLOCK * len(starts)
        for file in files:
            blocks = [json.loads(read_bytes(_path(folder, file.name, strategy, start))) for start in starts]
            orders = [np.array(order, dtype=np.int64) for block in blocks for order in block]
            searches.append(TableSearches(tuning_table(file), strategy, TRIALS, orders))
    facts = ArchiveFacts(TRIALS, SEED, {file.name: file.digest for file in files})
    write_archive(ROOT / DEFAULT_ARCHIVE / ARCHIVE_FILE, searches, facts)
    rows = score_rows(searches)
    names = rows["kernel"] + "-" + rows["device"]
    _print("all tables", rows, repeats)
    _print("tables not used in development", rows[~names.isin(DEVELOPMENT)], repeats)
    _print("tables used in development", rows[names.isin(DEVELOPMENT)], repeats)


def _print(title: str, rows: pd.DataFrame, repeats: dict[str, int]) -> None:
    """Prints each strategy's trials against those of Kernel Tuner's best on some tables, and its area."""
    compared = compare_with_best(rows, KERNEL_TUNER)
    text = compared.apply(lambda row: f"{row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]", axis=1)
    shown = compared.assign(text=text).pivot(index="strategy", columns="metric", values="text")
    for end in SHARES:
        shown[f"trials to {end}%"] = np.exp(np.log(expected_trials(rows, end)).mean()).round(1)
    shown["repeats"] = pd.Series(repeats)
    print(f"\n{title}; trials as multiples of those of {compared['reference'].iloc[0]}")
    print(shown.sort_values("trials to 95%").to_string())


if __name__ == "__main__":
    main()
