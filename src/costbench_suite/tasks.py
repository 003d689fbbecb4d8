"""The tasks of version 1: what is predicted or searched, and by which metrics entries are judged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from costbench.metrics.measures import Measure, error_measure, tau_measure
from costbench.tasks import LEARNED
from costbench_suite.kernel_samples import DECISIONS, KERNELS, SUMMARIES
from costbench_suite.layout_samples import GRAPHS
from costbench_suite.schedule_samples import LOOPS, OPERATORS

VERSION = 1
"""Version of the data, splits and metrics. They never change: what differs gets a new number."""
CHIP = "tpu_v3"
"""Chip of all tasks of simulated machines."""


@dataclass(frozen=True)
class SuiteTask:
    """One task of the suite.

    Attributes:
        name: name in commands and of result cards.
        title: title in tables and pages.
        predicts: what an entry returns.
        metrics: averages on the card, the one that ranks entries first: `SHORT_mean` of a measure, the
            geometric mean of an error and the arithmetic one of a correlation, or `SHORT_arithmetic_mean`.
        measures: metrics of a program that have averages of their own.
        tables: files of its folder, `NAME.parquet`, with their contents in words.
        weaknesses: what its numbers do not show.
        folder: folder of its data; that of another task where both have the same data.
        source: origin of the measurements.
        license: identifier of their licence, as SPDX lists it.
        searches: whether an entry is a search, which measures one decision after the other, and not a
            prediction for each decision.
        learned: task of costbench whose models its experiments train on these data; empty for none.
        second: column of `decisions` with the measurement that metrics are not over; scored as a prediction
            it is the ceiling that noise sets. Empty where decisions were measured once.
        fresh: whether there are fresh test sets: its machine can be simulated anew.
    """

    name: str
    title: str
    predicts: str
    metrics: tuple[str, ...]
    measures: tuple[Measure, ...]
    tables: Mapping[str, str]
    weaknesses: str
    folder: str
    source: str = "simulated by costbench on its corpus of XLA programs"
    license: str = "Apache-2.0"
    searches: bool = False
    learned: str = ""
    second: str = ""
    fresh: bool = False


_SIMULATED = (
    "The machine is simulated: its timing is fitted to seven kernels of one program on a TPU v3, and it "
    "misses another program, a 3-D U-Net, by 41%. `--fresh` says how far an order of entries holds on "
    "machines that nobody could tune to."
)
_KERNEL_TABLES = {
    KERNELS: "a row for each kernel: its graph, its executions in a run of the program, whether it is scored",
    SUMMARIES: "the same kernels as one row of numbers each, for models that read no graphs",
    DECISIONS: "a row for each measured decision: its features, the compiler's estimate, the runtime",
}
_GPU_TABLES = {
    DECISIONS: "a row for each configuration of a kernel on a GPU: values of its tuning parameters (empty "
    "where the kernel has no such parameter), and two measurements",
}
_RECORDED_TABLES = {
    **_KERNEL_TABLES,
    DECISIONS: "a row for each kernel: two measurements, at different times and in another order",
}
_SCHEDULE_TABLES = {
    OPERATORS: "a row for each table: the operator that is scheduled, its sizes, and the processor",
    DECISIONS: "a row for each schedule of an operator: its choices (empty where the operator has no such "
    "choice), and two measurements",
    LOOPS: "the same schedules as trees of loops, for models that read trees or sets",
}
_GPU_SOURCE = (
    "the FAIR Benchmark Hub for Auto-Tuning of the AutoTuningAssociation (DOI 10.5281/zenodo.15364124), "
    "measured with Kernel Tuner"
)
_FEW_KERNELS = "Sixteen spaces of four kernels; entries that were made on some of them have seen those."
SEARCH_AREA = Measure("auc", "auc", "Area above random search", "tau", 2, "higher")
"""Score of a search, see `costbench_schedules.experiments.table_scores`."""

TASKS: Mapping[str, SuiteTask] = {
    task.name: task
    for task in (
        SuiteTask(
            name="tile",
            title="Tile sizes",
            predicts="a cost of each tile size of a kernel; only the order within the kernel counts",
            metrics=("ape_mean", "tau_mean"),
            measures=LEARNED["tile"].known_measures,
            tables=_KERNEL_TABLES,
            weaknesses=_SIMULATED,
            folder="tile",
            learned="tile",
            fresh=True,
        ),
        SuiteTask(
            name="fusion",
            title="Fusions",
            predicts="the runtime of each kernel in ns",
            metrics=("mape_ge5us_mean", "tau_ge5us_mean", "mape_lt5us_mean", "tau_lt5us_mean"),
            measures=LEARNED["fusion"].known_measures,
            tables=_KERNEL_TABLES,
            weaknesses=_SIMULATED + " Kernels of all fusion configs of a program count the same.",
            folder="fusion",
            learned="fusion",
            fresh=True,
        ),
        SuiteTask(
            name="fusion_xla_cpu",
            title="Fusions on a processor",
            predicts="the runtime in ns of each kernel as XLA's CPU backend ran it",
            metrics=("mape_ge5us_mean", "tau_ge5us_mean", "mape_lt5us_mean", "tau_lt5us_mean"),
            measures=LEARNED["fusion"].known_measures,
            tables=_RECORDED_TABLES,
            weaknesses="One processor and one version of XLA, on one core while other work ran on the "
            "second, which shares cache and memory. A kernel was measured inside one config of its program, "
            "with the caches as the kernels before left them, which no model is told. Half of the kernels "
            "take less than 5 µs. Programs have small batches, so that a run takes below two seconds.",
            folder="fusion_xla_cpu",
            source="programs of costbench's corpus, measured by costbench on the processor of `data/xla_cpu`",
            learned="fusion",
            second="again_ns",
        ),
        SuiteTask(
            name="layout",
            title="Layouts",
            predicts="a cost of each layout config of a program; only the order within the program counts",
            metrics=("tau_mean", "top1_arithmetic_mean"),
            measures=LEARNED["layout"].known_measures,
            tables={
                GRAPHS: "a row for each program and collection: its graph and the options of its nodes",
                DECISIONS: "a row for each measured config: the option of each node, features, the runtime",
            },
            weaknesses=_SIMULATED + " A program has some hundred configs, where TpuGraphs has thousands.",
            folder="layout",
            learned="layout",
            fresh=True,
        ),
        SuiteTask(
            name="gpu",
            title="Tuning parameters on GPUs",
            predicts="a cost of each configuration of a kernel on a GPU; only the order in a table counts",
            metrics=("tau_mean", "top1_arithmetic_mean"),
            measures=(
                error_measure("top_1", "top1", "Top-1 slowdown (%)"),
                tau_measure("kendall_tau", "tau", "Kendall's τ"),
            ),
            tables=_GPU_TABLES,
            weaknesses=_FEW_KERNELS + " Of the held-out GPU nothing is known, not even a few runs.",
            folder="gpu",
            source=_GPU_SOURCE,
            license="MIT",
            second="runtime_ns",
        ),
        SuiteTask(
            name="gpu_search",
            title="Searches on GPUs",
            predicts="the configurations that a search measures, one after the other, up to 500 a repeat",
            metrics=("auc_mean",),
            measures=(SEARCH_AREA,),
            tables=_GPU_TABLES,
            weaknesses=_FEW_KERNELS,
            folder="gpu",
            source=_GPU_SOURCE,
            license="MIT",
            searches=True,
        ),
        SuiteTask(
            name="schedules",
            title="Schedules on processors",
            predicts="a cost of each schedule of an operator; only the order in a table counts",
            metrics=("tau_mean", "top1_arithmetic_mean"),
            measures=(
                error_measure("top_1", "top1", "Top-1 slowdown (%)"),
                tau_measure("kendall_tau", "tau", "Kendall's τ"),
            ),
            tables=_SCHEDULE_TABLES,
            weaknesses="Convolutions and matrix products of a dozen shapes on one processor; a table has "
            "a thousand schedules of a restricted space. A tenth of them was measured again, and the twenty "
            "fastest, whose order is mostly noise; of the others a second measurement is expected from "
            "neighbours. Random search is soon near the best, so that top-1 tells few models apart.",
            folder="schedules",
            source="measured by costbench on the processor of `data/schedules`",
            second="runtime_ns",
        ),
    )
}
