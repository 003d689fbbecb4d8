"""Where the candidates of a guided search come from, when annealing chains are not it.

A finder has the interface of `chains.Chains`: given the current model it returns the cheapest configurations
that have not been measured. `Listing` asks the model about every configuration of a small space. `Draft`
lets an analytical model propose and the learned one choose among its proposals, the scheme of Pruner
(Qiao et al., ASPLOS 2025, section 3, "draft-then-verify"; its two models are others than ours).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from costbench.search.space import Rows, Seen
from costbench_schedules.search.chains import Candidates, Energy


class Finder(Protocol):
    """Finds candidates; may keep state from one call to the next."""

    def run(self, energy: Energy, wanted: int, measured: Seen, rng: np.random.Generator) -> Candidates:
        """Returns up to `wanted` configurations that are not in `measured`, cheapest first.

        Args:
            energy: the current model.
            wanted: number of candidates.
            measured: configurations that are no candidates.
            rng: the only source of randomness.
        """
        ...


@dataclass(frozen=True, eq=False)
class Listing:
    """A `Finder` that asks the model about every configuration there is.

    Attributes:
        rows: [n, m], distinct.
    """

    rows: Rows

    def run(self, energy: Energy, wanted: int, measured: Seen, rng: np.random.Generator) -> Candidates:
        """Returns the cheapest of those that are not measured; equal costs in random order."""
        left = rng.permutation(self.rows[measured.fresh(self.rows)])
        return _cheapest(left, energy, wanted)


@dataclass(frozen=True, eq=False)
class Draft:
    """A `Finder` in two steps: one model drafts, the current one verifies.

    Attributes:
        finder: finds the draft.
        drafts: costs by the model that drafts.
        size: of the draft; as many as are wanted if these are more.
    """

    finder: Finder
    drafts: Energy
    size: int

    def run(self, energy: Energy, wanted: int, measured: Seen, rng: np.random.Generator) -> Candidates:
        """Returns those of the draft that the current model finds cheapest."""
        draft = self.finder.run(self.drafts, max(self.size, wanted), measured, rng)
        return _cheapest(draft.rows, energy, wanted)


def _cheapest(rows: Rows, energy: Energy, wanted: int) -> Candidates:
    costs = energy(rows) if len(rows) else np.zeros(0)
    order = np.argsort(costs, kind="stable")[:wanted]
    return Candidates(rows[order], costs[order])
