"""Lists the tests on networks, runs those that are missing, and writes what reports read."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from costbench.artifacts import digest_file, read_json, write_json
from costbench.experiments.identity import code_digest, git_revision
from costbench.experiments.workspace import Workspace
from costbench.metrics.rows import MAIN, MetricRow, RowOrigin, write_rows
from costbench.params import digest
from costbench.store import KeyedResult, Progress, WorkItem, compute, remove_outdated
from costbench_schedules.experiments.networks.estimating import check_folder
from costbench_schedules.experiments.networks.params import ALL, NetworkTesting, learned
from costbench_schedules.experiments.networks.rivals import UNFITTED
from costbench_schedules.experiments.networks.scoring import WHOLE, NetworkTest, scores
from costbench_schedules.experiments.networks.tiles import tile_rows
from costbench_schedules.records.networks.estimated import CARD, PROGRAMS

_log = logging.getLogger(__name__)
SCHEDULE, TARGET = "schedule", "native"
SPLIT, OPERATORS = "networks", "network-operators"
"""Splits of rows: a program is a network, or one operator of one."""
_ITEMS, _ROWS, _CARD = "items", "rows.jsonl", "card.json"
_EVERY = 1_000_000
"""More target records than there are."""
Metrics = Mapping[str, Mapping[str, float]]
"""By operator, and of the whole network."""


@dataclass(frozen=True)
class TestedFile(KeyedResult):
    """The result of a test as stored in its file.

    Attributes:
        metrics: see `scoring.scores`.
    """

    metrics: Metrics


def evaluate_networks(section: NetworkTesting | None, workspace: Workspace, folder: Path) -> str:
    """Runs the tests that are missing and writes rows and the card of the recording.

    Args:
        section: what is asked for; None for nothing.
        workspace: folders of the profile, and where work items run.
        folder: folder that the results are written to; left empty without recorded programs.

    Returns:
        the digest of the programs; empty without them.

    Raises:
        DataError: for damaged programs, or a file that cannot be written.
    """
    data = None if section is None else workspace.root / section.folder
    if section is None or data is None or not (data / PROGRAMS).is_file():
        if section is not None:
            _log.info("no programs of networks are recorded in %s", data)
        remove_outdated(folder, set())
        return ""
    check_folder(data)
    programs = digest_file(data / PROGRAMS)
    place = folder / _ITEMS
    items = _work_items(listed(section, data, programs), place)
    made = compute(
        run_test, TestedFile, items, workspace.backend, "tests on networks", _log_test, folder=place
    )
    found = {item.task: made[item.name].metrics for item in items if made[item.name].metrics}
    origin = (digest(section), programs[:16], git_revision(workspace.root))
    write_rows(folder / _ROWS, [*rows_of(found, origin), *tile_rows(data, origin)])
    write_json(folder / _CARD, read_json(data / CARD))
    return programs


def listed(section: NetworkTesting, data: Path, programs: str) -> list[NetworkTest]:
    """Returns the tests that a section asks for; models without a fit are tested once."""
    found = []
    for network in section.networks:
        for name in UNFITTED:
            found.append(NetworkTest(name, network, 0, 0, data, programs, section.steps))
        for name in section.models:
            for records in (*section.records, _EVERY):
                found += [
                    NetworkTest(name, network, records, seed, data, programs, section.steps)
                    for seed in section.seeds
                ]
    return found


def _work_items(tests: Iterable[NetworkTest], folder: Path) -> list[WorkItem[NetworkTest]]:
    code = code_digest(scores)
    return [
        WorkItem.of(test.name, test, folder, (code, test.name, test.digest, str(test.steps)))
        for test in tests
    ]


def run_test(item: WorkItem[NetworkTest]) -> TestedFile:
    """Runs one test and keeps its result.

    Raises:
        DataError: for damaged programs, or a file that cannot be written.
    """
    return item.keep(TestedFile(item.key, scores(item.task)))


def _log_test(one: Progress[TestedFile]) -> None:
    if one.result.metrics:
        _log.info("%s: top-1 score %.3f", one.name, one.result.metrics[WHOLE]["top_1_score"])


def rows_of(found: Mapping[NetworkTest, Metrics], origin: tuple[str, str, str]) -> Iterator[MetricRow]:
    """Yields the rows of tests: programs are networks, and operators of networks in a split of their own.

    The variant of a learned model is the number of target records that were asked for, or `all`.

    Args:
        found: metrics of each test.
        origin: digests of parameters and programs, revision of the code.
    """
    for network in dict.fromkeys(test.network for test in found):
        several = {test: metrics for test, metrics in found.items() if test.network == network}
        for name in next(iter(several.values())):
            split, program = (SPLIT, network) if name == WHOLE else (OPERATORS, f"{network} {name}")
            place = RowOrigin(SCHEDULE, split, TARGET, network, program, *origin)
            own = {test: metrics[name] for test, metrics in several.items()}
            yield from place.rows(
                "all", {(test.model, _variant(test), test.seed): metrics for test, metrics in own.items()}
            )
            needed = {key: {"records_needed": value} for key, value in _demands(own)}
            yield from place.rows("all", needed)


def _variant(test: NetworkTest) -> str:
    if not learned(test.model):
        return MAIN
    return ALL if test.records == _EVERY else str(test.records)


def _demands(
    own: Mapping[NetworkTest, Mapping[str, float]],
) -> Iterator[tuple[tuple[str, str, int], float]]:
    """Yields the fewest target records with which a model has a top-1 score of at least the analytical one's.

    The analytical model needs none. A model that never reaches it counts with all the records that there are,
    which is less than it needs.
    """
    [reached] = [metrics["top_1_score"] for test, metrics in own.items() if test.model == "crop"]
    by_model: dict[tuple[str, int], list[Mapping[str, float]]] = {}
    for test, metrics in own.items():
        if learned(test.model) and test.model != "hybrid":
            by_model.setdefault((test.model, test.seed), []).append(metrics)
    yield ("crop", MAIN, 0), 0.0
    for (model, seed), several in by_model.items():
        enough = [one["records"] for one in several if one["top_1_score"] >= reached]
        yield (model, MAIN, seed), min(enough, default=max(one["records"] for one in several))
