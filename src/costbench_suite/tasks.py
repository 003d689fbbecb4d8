"""The tasks of version 1: what is predicted, from what, and by which metrics models are judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from costbench.features.feature_shards import sample_paths
from costbench.tasks import TaskName
from costbench_suite.kernel_samples import DECISIONS, KERNELS, SUMMARIES, fusion_tables, tile_tables
from costbench_suite.layout_samples import GRAPHS, layout_tables

CHIP = "tpu_v3"
"""Chip of all tasks of simulated machines."""


@dataclass(frozen=True)
class SuiteTask:
    """One task of the suite.

    Attributes:
        name: name in commands and folders; that of the task of costbench which it is of.
        title: title in tables and pages.
        predicts: what a model returns for each decision.
        metrics: metrics of the card, the one that ranks entries first, as `summary.json` calls them.
        tables: files of its folder, `NAME.parquet`, with their contents in words.
        make_tables: function from a feature shard to the tables of its program.
        weaknesses: what its numbers do not show.
    """

    name: TaskName
    title: str
    predicts: str
    metrics: tuple[str, ...]
    tables: Mapping[str, str]
    make_tables: Callable[[Path], Mapping[str, pa.Table]]
    weaknesses: str

    def program_tables(self, features: Path, chip: str, program: str) -> Iterator[Mapping[str, pa.Table]]:
        """Yields the tables of each feature shard of a program.

        Args:
            features: output folder of the stage `features`.
            chip: name of the chip.
            program: name of the program.

        Raises:
            DataError: for a damaged shard.
        """
        for path in sample_paths(features, self.name, chip, program):
            yield self.make_tables(path)


_SIMULATED = (
    "The machine is simulated: its timing is fitted to seven kernels of one program on a TPU v3, and it "
    "misses another program, a 3-D U-Net, by a factor of seven. `--fresh` says how far an order of entries "
    "holds on machines that nobody could tune to."
)
_KERNEL_TABLES = {
    KERNELS: "a row for each kernel: its graph, its executions in a run of the program, whether it is scored",
    SUMMARIES: "the same kernels as one row of numbers each, for models that read no graphs",
    DECISIONS: "a row for each measured decision: its features, the compiler's estimate, the runtime",
}

TASKS: Mapping[str, SuiteTask] = {
    task.name: task
    for task in (
        SuiteTask(
            name="tile",
            title="Tile sizes",
            predicts="a cost of each tile size of a kernel; only the order within the kernel counts",
            metrics=("ape_mean", "tau_mean"),
            tables=_KERNEL_TABLES,
            make_tables=tile_tables,
            weaknesses=_SIMULATED,
        ),
        SuiteTask(
            name="fusion",
            title="Fusions",
            predicts="the runtime of each kernel in ns",
            metrics=("mape_ge5us_mean", "tau_ge5us_mean", "mape_lt5us_mean", "tau_lt5us_mean"),
            tables=_KERNEL_TABLES,
            make_tables=fusion_tables,
            weaknesses=_SIMULATED + " Kernels of all fusion configs of a program count the same.",
        ),
        SuiteTask(
            name="layout",
            title="Layouts",
            predicts="a cost of each layout config of a program; only the order within the program counts",
            metrics=("tau_mean", "top1_arithmetic_mean"),
            tables={
                GRAPHS: "a row for each program and collection: its graph and the options of its nodes",
                DECISIONS: "a row for each measured config: the option of each node, features, the runtime",
            },
            make_tables=layout_tables,
            weaknesses=_SIMULATED + " A program has some hundred configs, where TpuGraphs has thousands.",
        ),
    )
}
