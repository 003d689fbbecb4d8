"""The leakage audit and the data set's card as tables."""

from __future__ import annotations

from collections.abc import Sequence

from costbench.reports.data.dataset_card import QUANTILES, Card
from costbench.reports.data.evidence import Audit
from costbench.reports.table import Column, Table, Value

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
    columns = (
        Column("task", "Task"),
        Column("split", "Split"),
        Column("chip", "Chip"),
        Column("program", "Test program"),
        Column("kernels", "Kernels", count=True),
        Column("leaked_kernels", "Seen in training", count=True),
        Column("share_of_kernels", "of kernels (%)", "Share seen", 1),
        Column("share_of_runtime", "of runtime (%)", "Share seen", 1),
    )
    rows: list[tuple[Value, ...]] = []
    for audit in audits:
        for program, leak in (*sorted(audit.by_program.items()), ("all", audit.test)):
            shares = (100.0 * leak.share_of_kernels, 100.0 * leak.share_of_runtime)
            where = (audit.task, audit.split, audit.chip, program)
            rows.append((*where, leak.kernels, leak.leaked_kernels, *shares))
    notes = (
        "A test kernel is seen in training when a kernel of the same structure, shapes, layouts and "
        "attributes occurs in a training program. Splits are over programs, so such kernels stay.",
    )
    return Table("leakage", "Test kernels that training has seen", columns, tuple(rows), 0, notes)


def dataset_tables(cards: Sequence[Card]) -> tuple[Table, Table]:
    """What was measured: counts per task and chip, and how sizes and runtimes are distributed."""
    counts = (
        Column("task", "Task"),
        Column("chip", "Chip"),
        Column("programs", "Programs", count=True),
        Column("applications", "Applications", count=True),
        Column("kernels", "Kernels", count=True),
        Column("unique_kernels", "different", count=True),
        Column("configs", "Samples", count=True),
        Column("failed", "Failed compiles", count=True),
        Column("device_seconds", "Accelerator seconds", decimals=1),
    )
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
    places = tuple(Column(name, name, count=True) for name in QUANTILES)
    shapes = (Column("task", "Task"), Column("chip", "Chip"), Column("quantity", "Quantity"), *places)
    spread: list[tuple[Value, ...]] = []
    for card in cards:
        for key, label in _DISTRIBUTIONS.items():
            found = card.distributions.get(key)
            if found is not None:
                values = (getattr(found, name) for name in QUANTILES)
                spread.append((card.task, card.chip, label, *values))
    over = "Over kernels; runtimes over samples; configurations and spreads of layouts over programs."
    notes = (
        "A sample is a kernel at a tile size (tile), a kernel (fusion) or a program in a layout (layout).",
    )
    return (
        Table("dataset", "Measured kernels and samples", counts, tuple(rows), 0, notes),
        Table("dataset_distributions", "How they are distributed", shapes, tuple(spread), 0, (over,)),
    )
