"""The leakage audit and the data set's card as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costbench.reports.evidence import Audit, ChipCard, Quantiles
from costbench.reports.tables import Column, Table, Value

_QUANTILES = ("min", "p10", "median", "p90", "max")
_DISTRIBUTIONS = {
    "tile_space_size": "tile sizes in a kernel's space",
    "configs_per_kernel": "tile sizes measured per kernel",
    "nodes_per_kernel": "nodes per kernel",
    "runs_per_program": "executions of a kernel in a program",
    "default_runtime_ns": "runtime with the default tile size (ns)",
    "runtime_ns": "runtime of all measured tile sizes (ns)",
}


def leakage_table(audits: Sequence[Audit]) -> Table:
    """Per split, chip and test program: kernels, and the shares of them that training has seen."""
    columns = (
        Column("split", "Split"),
        Column("chip", "Chip"),
        Column("program", "Test program"),
        Column("kernels", "Kernels", decimals=0),
        Column("leaked_kernels", "Seen in training", decimals=0),
        Column("share_of_kernels", "of kernels (%)", "Share seen", 1),
        Column("share_of_runtime", "of runtime (%)", "Share seen", 1),
    )
    rows: list[tuple[Value, ...]] = []
    for audit in audits:
        for program, leak in (*sorted(audit.by_program.items()), ("all", audit.test)):
            shares = (100.0 * leak.share_of_kernels, 100.0 * leak.share_of_runtime)
            rows.append((audit.split, audit.chip, program, leak.kernels, leak.leaked_kernels, *shares))
    notes = (
        "A test kernel is seen in training when a kernel of the same structure, shapes, layouts and "
        "attributes occurs in a training program. Splits are over programs, so such kernels stay.",
    )
    return Table("leakage", "Test kernels that training has seen", columns, tuple(rows), 0, notes)


def dataset_tables(
    cards: Mapping[str, tuple[ChipCard, Quantiles]],
) -> tuple[Table, Table]:
    """What was measured: counts per chip, and how sizes and runtimes are distributed."""
    counts = (
        Column("chip", "Chip"),
        Column("programs", "Programs", decimals=0),
        Column("applications", "Applications", decimals=0),
        Column("kernels", "Kernels", decimals=0),
        Column("unique_kernels", "different", decimals=0),
        Column("configs", "Tile sizes measured", decimals=0),
        Column("failed", "Failed compiles", decimals=0),
        Column("device_seconds", "Accelerator seconds", decimals=1),
    )
    rows = tuple(
        (chip, c.programs, c.applications, c.kernels, c.unique_kernels, c.configs, c.failed, c.device_seconds)
        for chip, (c, _) in cards.items()
    )
    group = "over kernels (last row: over tile sizes)"
    quantiles = tuple(Column(name, name, group, 0) for name in _QUANTILES)
    shapes = (Column("chip", "Chip"), Column("quantity", "Quantity"), *quantiles)
    spread = tuple(
        (chip, label, *(found.get(key, {}).get(name) for name in _QUANTILES))
        for chip, (_, found) in cards.items()
        for key, label in _DISTRIBUTIONS.items()
    )
    return (
        Table("dataset", "Measured kernels and tile sizes", counts, rows),
        Table("dataset_distributions", "How they are distributed", shapes, spread),
    )
