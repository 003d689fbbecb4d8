"""Settings of the fitted baselines: section `baselines` of a parameter file."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from costbench.params import later


@dataclass(frozen=True)
class SampleSpec:
    """How many samples a baseline is fitted to; see `kernel_tables.sample_table`.

    Attributes:
        kernels: largest number of kernels, drawn evenly from all applications.
        configs: decisions of each kernel, at most.
    """

    kernels: int
    configs: int

    def __post_init__(self) -> None:
        for name in ("kernels", "configs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least 1")


@dataclass(frozen=True)
class TreesSpec:
    """Gradient-boosted trees; the names of LightGBM's parameters are in brackets.

    Attributes:
        max_trees: boosting rounds at most (`num_iterations`); validation programs say after how many the
            model is best.
        patience: rounds without improvement on the validation programs after which boosting ends.
        learning_rate: factor of every tree's predictions.
        num_leaves: largest number of leaves of a tree.
        min_samples: smallest number of samples in a leaf (`min_data_in_leaf`).
        feature_share: share of the features, drawn for each tree (`feature_fraction`).
        l2: penalty of leaf values (`lambda_l2`).
    """

    max_trees: int
    patience: int
    learning_rate: float
    num_leaves: int
    min_samples: int
    feature_share: float
    l2: float

    def __post_init__(self) -> None:
        for name, least in (("max_trees", 1), ("patience", 1), ("num_leaves", 2), ("min_samples", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least {least}")
        if self.learning_rate <= 0.0:
            raise ValueError(f"learning_rate is {self.learning_rate}, must be above 0")
        if not 0.0 < self.feature_share <= 1.0:
            raise ValueError(f"feature_share is {self.feature_share}, must be above 0 and at most 1")
        if self.l2 < 0.0:
            raise ValueError(f"l2 is {self.l2}, must not be negative")


@dataclass(frozen=True)
class BaselineSpec:
    """Baselines of one task.

    Attributes:
        training: samples of training programs.
        validation: samples of validation programs, which decide about the number of trees.
        trees: the gradient-boosted trees.
        ridge: penalty of the linear ranker's squared weights; models without it ignore it.
        error: error of runtimes that formulas, and the number of trees, are chosen by: `relative`, as MAPE,
            or `log`, |log(predicted / measured)|. Where formulas explain little, too little time is never off
            by more than 100%, and the least relative error is that of hardly any time at all.
    """

    training: SampleSpec
    validation: SampleSpec
    trees: TreesSpec
    ridge: float = 0.0
    error: Literal["relative", "log"] = later("relative")

    def __post_init__(self) -> None:
        if self.ridge < 0.0:
            raise ValueError(f"ridge is {self.ridge}, must not be negative")


@dataclass(frozen=True)
class TreesBudget:
    """What boosted trees are given.

    Attributes:
        kernels: largest number of kernels of training programs, drawn evenly from all applications.
        configs: decisions of each kernel, at most.
        max_trees: boosting rounds at most; validation programs say after how many the model is best.
        patience: rounds without improvement on the validation programs after which boosting ends.
    """

    kernels: int
    configs: int
    max_trees: int
    patience: int

    def __post_init__(self) -> None:
        for name in ("kernels", "configs", "max_trees", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, must be at least 1")

    def spec(self, base: BaselineSpec) -> BaselineSpec:
        """Returns the settings of a task with this budget in place of theirs."""
        trees = replace(base.trees, max_trees=self.max_trees, patience=self.patience)
        return replace(base, training=SampleSpec(self.kernels, self.configs), trees=trees)


@dataclass(frozen=True)
class BaselineParams:
    """Section `baselines`: settings of the models that are fitted, and not trained as networks.

    Attributes:
        seed: seed of the draws of samples and features.
        tile: baselines that rank tile sizes.
        fusion: baselines that predict runtimes of fused kernels.
        layout: baselines that rank layouts; `kernels` of their samples are programs of an application.
    """

    seed: int
    tile: BaselineSpec
    fusion: BaselineSpec
    layout: BaselineSpec

    def of_task(self, task: str) -> BaselineSpec:
        """Returns the settings of a task by its name."""
        spec: BaselineSpec = getattr(self, task)
        return spec
