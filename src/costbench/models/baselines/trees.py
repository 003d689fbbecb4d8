"""Gradient-boosted trees on features of kernels and decisions, by LightGBM: of runtimes, and of orders.

One thread, row-wise histograms and LightGBM's deterministic mode: the same samples give the same model, bit
for bit. LightGBM is imported only where trees are fitted or asked. Trees come without the analytical
estimate, as the learned model does, and on top of it, as the hybrid does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from costbench.arrays import F32, F64
from costbench.errors import DataError
from costbench.metrics.ranking import count_pairs, tau_of
from costbench.models.baselines.boosting import Boosting, Samples
from costbench.models.baselines.kernel_features import NUM_FEATURES
from costbench.models.baselines.relative_error import least_relative_error
from costbench.models.baselines.runtimes import columns_of
from costbench.models.baselines.spec import BaselineSpec
from costbench.models.baselines.table import KernelTable

if TYPE_CHECKING:
    import lightgbm

_LEVELS = 31
# Of log errors: squared below a third, absolute above. Chosen on validation programs, as is the trust.
_HUBER = 0.3
_TRUST = 5.0


@dataclass(frozen=True)
class Trees:
    """Trees in LightGBM's text format.

    Attributes:
        model: the text.
        reads_estimate: whether log(analytical estimate) is a further feature.
    """

    model: str
    reads_estimate: ClassVar[bool] = False

    def __post_init__(self) -> None:
        expected, found = NUM_FEATURES + self.reads_estimate, self.loaded.num_feature()
        if found != expected:
            raise DataError(f"trees over {found} features", field="model", expected=f"{expected}")

    @cached_property
    def loaded(self) -> lightgbm.Booster:
        """The trees, ready to predict."""
        import lightgbm

        try:
            return lightgbm.Booster(model_str=self.model)
        except lightgbm.basic.LightGBMError as error:
            raise DataError(f"no trees: {error}", field="model", expected="LightGBM's text format") from error

    def outputs(self, table: KernelTable) -> F64:
        """Return the sums of the trees, float64 [D]."""
        found: Any = self.loaded.predict(self.features(table), raw_score=True, num_threads=1)
        return np.asarray(found, np.float64)

    @classmethod
    def features(cls, table: KernelTable) -> F32:
        """Return what the trees read of each row, float32 [D, F] or [D, F + 1]."""
        if not cls.reads_estimate:
            return table.features
        return np.column_stack([table.features, np.log(table.analytical_ns).astype(np.float32)])


@dataclass(frozen=True)
class RuntimeTrees(Trees):
    """Runtime of a kernel: that of its work by a formula, times exp(sum of trees).

    The formula is a launch, FLOPs, bytes read, bytes written and special functions with non-negative
    coefficients of least relative error. Trees are constant where training has seen nothing, so without a
    formula they would know of no kernel that is longer than all of training. They are fitted to
    log(measured / formula) by a Huber loss.

    Attributes:
        model: the trees.
        coefficients: of the formula, ns per unit.
    """

    coefficients: tuple[float, ...] = ()

    @classmethod
    def fit(cls, train: KernelTable, validation: KernelTable, spec: BaselineSpec, seed: int) -> Self:
        """Return the trees with the least relative error on `validation`."""
        known = columns_of(train)[:, cls._terms()]
        found = least_relative_error(known, train.runtime_ns, train.row_weights)
        coefficients = tuple(found.tolist())
        weights = validation.row_weights / validation.row_weights.sum()

        def accuracy(log_runtime: F64) -> float:
            return -float(weights @ np.abs(np.exp(log_runtime) / validation.runtime_ns - 1.0))

        first, held_out = (
            Samples(table, cls.features(table), cls._formula(table, coefficients))
            for table in (train, validation)
        )
        settings = {"objective": "huber", "alpha": _HUBER}
        boosting = Boosting(spec.trees, seed, settings, accuracy)
        return cls(boosting.fit(first, held_out, np.log(train.runtime_ns)), coefficients)

    def predict(self, table: KernelTable) -> F64:
        """Return runtimes in ns, float64 [D]."""
        return np.exp(self._formula(table, self.coefficients) + self.outputs(table))

    @classmethod
    def _terms(cls) -> list[int]:
        return [0, 1, 2, 3, 4, 5] if cls.reads_estimate else [0, 2, 3, 4, 5]

    @classmethod
    def _formula(cls, table: KernelTable, coefficients: tuple[float, ...]) -> F64:
        """Return the logarithm of the formula's runtime, at least 1 ns, float64 [D]."""
        # Term by term: the last bit of a BLAS product depends on how many rows there are.
        total = np.zeros(len(table))
        for coefficient, column in zip(coefficients, columns_of(table)[:, cls._terms()].T, strict=True):
            total += coefficient * column
        return np.log(np.maximum(total, 1.0))


@dataclass(frozen=True)
class CorrectedRuntimeTrees(RuntimeTrees):
    """The same on top of the analytical model, whose estimate is a term of the formula and a feature."""

    reads_estimate: ClassVar[bool] = True


@dataclass(frozen=True)
class RankingTrees(Trees):
    """Trees whose sum orders the decisions of a kernel, fitted by LambdaRank with a group for each kernel.

    A decision's relevance is its place among those of the kernel: 31 for the fastest, 0 for the slowest,
    evenly between them, and equal for equal runtimes.
    """

    @classmethod
    def fit(cls, train: KernelTable, validation: KernelTable, spec: BaselineSpec, seed: int) -> Self:
        """Return the trees with the highest mean of Kendall's tau over the kernels of `validation`."""
        first, held_out = (
            Samples(table, cls.features(table), -cls._start(table), table.counts)
            for table in (train, validation)
        )
        return cls(ranked(first, held_out, spec, seed))

    def predict(self, table: KernelTable) -> F64:
        """Return costs, float64 [D]; lower is faster."""
        return self._start(table) - self.outputs(table)

    @classmethod
    def _start(cls, table: KernelTable) -> F64:
        """Return the costs that the trees correct, float64 [D]."""
        return _TRUST * np.log(table.analytical_ns) if cls.reads_estimate else np.zeros(len(table))


@dataclass(frozen=True)
class CorrectedRankingTrees(RankingTrees):
    """The same on top of the analytical model: trees correct 5 log(estimate), which is a feature as well."""

    reads_estimate: ClassVar[bool] = True


def ranked(train: Samples, validation: Samples, spec: BaselineSpec, seed: int) -> str:
    """Returns LambdaRank trees, in LightGBM's text format, that rank the rows of each group.

    Kept is the round with the highest mean of Kendall's tau over the groups of `validation`.
    """
    settings = {
        "objective": "lambdarank",
        "label_gain": list(range(_LEVELS + 1)),
        "lambdarank_truncation_level": int(train.table.counts.max()),
    }
    ends = np.cumsum(validation.table.counts)[:-1]
    measured = np.split(validation.table.runtime_ns, ends)

    def tau(scores: F64) -> float:
        costs = np.split(-scores, ends)
        found = [tau_of(count_pairs(*pair)) for pair in zip(costs, measured, strict=True)]
        return float(np.average(np.nan_to_num(found), weights=validation.table.kernel_weights))

    return Boosting(spec.trees, seed, settings, tau).fit(train, validation, relevances(train.table))


def relevances(table: KernelTable) -> F64:
    """Return the relevance of each decision, whole numbers from 0 (slowest) to 31 (fastest), float64 [D]."""
    ends = np.cumsum(table.counts)[:-1]
    return np.concatenate([_places(runtimes) for runtimes in np.split(table.runtime_ns, ends)])


def _places(runtime_ns: F64) -> F64:
    distinct, place = np.unique(runtime_ns, return_inverse=True)
    found: F64 = np.round(_LEVELS * (1.0 - place / max(len(distinct) - 1, 1)))
    return found
