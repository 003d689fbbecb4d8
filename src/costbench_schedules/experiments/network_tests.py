"""Section `schedules.networks`: the evaluation of crop2024 on recorded programs of five networks (Table 2).

Lists the tests that the section asks for, runs those that are missing, and writes what reports read: how good
a model's choices among a network's programs are, and curves over tile sizes (Figure 6).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from costbench.arrays import F64
from costbench.artifacts import digest_file, read_json, write_json
from costbench.errors import choose
from costbench.experiments.identity import code_digest, git_revision
from costbench.experiments.workspace import Workspace
from costbench.metrics.rows import MAIN, MetricRow, write_rows
from costbench.metrics.selection import best_of_top_k, top_k_score
from costbench.params import digest
from costbench.store import Progress, WorkItem, compute, remove_outdated
from costbench_schedules.experiments.network_models import (
    FITTED,
    TIMES,
    UNFITTED,
    FittedPredictions,
    NetworkSplit,
    load_programs,
    split_programs,
)
from costbench_schedules.experiments.repeats import MetricsFile, Provenance
from costbench_schedules.metrics import tau_within_groups
from costbench_schedules.operators.networks import networks, workload_name
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.records.card import CARD, check_folder
from costbench_schedules.records.programs import CURVES, PROGRAMS, read_estimated
from costbench_schedules.spaces.space import ScheduleSpace, tile_name

ALL_RECORDS = "all"
"""Variant of a model that is fitted to all target records there are."""
NETWORKS, OPERATORS, TILES = "networks", "network-operators", "tiles"
"""Splits of rows: a program is a network, one operator of one, or an operator with a curve of tile sizes."""
WHOLE = "network"
"""In place of an operator: all of them."""
TOP = (1, 5)
_NATIVE = "native"
_log = logging.getLogger(__name__)
_ITEMS, _ROWS, _CARD = "items", "rows.jsonl", "card.json"
_UNLIMITED = 1_000_000
"""More target records than there are."""
Metrics = Mapping[str, Mapping[str, float]]
"""Metrics by operator, and of the whole network."""


@dataclass(frozen=True)
class NetworkTesting:
    """Section `schedules.networks`: tests of models on recorded programs of networks (docs/crop.md).

    Attributes:
        networks: names of the networks that are tested on, each by models that have seen none of its
            operators.
        models: names of learned models, keys of `network_models.FITTED`; all those of `UNFITTED` are tested
            beside them.
        records: numbers of target records that learned models are fitted to; they are also fitted to all.
        seeds: seeds of draws and fits.
        steps: number of steps of the training of networks.
        folder: folder of `costbench estimate-networks`, relative to the repository's root.
    """

    networks: tuple[str, ...] = ("ResNet-50", "MobileNet-V2", "ResNeXt-50", "BERT-tiny", "BERT-base")
    models: tuple[str, ...] = tuple(FITTED)
    records: tuple[int, ...] = (0, 100, 1000)
    seeds: tuple[int, ...] = (0,)
    steps: int = 600
    folder: str = "data/networks"

    def __post_init__(self) -> None:
        for name in self.networks:
            choose(networks(), name, "network")
        for name in self.models:
            choose(FITTED, name, "model")
        for name in ("networks", "models", "records", "seeds"):
            values = getattr(self, name)
            if len(set(values)) != len(values):
                raise ValueError(f"{name} are {list(values)}, must be different ones")
        if not self.networks or not self.seeds or self.steps < 1 or min(self.records, default=0) < 0:
            raise ValueError("networks, seeds, steps: at least one; records: not negative")


@dataclass(frozen=True)
class NetworkTest:
    """One model tested on one network, a work item.

    Attributes:
        model: name of the model, a key of `FITTED` or `UNFITTED`.
        network: name of the network.
        records: number of measurements on the target that a learned model is fitted to, at most.
        seed: seed of the draws and the fit.
        folder: folder of the recorded programs.
        digest: digest of `programs.arrow`.
        steps: number of steps of the training of networks.
    """

    model: str
    network: str
    records: int
    seed: int
    folder: Path
    digest: str
    steps: int

    @property
    def name(self) -> str:
        """Key of the work item: names its file and its line in the log."""
        return f"{self.network}-{self.model}-{self.records}-s{self.seed}"

    @property
    def learned(self) -> bool:
        """Returns whether the model is fitted to records."""
        return self.model in FITTED

    @property
    def variant(self) -> str:
        """Returns the number of target records that was asked for, or `all`; `main` without a fit."""
        if not self.learned:
            return MAIN
        return ALL_RECORDS if self.records == _UNLIMITED else str(self.records)


def evaluate_networks(section: NetworkTesting | None, workspace: Workspace, folder: Path) -> str:
    """Runs the tests that are missing and writes rows and the card of the recording.

    Args:
        section: parameters; None for nothing.
        workspace: folders of the profile, and where work items run.
        folder: folder that the results are written to; left empty without recorded programs.

    Returns:
        the digest of the programs; empty without them.

    Raises:
        DataError: for damaged programs, or a file that cannot be written.
    """
    if section is None or not (workspace.root / section.folder / PROGRAMS).is_file():
        if section is not None:
            _log.info("no programs of networks are recorded in %s", workspace.root / section.folder)
        remove_outdated(folder, set())
        return ""
    data = workspace.root / section.folder
    check_folder(data)
    programs = digest_file(data / PROGRAMS)
    code = code_digest(evaluate_model)
    items = [
        WorkItem.of(test.name, test, folder / _ITEMS, (code, test.name, test.digest, str(test.steps)))
        for test in list_tests(section, data, programs)
    ]
    title = "tests on networks"
    files = compute(run_test, MetricsFile, items, workspace.backend, title, _log_test, folder=folder / _ITEMS)
    metrics = {item.task: files[item.name].metrics for item in items if files[item.name].metrics}
    provenance = Provenance(digest(section), programs[:16], git_revision(workspace.root))
    write_rows(folder / _ROWS, [*rows_of_tests(metrics, provenance), *tile_rows(data, provenance)])
    write_json(folder / _CARD, read_json(data / CARD))
    return programs


def list_tests(section: NetworkTesting, data: Path, programs: str) -> list[NetworkTest]:
    """Returns the tests that a section asks for; models without a fit are tested once."""
    tests = []
    for network in section.networks:
        for name in UNFITTED:
            tests.append(NetworkTest(name, network, 0, 0, data, programs, section.steps))
        for name in section.models:
            for records in (*section.records, _UNLIMITED):
                tests += [
                    NetworkTest(name, network, records, seed, data, programs, section.steps)
                    for seed in section.seeds
                ]
    return tests


def run_test(item: WorkItem[NetworkTest]) -> MetricsFile:
    """Runs one test and keeps its result.

    Raises:
        DataError: for damaged programs, or a file that cannot be written.
    """
    return item.keep(MetricsFile(item.key, evaluate_model(item.task)))


def _log_test(progress: Progress[MetricsFile]) -> None:
    if progress.result.metrics:
        _log.info("%s: top-1 score %.3f", progress.name, progress.result.metrics[WHOLE]["top_1_score"])


def evaluate_model(test: NetworkTest) -> dict[str, dict[str, float]]:
    """Returns the metrics of the network under `WHOLE`, and of each of its operators under its name.

    - `top_1_score`, `top_5_score`: sum over operators of executions times the fastest runtime, over the same
      sum of the fastest runtime among the k programs that are predicted fastest;
    - `kendall_tau`: rank correlation of predicted with measured runtimes, of a network the operators' mean;
    - `mape`: of models that predict times, the mean over programs of |predicted - measured| / measured, in %;
    - `records`: target measurements that the model was fitted to;
    - `fitted_tau`: of a network of all operators, see `FittedPredictions`;
    - `operators`, `programs`: how many were chosen among.

    Nothing is returned if no operator of the network has enough programs.
    """
    programs = load_programs(test.folder, test.digest)
    executions = programs.executions_in(test.network)
    if not executions:
        return {}
    split = split_programs(programs, test.network, test.records, test.seed, test.steps)
    predictions = (
        FITTED[test.model](split) if test.learned else FittedPredictions(UNFITTED[test.model](split))
    )
    groups, runtime_ns = programs.groups[split.tested], programs.native_ns[split.tested]
    parts = {WHOLE: executions}
    for operator, count in executions.items():
        parts[workload_name(parse_operator(programs.operators[operator]))] = {operator: count}
    metrics = {}
    for name, part in parts.items():
        metrics[name] = _score_choices(split, predictions.costs, part) | {
            "records": float(len(split.target) if test.learned else 0),
            "operators": float(len(part)),
        }
        if test.model in TIMES:
            indices = np.isin(groups, list(part))
            errors = np.abs(predictions.costs[indices] - runtime_ns[indices]) / runtime_ns[indices]
            metrics[name]["mape"] = float(100.0 * np.mean(errors))
    if predictions.fitted_tau is not None:
        metrics[WHOLE]["fitted_tau"] = predictions.fitted_tau
    return metrics


def _score_choices(split: NetworkSplit, costs: F64, executions: Mapping[int, int]) -> dict[str, float]:
    programs = split.programs
    groups, runtime_ns = programs.groups[split.tested], programs.native_ns[split.tested]
    masks = [groups == operator for operator in executions]
    best = [float(runtime_ns[mask].min()) for mask in masks]
    weights = [float(count) for count in executions.values()]
    metrics = {
        f"top_{k}_score": top_k_score(
            [best_of_top_k(costs[mask], runtime_ns[mask], k) for mask in masks], best, weights
        )
        for k in TOP
    }
    tested = np.any(masks, axis=0)
    metrics["kendall_tau"] = tau_within_groups(costs[tested], runtime_ns[tested], groups[tested])
    return metrics | {"programs": float(np.sum(masks))}


def rows_of_tests(metrics: Mapping[NetworkTest, Metrics], provenance: Provenance) -> Iterator[MetricRow]:
    """Yields the rows of tests: programs are networks, and operators of networks in a split of their own."""
    for network in dict.fromkeys(test.network for test in metrics):
        of_network = {test: values for test, values in metrics.items() if test.network == network}
        for name in next(iter(of_network.values())):
            split, program = (NETWORKS, network) if name == WHOLE else (OPERATORS, f"{network} {name}")
            origin = provenance.origin(split, _NATIVE, network, program)
            by_test = {test: values[name] for test, values in of_network.items()}
            yield from origin.rows(
                "all", {(test.model, test.variant, test.seed): values for test, values in by_test.items()}
            )
            needed = {key: {"records_needed": value} for key, value in _records_needed(by_test)}
            yield from origin.rows("all", needed)


def _records_needed(
    by_test: Mapping[NetworkTest, Mapping[str, float]],
) -> Iterator[tuple[tuple[str, str, int], float]]:
    """Yields the fewest target records with which a model has a top-1 score of at least the analytical one's.

    The analytical model needs none. A model that never reaches it counts with all the records that there are,
    which is less than it needs.
    """
    [reached] = [metrics["top_1_score"] for test, metrics in by_test.items() if test.model == "crop"]
    by_model: dict[tuple[str, int], list[Mapping[str, float]]] = {}
    for test, metrics in by_test.items():
        if test.learned and test.model != "hybrid":
            by_model.setdefault((test.model, test.seed), []).append(metrics)
    yield ("crop", MAIN, 0), 0.0
    for (model, seed), tests in by_model.items():
        enough = [metrics["records"] for metrics in tests if metrics["top_1_score"] >= reached]
        yield (model, MAIN, seed), min(enough, default=max(metrics["records"] for metrics in tests))


def tile_rows(folder: Path, provenance: Provenance) -> Iterator[MetricRow]:
    """Yields rows of the split `tiles`; none where no curves are recorded in the folder.

    The program is an operator. Model `crop` has `chosen_us`, the measured runtime of the tile size that is
    predicted fastest, and `predicted_us:S` for tile size S; model `measured` has `chosen_us`, the fastest
    runtime, and `measured_us:S`.

    Raises:
        DataError: if the file of curves is damaged.
    """
    if not (folder / CURVES).is_file():
        return
    curves = read_estimated(folder / CURVES)
    columns = curves.columns
    for index, operator in enumerate(curves.operators):
        programs = (columns["operator"] == index) & columns["analysed"] & (columns["native_ns"] > 0)
        if not programs.any():
            continue
        space = ScheduleSpace(operator)
        knob = tile_name(operator.spatial[-1])
        tiles = [space.choices(row)[knob] for row in space.rows(columns["number"][programs].tolist())]
        sizes = [int(tile[-1]) for tile in tiles if isinstance(tile, tuple)]
        measured_us = columns["native_ns"][programs] / 1e3
        predicted_us = curves.estimates["total"][programs] / 1e3
        rows = {
            ("crop", MAIN, 0): {"chosen_us": float(measured_us[int(np.argmin(predicted_us))])}
            | {f"predicted_us:{size}": float(us) for size, us in zip(sizes, predicted_us, strict=True)},
            ("measured", MAIN, 0): {"chosen_us": float(measured_us.min())}
            | {f"measured_us:{size}": float(us) for size, us in zip(sizes, measured_us, strict=True)},
        }
        origin = provenance.origin(TILES, _NATIVE, operator.name, workload_name(operator))
        yield from origin.rows("all", rows)
