"""The table of fitted baselines: a new one is a class and a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

import numpy as np

from costbench.arrays import F64
from costbench.errors import choose
from costbench.features.feature_shards import FeatureShard
from costbench.models.baselines.kernel_features import features_digest
from costbench.models.baselines.layout.features import layout_features_digest
from costbench.models.baselines.layout.trees import LayoutTrees, sampled_layouts
from costbench.models.baselines.ranker import LinearRanker
from costbench.models.baselines.runtimes import Constant, Launch, Linear, Unscaled
from costbench.models.baselines.sampling import sampled_kernels
from costbench.models.baselines.spec import BaselineSpec, SampleSpec
from costbench.models.baselines.table import KernelTable, program_tables
from costbench.models.baselines.trees import (
    CorrectedRankingTrees,
    CorrectedRuntimeTrees,
    RankingTrees,
    RuntimeTrees,
)


class Baseline(Protocol):
    """A model of a table's rows: a frozen dataclass of numbers, strings and tuples, which can be stored."""

    @classmethod
    def fit(cls, train: KernelTable, validation: KernelTable, spec: BaselineSpec, seed: int) -> Self:
        """Return the model fitted to training programs; validation programs may decide when to stop."""
        ...

    def predict(self, table: KernelTable) -> F64:
        """Return the cost of each row, float64 [D]; in ns where the task asks for runtimes, else in any unit.

        Costs are finite, lower for faster rows, and do not depend on the other rows.
        """
        ...


BASELINES: Mapping[str, Mapping[str, type[Baseline]]] = {
    "tile": {"linear": LinearRanker, "trees": RankingTrees, "trees_analytical": CorrectedRankingTrees},
    "fusion": {
        "analytical_unscaled": Unscaled,
        "analytical_constant": Constant,
        "analytical_launch": Launch,
        "analytical_linear": Linear,
        "trees": RuntimeTrees,
        "trees_analytical": CorrectedRuntimeTrees,
    },
    "layout": {"trees": LayoutTrees},
}
"""Classes by task and by the name of the model in result rows."""


class _Sampler(Protocol):
    """Draws the samples of some feature shards."""

    def __call__(
        self, paths: Sequence[Path], spec: SampleSpec, seed: int, *, min_configs: int
    ) -> KernelTable: ...


@dataclass(frozen=True)
class TaskRows:
    """The rows that the baselines of a task read.

    Attributes:
        sample: draws those that models are fitted to, from the paths of feature shards.
        digest: returns a digest of the names of their columns.
    """

    sample: _Sampler
    digest: Callable[[], str]


_KERNELS = TaskRows(sampled_kernels, features_digest)
ROWS: Mapping[str, TaskRows] = {
    "tile": _KERNELS,
    "fusion": _KERNELS,
    "layout": TaskRows(sampled_layouts, layout_features_digest),
}
"""By task."""


def fit_all(
    task: str,
    train: Sequence[Path],
    validation: Sequence[Path],
    spec: BaselineSpec,
    seed: int,
) -> dict[str, Baseline]:
    """Return all baselines of a task by name, fitted to the same samples.

    Args:
        task: by name.
        train: paths of the feature shards of the training programs.
        validation: those of the validation programs.
        spec: samples and sizes.
        seed: of all draws.

    Raises:
        ChoiceError: for a task without baselines.
        DataError: for damaged shards, or programs without kernels that can be ranked or predicted.
    """
    kinds = choose(BASELINES, task, "task")
    # One decision can be predicted, but there is nothing to rank.
    least = min(2, spec.training.configs)
    known, held_out = (
        ROWS[task].sample(paths, samples, seed, min_configs=least)
        for paths, samples in ((train, spec.training), (validation, spec.validation))
    )
    return {name: kind.fit(known, held_out, spec, seed) for name, kind in kinds.items()}


def predict_program(models: Mapping[str, Baseline], shard: FeatureShard) -> dict[str, F64]:
    """Return the costs of all decisions of all kernels of a program by model, float64 [D], in their order.

    Raises:
        DataError: for a damaged shard.
    """
    found: dict[str, list[F64]] = {name: [np.empty(0)] for name in models}
    for table in program_tables(shard):
        for name, model in models.items():
            found[name].append(model.predict(table))
    return {name: np.concatenate(parts) for name, parts in found.items()}
