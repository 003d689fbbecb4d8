"""The tasks: compiler decisions that cost models price, each with its metrics, labels and kind of answer.

A task is one frozen value: code reads the differences between tasks from it and never compares names. The
code that makes, reads, evaluates or tunes the samples of a task is registered under the task's name in a
table of the stage concerned; `tests/contracts/test_tasks.py` names every file that has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from costbench.metrics.measures import APE, TAU, Measure, error_measure, tau_measure

TaskName = Literal["tile", "fusion", "layout"]
LearnedTask = Literal["tile", "fusion", "layout"]
"""Tasks that cost models are trained on; parameter files are checked against these two types."""


@dataclass(frozen=True)
class Labels:
    """What reports call a task and its parts.

    Attributes:
        title: title of sections ("Tile sizes").
        heading: heading of tables ("Tile-size task").
        searches: heading of tables about autotuners ("Tile sizes", "Fusion searches").
        question: question that the best model answers.
        goal: work of a cost model on the task, as a verb phrase.
        error: name of the error, without its unit.
        short_error: abbreviation of the error.
        definition: definition of the two measures.
        kernels: kernels that the measures are over, as an addition to titles; empty for all.
        decisions: name of the decisions, in the plural.
        prefix: words in front of titles that say a task only where it is not the first.
    """

    title: str
    heading: str
    searches: str
    question: str
    goal: str
    error: str
    short_error: str
    definition: str
    decisions: str
    kernels: str = ""
    prefix: str = ""


@dataclass(frozen=True)
class Task:
    """One decision of the compiler that cost models price.

    Attributes:
        name: name in parameter files, folders and result rows; also that of its record type.
        samples: subject of one sample: a kernel, or a whole program.
        measures_programs: whether an autotuner measures a decision by running the whole program, after
            compiling it, and not one kernel.
        answers: answer of a cost model of the task: a `cost` whose order counts, or a `runtime_ns`.
            None where no model is trained on the task.
        monitor: metric on validation programs by which the best model is chosen.
        measures: error and correlation of the task's main table; empty where no model is trained.
        short_kernels: both measures over kernels that take less than 5 us, where these are reported apart.
        all_kernels: both measures over all kernels, where the main table leaves short ones out.
        counted: metric that says how many kernels a program's measures are over; empty for no such column.
        counts_kernels: whether tables of the corpus count kernels apart from samples.
        default_columns: columns of shards with each kernel's runtime under the default decision and with its
            executions, for the audit of leaks; empty where samples are programs.
        is_searched: whether the stage `autotune` searches for decisions.
        is_tuned: whether `costbench tune` does.
        on_processor: whether XLA on a processor takes decisions that it is given, so that they can be tuned
            on a machine that exists.
        labels: names and sentences in reports.
    """

    name: TaskName
    samples: Literal["kernel", "program"]
    measures_programs: bool
    answers: Literal["cost", "runtime_ns"] | None = None
    monitor: str = ""
    measures: tuple[Measure, ...] = ()
    short_kernels: tuple[Measure, ...] = ()
    all_kernels: tuple[Measure, ...] = ()
    counted: str = ""
    counts_kernels: bool = False
    default_columns: tuple[str, ...] = ()
    is_searched: bool = False
    is_tuned: bool = False
    on_processor: bool = False
    labels: Labels | None = None

    @property
    def learned(self) -> bool:
        """Whether cost models are trained and evaluated on the task."""
        return self.answers is not None

    @property
    def ranks_decisions(self) -> bool:
        """Whether a model is judged by how it orders the decisions of a kernel."""
        return self.answers == "cost"

    @property
    def known_measures(self) -> tuple[Measure, ...]:
        """Returns all measures that result rows may hold under a name of their own."""
        return (*self.measures, *self.short_kernels, *self.all_kernels)


_TILE = Task(
    name="tile",
    samples="kernel",
    measures_programs=False,
    answers="cost",
    monitor="tau",
    measures=(error_measure(APE, "ape", "Tile-Size APE (%)"), tau_measure(TAU, "tau", "Kendall's τ")),
    counts_kernels=True,
    default_columns=("kernel_default_ns", "kernel_runs"),
    is_searched=True,
    is_tuned=True,
    labels=Labels(
        title="Tile sizes",
        heading="Tile-size task",
        searches="Tile sizes",
        question="Which model chooses tile sizes best?",
        goal="rank the tile sizes",
        error="Tile-Size APE",
        short_error="APE",
        definition="Tile-Size APE: how much slower the program is with the tile sizes a model picks than "
        "with the best ones (lpm2021, equation 2; kernels weighted by how often they run). Kendall's τ: "
        "tau-b between predicted and measured runtimes of a kernel's tile sizes, mean over kernels.",
        decisions="tile sizes",
    ),
)

_FUSION = Task(
    name="fusion",
    samples="kernel",
    measures_programs=True,
    answers="runtime_ns",
    monitor="mape",
    measures=(
        error_measure("mape_ge5us", "mape_ge5us", "MAPE (%), kernels from 5 µs"),
        tau_measure("kendall_tau_ge5us", "tau_ge5us", "Kendall's τ, kernels from 5 µs"),
    ),
    short_kernels=(
        error_measure("mape_lt5us", "mape_lt5us", "MAPE (%), kernels below 5 µs"),
        tau_measure("kendall_tau_lt5us", "tau_lt5us", "Kendall's τ, kernels below 5 µs"),
    ),
    all_kernels=(error_measure("mape", "mape", "MAPE (%)"), tau_measure(TAU, "tau", "Kendall's τ")),
    counted="kernels_ge5us",
    default_columns=("kernel_runtime_ns", "kernel_default_runs"),
    is_searched=True,
    is_tuned=True,
    on_processor=True,
    labels=Labels(
        title="Fusion",
        heading="Fusion task",
        searches="Fusion searches",
        question="Which model predicts runtimes of fused kernels best?",
        goal="predict the runtimes of fused kernels",
        error="MAPE",
        short_error="MAPE",
        definition="MAPE: mean over a program's kernels of |predicted − measured| / measured runtime. "
        "Kendall's τ: tau-b between predicted and measured runtimes of a program's kernels. The analytical "
        "model is scaled by kind of kernel on runs of the default fusion.",
        decisions="fusions",
        kernels=", kernels from 5 µs",
        prefix="fusion, ",
    ),
)

_LAYOUT = Task(
    name="layout",
    samples="program",
    measures_programs=True,
    answers="cost",
    monitor="opa",
    measures=(
        error_measure("top_1", "top1", "Top-1 slowdown (%)"),
        tau_measure(TAU, "tau", "Kendall's τ"),
    ),
    is_tuned=True,
    labels=Labels(
        title="Layouts",
        heading="Layout task",
        searches="Layout searches",
        question="Which model chooses layouts best?",
        goal="rank the layouts of whole programs",
        error="Top-1 slowdown",
        short_error="Top-1 slowdown",
        definition="Top-1 slowdown: how much slower the program is with the layouts that a model ranks first "
        "than with the fastest of those measured (tpugraphs2023, section 5.1). Kendall's τ: tau-b between "
        "predicted and measured runtimes of a program's layouts. Both are means over the random and the "
        "default search's collections that hold the program.",
        decisions="layouts",
        prefix="layout, ",
    ),
)

TASKS: Mapping[str, Task] = {task.name: task for task in (_TILE, _FUSION, _LAYOUT)}
"""Every task by name, in the order in which reports show them."""

AUDITED: tuple[str, ...] = tuple(name for name, task in TASKS.items() if task.default_columns)
"""Tasks whose samples are kernels, which may occur in training and test programs alike."""

LEARNED: Mapping[str, Task] = {name: task for name, task in TASKS.items() if task.learned}
"""Tasks that cost models are trained and evaluated on."""

KERNEL_TASKS: Mapping[str, Task] = {name: task for name, task in LEARNED.items() if task.samples == "kernel"}
"""Those whose models price single kernels; the registry serves their champions."""

SEARCHED: Mapping[str, Task] = {name: task for name, task in TASKS.items() if task.is_searched}
"""Tasks whose decisions the stage `autotune` searches for."""

TUNED: Mapping[str, Task] = {name: task for name, task in TASKS.items() if task.is_tuned}
"""Tasks whose decisions `costbench tune` searches for, for one program."""


def labels_of(task: str) -> Labels:
    """Labels of a task that models are evaluated on."""
    labels = LEARNED[task].labels
    assert labels is not None, f"{task} is learned, so it has labels"
    return labels


def task_order(task: str) -> tuple[int, str]:
    """Returns the sort key of tasks: those of `TASKS` in that order, others behind them by name."""
    names = list(TASKS)
    return (names.index(task) if task in TASKS else len(names), task)
