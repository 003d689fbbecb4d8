"""Boosted trees that rank the layout configs of a program, fitted to those of training programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from costbench import rng
from costbench.arrays import F64, I64
from costbench.datasets.layout_graphs import LayoutGraph, open_layout_graph
from costbench.datasets.storage import Shard
from costbench.errors import DataError
from costbench.models.baselines.boosting import Samples
from costbench.models.baselines.layout.features import CONFIG_FEATURES, config_rows
from costbench.models.baselines.spec import BaselineSpec, SampleSpec
from costbench.models.baselines.table import KernelTable
from costbench.models.baselines.trees import ranked

if TYPE_CHECKING:
    import lightgbm


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

    @classmethod
    def fit(cls, train: KernelTable, validation: KernelTable, spec: BaselineSpec, seed: int) -> Self:
        """Return the trees with the highest mean of Kendall's tau over validation programs.

        Raises:
            DataError: if no validation program has two configs of different runtimes.
        """
        known, held_out = (
            Samples(one, one.features, np.zeros(len(one)), one.counts) for one in (train, validation)
        )
        return cls(ranked(known, held_out, spec, seed))

    def predict(self, table: KernelTable) -> F64:
        """Returns the cost of each row of a table of configs, float64 [D]; lower is faster."""
        found: Any = self.loaded.predict(table.features, raw_score=True, num_threads=1)
        return -np.asarray(found, np.float64)


def program_table(graph: LayoutGraph, rows: I64 | None = None, application: int = 0) -> KernelTable:
    """Returns the table of some configs of a program (all for None), which stands where others have a kernel.

    Args:
        graph: the program and its configs, whose runtimes are known.
        rows: indices of configs.
        application: number of the program's application.
    """
    chosen = np.arange(graph.num_configs) if rows is None else rows
    return KernelTable(
        features=config_rows(graph, chosen),
        static=np.zeros((len(chosen), 0)),
        analytical_ns=np.ones(len(chosen)),
        runtime_ns=graph.runtime_ns[chosen].astype(np.float64),
        counts=np.array([len(chosen)], np.int64),
        applications=np.array([application], np.int64),
    )


def sampled_layouts(
    paths: Sequence[Path], spec: SampleSpec, seed: int, *, min_configs: int = 2
) -> KernelTable:
    """Returns configs of programs, drawn evenly from all applications.

    Args:
        paths: layout graphs with runtimes.
        spec: `configs` is how many configs of a program are drawn at most, `kernels` how many programs of an
            application.
        seed: of the draws; what is drawn from an application does not depend on other applications.
        min_configs: programs with fewer different runtimes are left out.

    Returns:
        Programs by application, then in the order of the paths.

    Raises:
        DataError: for damaged graphs, or if no program is left.
    """
    by_application: dict[str, list[Path]] = {}
    for path in paths:
        by_application.setdefault(str(Shard.open(path).metadata["application"]), []).append(path)
    parts: list[KernelTable] = []
    for number, application in enumerate(sorted(by_application)):
        own = sorted(by_application[application])
        order = rng.stream(seed, "baseline programs", application).permutation(len(own))
        for path in (own[place] for place in np.sort(order[: spec.kernels]).tolist()):
            graph = open_layout_graph(path)
            if len(np.unique(graph.runtime_ns)) >= min_configs:
                parts.append(program_table(graph, _drawn(graph, spec.configs, seed), number))
    if not parts:
        raise DataError("no layouts to fit a baseline to", expected="a program with two or more runtimes")
    return KernelTable.joined(parts)


def _drawn(graph: LayoutGraph, configs: int, seed: int) -> I64:
    """Returns the configs of a program that are drawn, ascending."""
    count = graph.num_configs
    if count <= configs:
        return np.arange(count)
    draw = rng.stream(seed, "baseline configs", graph.collection, graph.name)
    return np.sort(draw.choice(count, size=configs, replace=False)).astype(np.int64)
