"""Boosted trees that rank the layout configs of a program, fitted to those of training programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from costbench import rng
from costbench.datasets.layout.graphs import LayoutGraph, open_layout_graph
from costbench.errors import DataError
from costbench.models.baselines.boosting import Samples
from costbench.models.baselines.layout.features import CONFIG_FEATURES, config_rows
from costbench.models.baselines.spec import BaselineSpec
from costbench.models.baselines.table import KernelTable
from costbench.models.baselines.trees import ranked

if TYPE_CHECKING:
    import lightgbm

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class LayoutTrees:
    """Boosted trees whose sum orders the configs of a program, fitted by LambdaRank, a group for each.

    They read `features.CONFIG_FEATURES` of each config. A config's relevance is its place among those
    of the program: 31 for the fastest, 0 for the slowest.

    Attributes:
        model: in LightGBM's text format.
    """

    model: str

    def __post_init__(self) -> None:
        found = self.loaded.num_feature()
        if found != len(CONFIG_FEATURES):
            raise DataError(f"trees over {found} features", field="model", expected=f"{len(CONFIG_FEATURES)}")

    @cached_property
    def loaded(self) -> lightgbm.Booster:
        """The trees, ready to predict."""
        import lightgbm

        try:
            return lightgbm.Booster(model_str=self.model)
        except lightgbm.basic.LightGBMError as error:
            raise DataError(f"no trees: {error}", field="model", expected="LightGBM's text format") from error

    def predict(self, graph: LayoutGraph, rows: npt.NDArray[np.integer] | slice | None = None) -> FloatArray:
        """Returns costs of some configs (all for None), float64 [len(rows)]; lower is faster."""
        features = config_rows(graph, rows)
        found: Any = self.loaded.predict(features, raw_score=True, num_threads=1)
        return -np.asarray(found, np.float64)


def fit_layout_trees(
    train: Mapping[str, Sequence[Path]],
    validation: Mapping[str, Sequence[Path]],
    spec: BaselineSpec,
    seed: int,
) -> LayoutTrees:
    """Returns the trees with the highest mean of Kendall's tau over validation programs.

    Args:
        train: application -> layout graphs of its training programs; each application counts the same.
        validation: likewise, of validation programs.
        spec: `configs` is how many configs of a program are drawn at most, `kernels` how many programs of an
            application; sizes of the trees.
        seed: of all draws.

    Raises:
        DataError: for damaged graphs, or if no program has two configs of different runtimes.
    """
    known = _table(train, spec.training.kernels, spec.training.configs, seed)
    held_out = _table(validation, spec.validation.kernels, spec.validation.configs, seed)
    first, second = (Samples(one, one.features, np.zeros(len(one)), one.counts) for one in (known, held_out))
    return LayoutTrees(ranked(first, second, spec, seed))


def _table(graphs: Mapping[str, Sequence[Path]], programs: int, configs: int, seed: int) -> KernelTable:
    """Returns the rows of drawn configs; a program stands where tables of kernels have a kernel."""
    parts: list[KernelTable] = []
    for number, application in enumerate(sorted(graphs)):
        paths = sorted(graphs[application])
        order = rng.stream(seed, "baseline programs", application).permutation(len(paths))
        for path in (paths[place] for place in np.sort(order[:programs]).tolist()):
            graph = open_layout_graph(path)
            labelled = np.unique(graph.runtime_ns)
            if len(labelled) > 1:
                parts.append(_rows(graph, configs, number, seed))
    if not parts:
        raise DataError("no layouts to fit a baseline to", expected="a program with two or more runtimes")
    return KernelTable.joined(parts)


def _rows(graph: LayoutGraph, configs: int, application: int, seed: int) -> KernelTable:
    count = graph.num_configs
    chosen: IntArray = np.arange(count)
    if count > configs:
        draw = rng.stream(seed, "baseline configs", graph.collection, graph.name)
        chosen = np.sort(draw.choice(count, size=configs, replace=False)).astype(np.int64)
    runtime = graph.runtime_ns[chosen].astype(np.float64)
    return KernelTable(
        features=config_rows(graph, chosen),
        static=np.zeros((len(chosen), 0)),
        analytical_ns=np.ones(len(chosen)),
        runtime_ns=runtime,
        counts=np.array([len(chosen)], np.int64),
        applications=np.array([application], np.int64),
    )
