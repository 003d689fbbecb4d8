"""The models of Table 2: what each predicts for the programs of a network that it has not seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from costbench.arrays import F64, I64
from costbench.rng import stream
from costbench_schedules.experiments.networks.measuring import chosen_programs
from costbench_schedules.experiments.networks.programs import Candidates
from costbench_schedules.features.estimates import estimate_features
from costbench_schedules.metrics.grouped import tau_within_groups
from costbench_schedules.models.learner import Samples, samples_of
from costbench_schedules.models.multi_task import MultiTaskFeatures, MultiTaskSpec
from costbench_schedules.models.trees import BoostedTrees, BoostingSpec

SOURCE, TARGET = 0, 1
"""Machines: code for the least processor of the family stands for the source platform, that for the processor
itself for the target."""
# None of these was searched: docs/crop.md says so beside the results.
_FROM_ONE_OPERATOR = 25
_TREES = BoostingSpec(feature_share=0.3)
_MLP = MultiTaskSpec("rows", machines=2)
_TLP = MultiTaskSpec("primitives", hidden=64, machines=2)


@dataclass(frozen=True, eq=False)
class Task:
    """What a model is fitted to and tested on.

    Attributes:
        programs: all candidates.
        source: int64, places of programs measured on the source platform.
        target: int64, places of those measured on the target.
        tested: int64, places of the programs of the network.
        seed: of the fit.
        steps: of the training of networks.
    """

    programs: Candidates
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


def task_of(programs: Candidates, network: str, records: int, seed: int, steps: int) -> Task:
    """Returns the task of a network: no operator of the network is fitted to, on either platform.

    Args:
        programs: all candidates.
        network: that is tested on.
        records: measurements on the target, at most: up to 25 of each operator, of operators in random order,
            so that there is something to compare within an operator; all there are if these do not suffice.
        seed: of the draws.
        steps: of the training of networks.
    """
    own = list(programs.of_network(network))
    tested = np.flatnonzero(np.isin(programs.groups, own))
    every = programs.of_network(network).keys()
    texts = {programs.operators[place] for place in every}
    source = np.flatnonzero([programs.operators[group] not in texts for group in programs.groups])
    draws = stream(seed, "target records", network)
    groups = draws.permutation(np.unique(programs.groups[source]))
    order = [draws.permutation(source[programs.groups[source] == group]) for group in groups]
    first = [places[:_FROM_ONE_OPERATOR] for places in order]
    rest = [places[_FROM_ONE_OPERATOR:] for places in order]
    target = np.concatenate([*first, *rest])[:records].astype(np.int64)
    return Task(programs, source, np.sort(target), tested, seed, steps)


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a learned model says.

    Attributes:
        costs: of the tested programs, lower is faster.
        fitted_tau: of a network, its rank correlation on the very records that it was fitted to, mean over
            operators and platforms: whether it was trained enough.
    """

    costs: F64
    fitted_tau: float | None = None


def _estimate(name: str) -> Callable[[Task], F64]:
    return lambda task: task.programs.estimates[name][task.tested]


def _without(*parts: str) -> Callable[[Task], F64]:
    """Returns the total without some of its parts."""

    def predict(task: Task) -> F64:
        found = task.programs.estimates
        removed = [found[part] for part in parts if part in found]
        return np.asarray((found["total"] - np.sum(removed, axis=0))[task.tested])

    return predict


def _random(task: Task) -> F64:
    return stream(task.seed, "random programs").random(len(task.tested))


UNFITTED: Mapping[str, Callable[[Task], F64]] = {
    "crop": _estimate("total"),
    "crop-no-memory": _without("L2", "L3", "RAM"),
    "crop-no-branches": _without("branches"),
    "crop-5220r": _estimate("total@intel_xeon_gold_5220r"),
    "crop-7763": _estimate("total@amd_epyc_7763"),
    "throughput": _estimate("throughput"),
    "roofline": _estimate("roofline"),
    "instructions": _estimate("instructions"),
    "random": _random,
}
"""Models without a fit: the analytical one, without its parts, for other processors, and what is simpler."""
TIMES = frozenset({"crop", "crop-no-memory", "crop-no-branches", "throughput", "roofline"})
"""Those that predict the runtime on the target in nanoseconds."""


def _samples(task: Task, places: I64, machine: int) -> Samples:
    runtime = task.programs.native_ns if machine == TARGET else task.programs.generic_ns
    return samples_of(runtime[places], task.programs.groups[places])


Choice = Callable[[Task], I64]
"""Places of the programs that a model measures on the target, as many as there are in `Task.target`."""


def _operator_by_operator(task: Task) -> I64:
    return task.target


def _uniform(task: Task) -> I64:
    drawn = stream(task.seed, "uniform target records").permutation(task.source)
    return np.sort(drawn[: len(task.target)])


def _informative(task: Task) -> I64:
    programs, pool = task.programs, task.source
    chosen = chosen_programs(
        programs.relation[pool], programs.groups[pool], programs.native_ns[pool], len(task.target), task.seed
    )
    return np.sort(pool[chosen])


def _trees(choose: Choice) -> Callable[[Task], Fitted]:
    """Returns trees that are fitted to chosen programs on the target, or to the source without any."""

    def predict(task: Task) -> Fitted:
        places, machine = (choose(task), TARGET) if len(task.target) else task.fitted
        rows = task.programs.relation
        learner = BoostedTrees(spec=_TREES)
        model = learner.fit(rows[places], _samples(task, places, machine), task.seed)
        return Fitted(model.predict(rows[task.tested]))

    return predict


def _hybrid(task: Task) -> Fitted:
    """Trees on the analytical model's estimate, its parts and the executed operations."""
    found = task.programs.estimates
    start = np.log(found["total"])
    if not len(task.target):
        return Fitted(start[task.tested])
    rows = estimate_features(found, task.programs.lanes)
    runtime = task.programs.native_ns[task.target]
    samples = samples_of(runtime, task.programs.groups[task.target], start[task.target])
    model = BoostedTrees(spec=_TREES).fit(rows[task.target], samples, task.seed)
    return Fitted(np.asarray(start[task.tested] + model.predict(rows[task.tested])))


def _headed(spec: MultiTaskSpec, both: bool) -> Callable[[Task], Fitted]:
    """Returns a network; where `both`, it is fitted to both platforms, else to the one of `Task.fitted`."""

    def predict(task: Task) -> Fitted:
        # torch takes a second to import.
        from costbench_schedules.models.multi_task import MultiTaskLearner

        programs = task.programs
        values = programs.relation if spec.kind == "rows" else programs.primitives
        parts = [task.fitted]
        if both and len(task.target):
            parts = [(task.source, SOURCE), (task.target, TARGET)]
        places = np.concatenate([part for part, _ in parts])
        machines = np.concatenate([np.full(len(part), machine) for part, machine in parts])
        runtime = np.where(machines == TARGET, programs.native_ns[places], programs.generic_ns[places])
        groups = programs.groups[places] * 2 + machines
        features = MultiTaskFeatures(values[places], machines)
        model = MultiTaskLearner(spec, task.steps).fit(features, samples_of(runtime, groups), task.seed)
        asked = TARGET if len(task.target) else SOURCE
        tested = MultiTaskFeatures(values[task.tested], np.full(len(task.tested), asked))
        own = tau_within_groups(model.predict(features), runtime, groups)
        return Fitted(model.predict(tested), own)

    return predict


FITTED: Mapping[str, Callable[[Task], Fitted]] = {
    "mlp": _headed(_MLP, both=False),
    "gbt": _trees(_operator_by_operator),
    "gbt-uniform": _trees(_uniform),
    "gbt-informative": _trees(_informative),
    "tlp": _headed(_TLP, both=True),
    "hybrid": _hybrid,
}
"""Learned models. Without target records they are fitted to the source platform. `tlp` is always fitted to
it, with a head for each platform; `hybrid` adds trees to the analytical model. Two are `gbt` but for the
target records: drawn uniformly from all programs instead of operator by operator, or chosen by
`measuring.chosen_programs`."""
