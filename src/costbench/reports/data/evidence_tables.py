"""The leakage audit and the data set's card as tables."""

from __future__ import annotations

from collections.abc import Sequence

from costbench.reports.data.dataset_card import QUANTILES, Card
from costbench.reports.data.evidence import Audit
from costbench.reports.described_table import described_table
from costbench.reports.table import Table, Value

_DISTRIBUTIONS = {
    "tile_space_size": "tile sizes in a kernel's space",
    "configs_per_kernel": "tile sizes measured per kernel",
    "configs_per_program": "layout configurations per program",
    "nodes_per_kernel": "nodes per kernel",
    "runs_per_program": "executions of a kernel in a program",
    "default_runtime_ns": "runtime with the default tile size (ns)",
    "runtime_ns": "runtime of all samples (ns)",
    "runtime_spread": "slowest / fastest sample of a kernel (layout: of a program)",
}


def leakage_table(audits: Sequence[Audit]) -> Table:
    """Per task, split, chip and test program: kernels, and the shares of them that training has seen."""
    rows: list[tuple[Value, ...]] = []
    for audit in audits:
        for program, leak in (*sorted(audit.by_program.items()), ("all", audit.test)):
            shares = (100.0 * leak.share_of_kernels, 100.0 * leak.share_of_runtime)
            where = (audit.task, audit.split, audit.chip, program)
            rows.append((*where, leak.kernels, leak.leaked_kernels, *shares))
    return described_table("leakage", rows)


def dataset_tables(cards: Sequence[Card]) -> tuple[Table, Table]:
    """What was measured: counts per task and chip, and how sizes and runtimes are distributed."""
    rows = []
    for card in cards:
        c = card.counts
        kernels = (c.kernels, c.unique_kernels)
        rows.append(
            (
                card.task,
                card.chip,
                c.programs,
                c.applications,
                *kernels,
                c.configs,
                c.failed,
                c.device_seconds,
            )
        )
    spread: list[tuple[Value, ...]] = []
    for card in cards:
        for key, label in _DISTRIBUTIONS.items():
            found = card.distributions.get(key)
            if found is not None:
                values = (getattr(found, name) for name in QUANTILES)
                spread.append((card.task, card.chip, label, *values))
    return described_table("dataset", rows), described_table("dataset_distributions", spread)
