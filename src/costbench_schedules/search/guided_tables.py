"""AutoTVM's search of tuning tables: Algorithm 1 with models of the values of the parameters.

Models are boosted trees, and a small network with its own defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from costbench.arrays import F32
from costbench_schedules.models.learner import Learner, ScheduleModel, samples_of
from costbench_schedules.models.spec import ScheduleModelSpec, learner_of
from costbench_schedules.search.finders import ChainSpec
from costbench_schedules.search.guided import GuidedSpec, ModelGuided
from costbench_schedules.search.replay import Replay, TableStrategy, replay_proposals

_SAMPLES = 2000
"""Configurations of tables of other devices that an earlier model is fitted to."""
_CHAINS = ChainSpec(chains=64, steps=100, patience=20)


@dataclass(frozen=True)
class GuidedTable:
    """Settings of the search; see `GuidedSpec`.

    Attributes:
        learner: builder of what fits a model after each batch, which reads the values of the parameters.
        guided: settings of Algorithm 1.
        transfer: whether the search begins with a model of tables of the same kernel on other devices.
        logarithms: whether the model reads logarithms of parameters that are above 0: networks, unlike trees,
            tell how far values are apart.
    """

    learner: Callable[[], Learner[F32]]
    guided: GuidedSpec = field(default_factory=lambda: GuidedSpec(batch=32, chains=_CHAINS))
    transfer: bool = False
    logarithms: bool = False

    def build(self) -> TableStrategy:
        """Returns the strategy."""

        def search(replay: Replay, rng: np.random.Generator) -> None:
            columns = replay.space.columns[1]
            if self.logarithms:
                positive = (columns > 0.0).all(axis=0)
                columns = np.where(positive, np.log2(np.where(positive, columns, 1.0)), columns)
            features = columns.astype(np.float32)
            learner = self.learner()
            earlier = _earlier_model(replay, features, learner, rng) if self.transfer else None
            guided = ModelGuided(
                lambda rows: features[replay.space.indices(rows)],
                learner,
                self.guided,
                earlier,
                replay.trials,
            )
            replay_proposals(guided)(replay, rng)

        return search


def _earlier_model(
    replay: Replay, features: F32, learner: Learner[F32], rng: np.random.Generator
) -> ScheduleModel[F32] | None:
    """Returns a model of configurations drawn from the sources; None without a source that has any of them.

    Only configurations that are legal here are drawn. Runtimes are compared within a source.
    """
    numbers, runtimes, groups = [np.zeros(0, dtype=np.int64)], [np.zeros(0)], [np.zeros(0, dtype=np.int64)]
    for group, source in enumerate(replay.sources):
        indices = replay.space.indices_of(source.space)
        legal = indices >= 0
        numbers.append(indices[legal])
        runtimes.append(source.first_ns[legal])
        groups.append(np.full(np.count_nonzero(legal), group))
    runtime_ns = np.concatenate(runtimes)
    if not np.isfinite(runtime_ns).any():
        return None
    chosen = rng.permutation(len(runtime_ns))[:_SAMPLES]
    samples = samples_of(runtime_ns[chosen], np.concatenate(groups)[chosen])
    return learner.fit(features[np.concatenate(numbers)[chosen]], samples, int(rng.integers(2**31)))


def _trees(**settings: object) -> Callable[[], Learner[F32]]:
    return partial(learner_of, ScheduleModelSpec("gbt", "config", **settings))  # type: ignore[arg-type]


def _perceptron() -> Learner[F32]:
    """Returns a learner of networks. Torch is imported here: searches without it start without it."""
    from costbench_schedules.models.perceptron import PerceptronLearner

    return PerceptronLearner()


def _bootstrapped(acquisition: str) -> GuidedTable:
    return GuidedTable(_trees(objective="regression", models=5, acquisition=acquisition))


GUIDED_MODELS: Mapping[str, Callable[[], TableStrategy]] = {
    name: settings.build
    for name, settings in {
        "gbt-rank": GuidedTable(_trees()),
        "gbt-regression": GuidedTable(_trees(objective="regression")),
        "gbt-rank-plain": GuidedTable(
            _trees(), GuidedSpec(batch=32, candidates=1, alpha=0.0, chains=_CHAINS)
        ),
        "gbt-mean": _bootstrapped("mean"),
        "gbt-ei": _bootstrapped("ei"),
        "gbt-ucb": _bootstrapped("ucb"),
        "transfer-target": GuidedTable(_trees(), transfer=True),
        "mlp-rank": GuidedTable(_perceptron, logarithms=True),
    }.items()
}
"""Builders by the names of the same searches of schedules (`experiments.table_search.ARMS`)."""
