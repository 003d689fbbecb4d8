"""Algorithm 1 without candidates that the cost model cannot tell from one another or from a measured one.

Many configurations of a large space are one program to the model: their features are equal, and mostly their
runtimes are, too. The cheapest candidates are then full of copies of the best program so far. Here a program
is a candidate once, and none after its measurement. This is not in autotvm2018.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from costbench.arrays import AnyArray, Bool
from costbench.search.space import Proposals, Rows, SearchSpace, Seen
from costbench_schedules.search.finders import Candidates, ChainSpec, Energy, Finder
from costbench_schedules.search.guided import ModelGuided

FeaturesOf = Callable[[Rows], AnyArray]
"""Features of configurations [n, m], one row [F] for each."""


class LastFeatures:
    """Keeps the features of the last configurations: a finder's model and `DistinctFinder` ask for the same.

    Args:
        features: function of configurations to their features.
    """

    def __init__(self, features: FeaturesOf) -> None:
        self._features = features
        self._rows: Rows | None = None
        self._last: AnyArray = np.zeros((0, 0))

    def __call__(self, rows: Rows) -> AnyArray:
        """Returns the features, [n, F]."""
        if self._rows is None or not np.array_equal(rows, self._rows):
            self._rows, self._last = rows.copy(), np.ascontiguousarray(self._features(rows))
        return self._last


@dataclass(frozen=True, eq=False)
class DistinctFinder:
    """A `Finder` whose candidates have different features, and those of nothing that was measured.

    Attributes:
        finder: finder whose candidates are thinned out.
        features: function of configurations to their features.
        measured: features of what has been measured; whoever measures adds to them.
    """

    finder: Finder
    features: FeaturesOf
    measured: Seen

    def run(self, energy: Energy, count: int, measured: Seen, rng: np.random.Generator) -> Candidates:
        """Returns the finder's `count` cheapest; of equal programs the one that it met first."""
        return self.finder.run(energy, count, _Programs(measured, self.measured, self.features), rng)


class _Programs(Seen):
    """What is no candidate in one run: `fresh` also remembers the programs that it was asked about."""

    def __init__(self, rows: Seen, measured: Seen, features: FeaturesOf) -> None:
        super().__init__()
        self._rows, self._measured, self._features = rows, measured, features
        self._met = Seen()

    def fresh(self, rows: Rows) -> Bool:
        """Returns which rows [n, m] are the first of a program that was not measured, bool [n]."""
        new = self._rows.fresh(rows)
        if len(rows):
            features = self._features(rows)[new]
            first = self._measured.fresh(features) & self._met.fresh(features)
            self._met.add(features[first])
            new[new] = first
        return new


@dataclass(frozen=True, eq=False)
class DistinctGuided:
    """A `Strategy`: a guided search whose batches hold different programs.

    Attributes:
        search: search that proposes.
        features: features that tell programs apart, whatever the model of the search reads.
    """

    search: ModelGuided[Any]
    features: FeaturesOf

    def __call__(self, space: SearchSpace[Any], rng: np.random.Generator, start: Rows, /) -> Proposals:
        """Yields batches as `ModelGuided` does, without copies among the candidates of the model."""
        measured = Seen()

        def finder(space: SearchSpace[Any], chains: ChainSpec) -> Finder:
            return DistinctFinder(self.search.finder(space, chains), self.features, measured)

        proposals = replace(self.search, finder=finder)(space, rng, start)
        batch = next(proposals, None)
        while batch is not None:
            measured.add(self.features(batch))
            try:
                batch = proposals.send((yield batch))
            except StopIteration:
                return
