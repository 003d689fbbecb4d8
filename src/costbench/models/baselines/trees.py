"""Gradient-boosted trees on features of kernels and decisions, by LightGBM: of runtimes, and of orders.

One thread, row-wise histograms and LightGBM's deterministic mode: the same samples give the same model, bit
for bit. LightGBM is imported only where trees are fitted or asked. Trees come without the analytical
estimate, as the learned model does, and on top of it, as the hybrid does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from costbench import rng
from costbench.arrays import F32, F64, I64
from costbench.errors import DataError
from costbench.metrics.ranking import count_pairs, tau_of
from costbench.models.baselines.kernel_tables import NUM_FEATURES, KernelTable
from costbench.models.baselines.runtimes import columns_of, fit_columns, sum_columns
from costbench.models.baselines.spec import BaselineSpec, TreesSpec

if TYPE_CHECKING:
    import lightgbm

_LEVELS = 31
_MAX_RANKED = 10_000
# Of log errors: squared below a third, absolute above. Chosen on validation programs, as is the trust.
_HUBER = 0.3
_TRUST = 5.0


@dataclass(frozen=True, eq=False)
class Samples:
    """Rows for LightGBM.

    Attributes:
        table: table of the samples, which gives their weights.
        features: features that trees read, float32 [D, F].
        start: values that the trees are added to, float64 [D].
        groups: rows of each kernel, int64 [K], for objectives that compare these; else None.
    """

    table: KernelTable
    features: F32
    start: F64
    groups: I64 | None = None


def boost(
    train: Samples,
    validation: Samples,
    target: F64,
    objective: Mapping[str, object],
    score: Callable[[F64], float],
    spec: TreesSpec,
    seed: int,
) -> str:
    """Returns the model of the round with the highest score, in LightGBM's text format.

    Args:
        train: samples that trees are fitted to.
        validation: samples that are scored after every round.
        target: values that start + sum of trees is fitted to, float64 [D].
        objective: the objective and its settings, by LightGBM's names.
        score: score of start + sum of trees for the validation samples, float64 [D]; higher is better.
        spec: size and speed.
        seed: seed of the draws of features.
    """
    import lightgbm

    def feval(output: npt.NDArray[Any], _: lightgbm.Dataset) -> tuple[str, float, bool]:
        return "score", score(np.asarray(output, np.float64)), True

    parameters: dict[str, Any] = {
        **objective,
        "metric": "None",
        "seed": int(rng.stream(seed, "trees").integers(2**31)),
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
        "learning_rate": spec.learning_rate,
        "num_leaves": spec.num_leaves,
        "min_data_in_leaf": spec.min_samples,
        "feature_fraction": spec.feature_share,
        "lambda_l2": spec.l2,
    }
    weights = train.table.row_weights
    fitted = lightgbm.Dataset(
        train.features,
        target,
        weight=weights / weights.mean(),
        group=train.groups,
        init_score=train.start,
        params=parameters,
    )
    held_out = lightgbm.Dataset(
        validation.features,
        np.zeros(len(validation.features)),
        group=validation.groups,
        init_score=validation.start,
        reference=fitted,
    )
    booster = lightgbm.train(
        parameters,
        fitted,
        spec.max_trees,
        valid_sets=[held_out],
        feval=feval,
        callbacks=[lightgbm.early_stopping(spec.patience, verbose=False)],
    )
    return booster.model_to_string(num_iteration=booster.best_iteration)


@dataclass(frozen=True)
class Trees:
    """Trees in LightGBM's text format.

    Attributes:
        model: the text.
        num_features: number of features of a row of the tables.
        reads_estimate: whether log(analytical estimate) is a further feature.
    """

    model: str
    num_features: ClassVar[int] = NUM_FEATURES
    reads_estimate: ClassVar[bool] = False

    def __post_init__(self) -> None:
        expected, actual = self.num_features + self.reads_estimate, self.loaded.num_feature()
        if actual != expected:
            raise DataError(f"trees over {actual} features", field="model", expected=f"{expected}")

    @cached_property
    def loaded(self) -> lightgbm.Booster:
        """Returns the trees, ready to predict."""
        import lightgbm

        try:
            return lightgbm.Booster(model_str=self.model)
        except lightgbm.basic.LightGBMError as error:
            raise DataError(f"no trees: {error}", field="model", expected="LightGBM's text format") from error

    def outputs(self, table: KernelTable) -> F64:
        """Returns the sums of the trees, float64 [D]."""
        sums: Any = self.loaded.predict(self.features(table), raw_score=True, num_threads=1)
        return np.asarray(sums, np.float64)

    @classmethod
    def features(cls, table: KernelTable) -> F32:
        """Returns what the trees read of each row, float32 [D, F] or [D, F + 1]."""
        if not cls.reads_estimate:
            return table.features
        return np.column_stack([table.features, np.log(table.analytical_ns).astype(np.float32)])


@dataclass(frozen=True)
class RuntimeTrees(Trees):
    """Runtime of a kernel: that of its work by a formula, times exp(sum of trees).

    The formula is a launch, FLOPs, bytes read, bytes written and special functions with non-negative
    coefficients of least error. Trees are constant where training has seen nothing, so without a
    formula they would know of no kernel that is longer than all of training. They are fitted to
    log(measured / formula) by a Huber loss.

    Attributes:
        model: the trees.
        coefficients: coefficients of the formula, ns per unit.
    """

    coefficients: tuple[float, ...] = ()

    @classmethod
    def fit(cls, train: KernelTable, validation: KernelTable, spec: BaselineSpec, seed: int) -> Self:
        """Returns the trees with the least error on `validation`, of the kind of the settings."""
        columns = columns_of(train)[:, cls._terms()]
        coefficients = tuple(fit_columns(columns, train, spec).tolist())
        weights = validation.row_weights / validation.row_weights.sum()

        def accuracy(log_runtime: F64) -> float:
            if spec.error == "log":
                return -float(weights @ np.abs(log_runtime - np.log(validation.runtime_ns)))
            return -float(weights @ np.abs(np.exp(log_runtime) / validation.runtime_ns - 1.0))

        fitted, held_out = (
            Samples(table, cls.features(table), cls._formula(table, coefficients))
            for table in (train, validation)
        )
        objective = {"objective": "huber", "alpha": _HUBER}
        target = np.log(train.runtime_ns)
        return cls(boost(fitted, held_out, target, objective, accuracy, spec.trees, seed), coefficients)

    def predict(self, table: KernelTable) -> F64:
        """Returns runtimes in ns, float64 [D]."""
        return np.exp(self._formula(table, self.coefficients) + self.outputs(table))

    @classmethod
    def _terms(cls) -> list[int]:
        return [0, 1, 2, 3, 4, 5] if cls.reads_estimate else [0, 2, 3, 4, 5]

    @classmethod
    def _formula(cls, table: KernelTable, coefficients: tuple[float, ...]) -> F64:
        """Returns the logarithm of the formula's runtime, at least 1 ns, float64 [D]."""
        return np.log(np.maximum(sum_columns(coefficients, columns_of(table)[:, cls._terms()]), 1.0))


@dataclass(frozen=True)
class CorrectedRuntimeTrees(RuntimeTrees):
    """The same on top of the analytical model, whose estimate is a term of the formula and a feature."""

    reads_estimate: ClassVar[bool] = True


@dataclass(frozen=True)
class RankingTrees(Trees):
    """Trees whose sum orders the decisions of a kernel, fitted by LambdaRank with a group for each kernel.

    A decision's relevance is its rank among those of the kernel: 31 for the fastest, 0 for the slowest,
    evenly between them, and equal for equal runtimes.
    """

    @classmethod
    def fit(cls, train: KernelTable, validation: KernelTable, spec: BaselineSpec, seed: int) -> Self:
        """Returns the trees with the highest mean of Kendall's tau over the kernels of `validation`."""
        fitted, held_out = (
            Samples(table, cls.features(table), -cls._start(table), table.counts)
            for table in (train, validation)
        )
        return cls(rank(fitted, held_out, spec, seed))

    def predict(self, table: KernelTable) -> F64:
        """Returns costs, float64 [D]; lower is faster."""
        return self._start(table) - self.outputs(table)

    @classmethod
    def _start(cls, table: KernelTable) -> F64:
        """Returns the costs that the trees correct, float64 [D]."""
        return _TRUST * np.log(table.analytical_ns) if cls.reads_estimate else np.zeros(len(table))


@dataclass(frozen=True)
class CorrectedRankingTrees(RankingTrees):
    """The same on top of the analytical model: trees correct 5 log(estimate), which is a feature as well."""

    reads_estimate: ClassVar[bool] = True


def rank(train: Samples, validation: Samples, spec: BaselineSpec, seed: int) -> str:
    """Returns LambdaRank trees, in LightGBM's text format, that rank the rows of each group.

    The round with the highest mean of Kendall's tau over the groups of `validation` is the one that counts.

    Raises:
        DataError: for a kernel with more configs than LambdaRank compares.
    """
    if (largest := int(train.table.counts.max())) > _MAX_RANKED:
        expected = f"at most {_MAX_RANKED}, which LightGBM's LambdaRank compares"
        raise DataError(f"{largest} configs of a kernel", field="training.configs", expected=expected)
    objective = {
        "objective": "lambdarank",
        "label_gain": list(range(_LEVELS + 1)),
        "lambdarank_truncation_level": largest,
    }
    ends = np.cumsum(validation.table.counts)[:-1]
    measured = np.split(validation.table.runtime_ns, ends)

    def tau(scores: F64) -> float:
        costs = np.split(-scores, ends)
        taus = [tau_of(count_pairs(*pair)) for pair in zip(costs, measured, strict=True)]
        return float(np.average(np.nan_to_num(taus), weights=validation.table.kernel_weights))

    return boost(train, validation, relevances(train.table), objective, tau, spec.trees, seed)


def relevances(table: KernelTable) -> F64:
    """Returns the relevance of each decision, whole numbers from 0 (slowest) to 31 (fastest), float64 [D]."""

    def levels(runtime_ns: F64) -> F64:
        distinct, rank = np.unique(runtime_ns, return_inverse=True)
        relevance: F64 = np.round(_LEVELS * (1.0 - rank / max(len(distinct) - 1, 1)))
        return relevance

    ends = np.cumsum(table.counts)[:-1]
    return np.concatenate([levels(runtimes) for runtimes in np.split(table.runtime_ns, ends)])
