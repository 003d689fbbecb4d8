"""Recorded tables of a made-up machine, and a section that searches them in a second."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.synthetic_schedules import synthetic_ns
from costbench_schedules.experiments.table_tuning import (
    ScheduleTuning,
    SearchGroup,
    TimedModels,
    TransferParams,
)
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.records.table import AFTERWARDS, RecordedTable, empty_table, write_table
from costbench_schedules.search.finders import ChainSpec
from costbench_schedules.search.guided import GuidedSpec
from costbench_schedules.spaces.sub_spaces import recorded_space

OPERATORS = {
    "C1": "conv2d:n=1,h=8,w=8,ci=8,co=16,kh=3,kw=3,stride=1,pad=1",
    "C2": "conv2d:n=1,h=8,w=8,ci=16,co=16,kh=1,kw=1,stride=1,pad=0",
    "matmul-256": "matmul:m=32,n=32,k=32",
}
"""Small operators under the names of large ones."""
SECTION = ScheduleTuning(
    {"all": SearchGroup(("C1", "C2", "C9"), ("random", "random-x2", "gbt-rank", "transfer-relation"))},
    trials=32,
    repeats=2,
    guided=GuidedSpec(batch=16, chains=ChainSpec(chains=8, steps=20)),
    transfer=TransferParams(("C1", "C2"), samples=64),
    times=TimedModels(("matmul-256",), samples=16),
)


def made_up_table(workload: str, target: str = "native") -> RecordedTable:
    """A complete table; every 50th configuration failed, and the fastest took twice as long a second time."""
    space = recorded_space(parse_operator(OPERATORS[workload]), 1200)
    host = {"processor": "made-up processor"}
    table = empty_table(workload, space, target, host, {"min_block_ms": 1})
    runtime = synthetic_ns(space, space.rows(range(space.size))).astype(np.int64)
    if target != "native":
        runtime = runtime * 2 + 100
    failed = np.arange(space.size) % 50 == 7
    runtime = np.where(failed, 0, np.maximum(1, runtime))
    columns = dict(table.columns)
    columns |= {"measured": np.ones(space.size, dtype=np.bool_), "runtime_ns": runtime, "median_ns": runtime}
    fastest = int(np.argmin(np.where(failed, runtime.max(), runtime)))
    again = np.array([(fastest, 2 * runtime[fastest], space.size, AFTERWARDS)], dtype=np.int64)
    table = replace(table, columns=columns, repeats=again)
    return table.with_reasons(dict.fromkeys(np.flatnonzero(failed).tolist(), "wrong output"))


def write_tables(folder: Path, target: str = "native") -> None:
    """All operators, as a recording leaves them: FOLDER/TARGET/WORKLOAD.arrow."""
    for workload in OPERATORS:
        write_table(folder / target / f"{workload}.arrow", made_up_table(workload, target))
