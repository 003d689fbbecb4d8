"""Lists the tests of global models, runs those that are missing, and turns them into result rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from costbench.artifacts import digest_bytes, write_json
from costbench.execution.workers import run_work_items
from costbench.experiments.autotuning.schedule.global_models import (
    BASELINES,
    FOLDS,
    TRANSFER,
    ModelTest,
    fixed_division,
    folded,
    scores,
)
from costbench.experiments.autotuning.schedule.params import ScheduleTuning
from costbench.experiments.autotuning.schedule.results import SCHEDULE
from costbench.experiments.autotuning.schedule.tables import Tables
from costbench.experiments.identity import code_digest, remove_outdated
from costbench.experiments.kept import KeyedResult, kept_and_missing
from costbench.experiments.workspace import Workspace
from costbench.metrics.rows import MAIN, MetricRow, RowOrigin

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TestedFile(KeyedResult):
    """The result of a test as stored in its file.

    Attributes:
        metrics: of each tested workload.
    """

    metrics: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class WantedTest:
    """A test, the file of its result, and the digest of everything that the result depends on."""

    test: ModelTest
    path: Path
    key: str


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
    wanted = {}
    for test in listed_tests(section, tables):
        parts = [code, test.name, str(test.samples)]
        parts += [one.digest for one in (*test.sources, *test.tested)]
        key = digest_bytes("\0".join(parts).encode())[:32]
        wanted[test.name] = WantedTest(test, folder / f"{test.name}.json", key)
    remove_outdated(folder, {one.path for one in wanted.values()})
    earlier, missing = kept_and_missing(TestedFile, wanted)
    _log.info("%d tests of models of schedules: %d kept, %d to do", len(wanted), len(earlier), len(missing))
    made = earlier | run_work_items(run_test, missing, workspace.backend, _log_test)
    return [(one.test, made[name]) for name, one in wanted.items()]


def run_test(wanted: WantedTest) -> TestedFile:
    """Runs one test, a work item, and writes its file.

    Raises:
        DataError: for a damaged table, or a file that cannot be written.
    """
    found = TestedFile(wanted.key, scores(wanted.test))
    write_json(wanted.path, asdict(found))
    return found


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


def _log_test(name: str, found: TestedFile) -> None:
    taus = ", ".join(f"{workload} {own['kendall_tau']:.2f}" for workload, own in found.metrics.items())
    _log.info("%s: tau %s", name, taus)
