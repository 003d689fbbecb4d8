"""The models of crop2024's Table 2: what each predicts for the programs of a network that it has not seen.

Recorded programs of networks are loaded once in each process, with everything that models read. Which
programs a model may measure on the target is after the sampler of TCL (Shen et al., 2026, arXiv:2604.12891),
which chooses a tenth of the programs by representativeness, diversity and uncertainty together. How the three
are computed and joined is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from scipy.spatial import cKDTree

from costbench.arrays import F32, F64, I64
from costbench.rng import stream
from costbench_schedules.experiments.recorded_tables import distinct_columns
from costbench_schedules.features.estimates import estimate_features
from costbench_schedules.features.vectors import REPRESENTATIONS
from costbench_schedules.metrics import tau_within_groups
from costbench_schedules.models.ensemble import Bootstrap
from costbench_schedules.models.learner import Samples, samples_of
from costbench_schedules.models.trees import BoostedTrees, BoostingSpec
from costbench_schedules.operators.networks import networks
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.records.programs import PROGRAMS, EstimatedPrograms, read_estimated
from costbench_schedules.spaces.space import ScheduleSpace

SOURCE, TARGET = 0, 1
"""Machines: code for the least processor of the family stands for the source platform, that for the processor
itself for the target."""
MIN_PROGRAMS = 10
"""Programs that an operator needs for a choice among them to say anything."""
# None of these sizes was searched: docs/crop.md says so beside the results.
_RECORDS_OF_OPERATOR = 25
_TREES = BoostingSpec(feature_share=0.3)
_COMPONENTS = 16
_DECIMALS = 6
_NEIGHBOURS = 10
_ROUNDS = 4
_MODELS = 5
_UNCERTAIN_TREES = BoostingSpec(trees=30, feature_share=0.3)


@dataclass(frozen=True, eq=False)
class NetworkPrograms:
    """The programs that were analysed and ran for both targets, n in all.

    Attributes:
        operators: description of each operator.
        groups: index of each program's operator in `operators`, int64 [n].
        native_ns: runtimes on the target, float64 [n].
        generic_ns: runtimes on the source platform, float64 [n].
        estimates: estimates by name, float64 [n], see `records.estimation.ProgramEstimates.of`.
        lanes: executed lanes by kind of operation, float64 [n, kinds].
        relation: relation features whose columns tell programs apart, float32 [n, F].
    """

    operators: tuple[str, ...]
    groups: I64
    native_ns: F64
    generic_ns: F64
    estimates: Mapping[str, F64]
    lanes: F64
    relation: F32

    def __len__(self) -> int:
        return len(self.groups)

    def executions_in(self, network: str) -> dict[int, int]:
        """Returns how often a network executes each of its operators, by the operator's index.

        Operators of fewer than `MIN_PROGRAMS` programs are left out.
        """
        executions = {
            parse_operator(text).text: count for text, count in networks()[network].executions.items()
        }
        sizes = np.bincount(self.groups, minlength=len(self.operators))
        return {
            index: executions[text]
            for index, text in enumerate(self.operators)
            if text in executions and sizes[index] >= MIN_PROGRAMS
        }


@lru_cache(2)
def load_programs(folder: Path, digest: str) -> NetworkPrograms:
    """Returns the programs in a folder of `estimate-networks`.

    Args:
        folder: folder of the files.
        digest: digest of `programs.arrow`, so that a changed file is read again.

    Raises:
        DataError: if the file is damaged.
    """
    return _select_programs(read_estimated(folder / PROGRAMS))


def _select_programs(estimated: EstimatedPrograms) -> NetworkPrograms:
    columns = estimated.columns
    usable = columns["analysed"] & (columns["native_ns"] > 0) & (columns["generic_ns"] > 0)
    relation = []
    for index, operator in enumerate(estimated.operators):
        space = ScheduleSpace(operator)
        rows = space.rows(columns["number"][usable & (columns["operator"] == index)].tolist())
        if len(rows):
            relation.append(REPRESENTATIONS["relation"](space, rows))
    features = np.concatenate(relation)
    order = np.argsort(columns["operator"][usable], kind="stable")
    indices = np.flatnonzero(usable)[order]
    return NetworkPrograms(
        operators=tuple(operator.text for operator in estimated.operators),
        groups=columns["operator"][indices].astype(np.int64),
        native_ns=columns["native_ns"][indices].astype(np.float64),
        generic_ns=columns["generic_ns"][indices].astype(np.float64),
        estimates={name: values[indices] for name, values in estimated.estimates.items()},
        lanes=columns["lanes"][indices].astype(np.float64),
        relation=np.ascontiguousarray(features[:, distinct_columns(features)]),
    )


@dataclass(frozen=True, eq=False)
class NetworkSplit:
    """What a model is fitted to and tested on.

    Attributes:
        programs: recorded programs of all networks.
        source: indices of programs that are measured on the source platform, int64.
        target: indices of those that are measured on the target, int64.
        tested: indices of the programs of the network, int64.
        seed: seed of the fit.
        steps: number of steps of the training of networks.
    """

    programs: NetworkPrograms
    source: I64
    target: I64
    tested: I64
    seed: int
    steps: int

    @property
    def fitted(self) -> tuple[I64, int]:
        """Returns the programs and the machine that a model of one platform is fitted to.

        That is the target where there are records of it, else the source.
        """
        return (self.target, TARGET) if len(self.target) else (self.source, SOURCE)


def split_programs(
    programs: NetworkPrograms, network: str, records: int, seed: int, steps: int
) -> NetworkSplit:
    """Returns the split of a network: no operator of the network is fitted to, on either platform.

    Args:
        programs: recorded programs of all networks.
        network: name of the network that is tested on.
        records: number of measurements on the target, at most: up to 25 of each operator, of operators in
            random order, so that there is something to compare within an operator; all there are if these do
            not suffice.
        seed: seed of the draws.
        steps: number of steps of the training of networks.
    """
    tested_operators = list(programs.executions_in(network))
    tested = np.isin(programs.groups, tested_operators)
    source = np.flatnonzero(~tested)
    draws = stream(seed, "target records", network)
    groups = draws.permutation(np.unique(programs.groups[source]))
    order = [draws.permutation(source[programs.groups[source] == group]) for group in groups]
    first = [indices[:_RECORDS_OF_OPERATOR] for indices in order]
    rest = [indices[_RECORDS_OF_OPERATOR:] for indices in order]
    target = np.concatenate([*first, *rest])[:records].astype(np.int64)
    return NetworkSplit(programs, source, np.sort(target), np.flatnonzero(tested), seed, steps)


@dataclass(frozen=True, eq=False)
class FittedPredictions:
    """What a learned model predicts.

    Attributes:
        costs: costs of the tested programs, lower is faster.
        fitted_tau: rank correlation of a network on the very records that it was fitted to, mean over
            operators: whether it was trained enough; None of other models.
    """

    costs: F64
    fitted_tau: float | None = None


def _estimate(name: str) -> Callable[[NetworkSplit], F64]:
    return lambda split: split.programs.estimates[name][split.tested]


def _without(*parts: str) -> Callable[[NetworkSplit], F64]:
    """Returns the total without some of its parts."""

    def predict(split: NetworkSplit) -> F64:
        estimates = split.programs.estimates
        removed = [estimates[part] for part in parts if part in estimates]
        return np.asarray((estimates["total"] - np.sum(removed, axis=0))[split.tested])

    return predict


UNFITTED: Mapping[str, Callable[[NetworkSplit], F64]] = {
    "crop": _estimate("total"),
    "crop-no-memory": _without("L2", "L3", "RAM"),
    "crop-no-branches": _without("branches"),
    "crop-5220r": _estimate("total@intel_xeon_gold_5220r"),
    "crop-7763": _estimate("total@amd_epyc_7763"),
    "throughput": _estimate("throughput"),
    "roofline": _estimate("roofline"),
    "instructions": _estimate("instructions"),
    "random": lambda split: stream(split.seed, "random programs").random(len(split.tested)),
}
"""Models without a fit: the analytical one, without its parts, for other processors, and what is simpler."""
TIMES = frozenset({"crop", "crop-no-memory", "crop-no-branches", "throughput", "roofline"})
"""Those that predict the runtime on the target in nanoseconds."""


def principal_components(rows: F32, count: int = _COMPONENTS) -> F64:
    """Returns coordinates on the first principal components of scaled columns, float64 [n, <= count].

    Columns have mean 0 and deviation 1 before; those that are constant count nothing. Last digits, which
    differ between processors and would decide between equal programs, are rounded away.
    """
    centred = rows.astype(np.float64) - rows.mean(axis=0, dtype=np.float64)
    deviation = centred.std(axis=0)
    scaled = centred[:, deviation > 0.0] / deviation[deviation > 0.0]
    left, values, _ = np.linalg.svd(scaled, full_matrices=False)
    coordinates: F64 = np.round(left[:, :count] * values[:count], _DECIMALS)
    return coordinates


def choose_programs(rows: F32, groups: I64, runtime_ns: F64, count: int, seed: int) -> I64:
    """Returns which programs are measured, int64 [min(count, n)], in the order of their choice.

    One by one, that with the highest product of three numbers from 0 to 1 is chosen:

    - representativeness: 1 / (1 + d / m), d the mean distance to the ten nearest programs and m its median;
    - diversity: the distance to the nearest program that is chosen, over the largest such distance;
    - uncertainty: the standard deviation of five bootstrapped models of the programs measured so far, over
      the largest; 1 in the first round, and where all models agree. They are fitted after each quarter.

    Distances are between `principal_components`. Only runtimes of programs that were chosen before are read.

    Args:
        rows: features, [n, F].
        groups: operator of each program, [n].
        runtime_ns: runtimes on the target, [n].
        count: number of programs that may be measured.
        seed: seed of the models.
    """
    points = principal_components(rows)
    size = min(count, len(rows))
    if size == len(rows):
        return np.arange(size, dtype=np.int64)
    distances, _ = cKDTree(points).query(points, k=min(_NEIGHBOURS + 1, len(points)))
    near = np.asarray(distances)[:, 1:].mean(axis=1)
    representativeness = 1.0 / (1.0 + near / max(float(np.median(near)), 1e-12))
    uncertainty = np.ones(len(rows))
    to_chosen = np.full(len(rows), np.inf)
    chosen = np.zeros(0, dtype=np.int64)
    for part in range(_ROUNDS):
        until = size * (part + 1) // _ROUNDS
        while len(chosen) < until:
            diversity = np.ones(len(rows))
            if len(chosen):
                diversity = to_chosen / max(float(to_chosen.max()), 1e-12)
            score = representativeness * diversity * uncertainty
            score[chosen] = -1.0
            best = int(np.argmax(score))
            chosen = np.append(chosen, best)
            to_chosen = np.minimum(to_chosen, np.linalg.norm(points - points[best], axis=1))
        if part < _ROUNDS - 1 and len(chosen) > 1:
            samples = samples_of(runtime_ns[chosen], groups[chosen])
            uncertainty = _uncertainty(rows, chosen, samples, seed + part)
    return chosen


def _uncertainty(rows: F32, chosen: I64, samples: Samples, seed: int) -> F64:
    learner = Bootstrap(BoostedTrees("regression", spec=_UNCERTAIN_TREES), _MODELS, "mean")
    ensemble = learner.fit(rows[chosen], samples, seed)
    deviation = np.stack([model.predict(rows) for model in ensemble.models]).std(axis=0)
    largest = float(deviation.max())
    return np.asarray(deviation / largest) if largest > 0.0 else np.ones(len(rows))


def _uniform(split: NetworkSplit) -> I64:
    order = stream(split.seed, "uniform target records").permutation(split.source)
    return np.sort(order[: len(split.target)])


def _informative(split: NetworkSplit) -> I64:
    programs, pool = split.programs, split.source
    chosen = choose_programs(
        programs.relation[pool],
        programs.groups[pool],
        programs.native_ns[pool],
        len(split.target),
        split.seed,
    )
    return np.sort(pool[chosen])


def _trees(choose: Callable[[NetworkSplit], I64]) -> Callable[[NetworkSplit], FittedPredictions]:
    """Returns trees that are fitted to chosen programs on the target, or to the source without any.

    Args:
        choose: returns the indices of the programs that are measured on the target, as many as there are in
            `NetworkSplit.target`.
    """

    def predict(split: NetworkSplit) -> FittedPredictions:
        programs = split.programs
        indices, machine = (choose(split), TARGET) if len(split.target) else split.fitted
        runtime_ns = programs.native_ns if machine == TARGET else programs.generic_ns
        samples = samples_of(runtime_ns[indices], programs.groups[indices])
        model = BoostedTrees(spec=_TREES).fit(programs.relation[indices], samples, split.seed)
        return FittedPredictions(model.predict(programs.relation[split.tested]))

    return predict


def _hybrid(split: NetworkSplit) -> FittedPredictions:
    """Trees on the analytical model's estimate, its parts and the executed operations."""
    programs, target, tested = split.programs, split.target, split.tested
    start = np.log(programs.estimates["total"])
    if not len(target):
        return FittedPredictions(start[tested])
    rows = estimate_features(programs.estimates, programs.lanes)
    samples = samples_of(programs.native_ns[target], programs.groups[target], start[target])
    model = BoostedTrees(spec=_TREES).fit(rows[target], samples, split.seed)
    return FittedPredictions(np.asarray(start[tested] + model.predict(rows[tested])))


def _perceptron(split: NetworkSplit) -> FittedPredictions:
    """A perceptron of the features of loops, fitted as trees are."""
    # torch takes a second to import.
    from costbench_schedules.models.perceptron import PerceptronLearner

    programs = split.programs
    indices, machine = split.fitted
    runtime_ns = (programs.native_ns if machine == TARGET else programs.generic_ns)[indices]
    rows, groups = programs.relation[indices], programs.groups[indices]
    model = PerceptronLearner(split.steps).fit(rows, samples_of(runtime_ns, groups), split.seed)
    fitted_tau = tau_within_groups(model.predict(rows), runtime_ns, groups)
    return FittedPredictions(model.predict(programs.relation[split.tested]), fitted_tau)


FITTED: Mapping[str, Callable[[NetworkSplit], FittedPredictions]] = {
    "mlp": _perceptron,
    "gbt": _trees(lambda split: split.target),
    "gbt-uniform": _trees(_uniform),
    "gbt-informative": _trees(_informative),
    "hybrid": _hybrid,
}
"""Learned models. Without target records they are fitted to the source platform; `hybrid` adds trees to the
analytical model. Two are `gbt` but for the
target records: drawn uniformly from all programs instead of operator by operator, or chosen by
`choose_programs`."""
