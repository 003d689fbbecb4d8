"""Lists the tests of global models, runs those that are missing, and turns them into result rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from costbench.experiments.identity import code_digest
from costbench.experiments.workspace import Workspace
from costbench.metrics.rows import MAIN, MetricRow, RowOrigin
from costbench.store import KeyedResult, Progress, WorkItem, compute
from costbench_schedules.experiments.tables.global_models import (
    BASELINES,
    FOLDS,
    TRANSFER,
    ModelTest,
    fixed_division,
    folded,
    scores,
)
from costbench_schedules.experiments.tables.params import ScheduleTuning
from costbench_schedules.experiments.tables.results import SCHEDULE
from costbench_schedules.experiments.tables.tables import Tables

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TestedFile(KeyedResult):
    """The result of a test as stored in its file.

    Attributes:
        metrics: of each tested workload.
    """

    metrics: Mapping[str, Mapping[str, float]]


def listed_tests(section: ScheduleTuning, tables: Tables) -> list[ModelTest]:
    """Returns the tests that a section asks for: of its models, and of the baselines beside them."""
    chosen, found = section.models, []
    if not chosen.models:
        return []
    for target in chosen.targets:
        own = [one for _, one in sorted(tables.items()) if one.target == target]
        parts = {TRANSFER: fixed_division(own, section.transfer.sources, chosen.tested)}
        parts |= folded([one for one in own if one.workload in chosen.folded], chosen.folds, section.seed)
        for split, (sources, aims) in parts.items():
            if not sources or not aims:
                continue
            for model in (*chosen.models, *BASELINES):
                for seed in chosen.seeds:
                    found.append(
                        ModelTest(model, split, target, seed, sources, aims, section.transfer.samples)
                    )
    return found


def run_tests(
    section: ScheduleTuning, tables: Tables, workspace: Workspace, folder: Path
) -> list[tuple[ModelTest, TestedFile]]:
    """Runs the tests that are missing; returns all of them with their results.

    Args:
        section: what is tested.
        tables: that are recorded.
        workspace: where tests run.
        folder: of the files.

    Raises:
        DataError: for a damaged table, or a file that cannot be written.
    """
    code = code_digest(scores)
    unique = {}
    for test in listed_tests(section, tables):
        parts = [code, test.name, str(test.samples)]
        parts += [one.digest for one in (*test.sources, *test.tested)]
        unique[test.name] = WorkItem.of(test.name, test, folder, parts)
    items = [*unique.values()]
    title = "tests of models of schedules"
    made = compute(run_test, TestedFile, items, workspace.backend, title, _log_test, folder=folder)
    return [(item.task, made[item.name]) for item in items]


def run_test(item: WorkItem[ModelTest]) -> TestedFile:
    """Runs one test and keeps its result.

    Raises:
        DataError: for a damaged table, or a file that cannot be written.
    """
    return item.keep(TestedFile(item.key, scores(item.task)))


def rows_of_tests(
    found: Sequence[tuple[ModelTest, TestedFile]], digests: tuple[str, str], revision: str
) -> Iterator[MetricRow]:
    """Yields the rows of tests: split `transfer` or `folds`, metrics as in `global_models.scores`.

    Args:
        found: the tests.
        digests: of parameters and tables.
        revision: of the code.
    """
    for test, result in found:
        split = TRANSFER if test.split == TRANSFER else FOLDS
        for file in test.tested:
            origin = RowOrigin(
                *(SCHEDULE, split, test.target, file.operator, file.workload),
                *(digests[0], digests[1], revision),
            )
            yield from origin.rows("all", {(test.model, MAIN, test.seed): result.metrics[file.workload]})


def _log_test(one: Progress[TestedFile]) -> None:
    own = one.result.metrics.items()
    taus = ", ".join(f"{workload} {metrics['kendall_tau']:.2f}" for workload, metrics in own)
    _log.info("%s: tau %s", one.name, taus)
