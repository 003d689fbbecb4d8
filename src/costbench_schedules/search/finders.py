"""Where the candidates of a guided search come from: what a cost model finds cheapest.

`Chains` is parallel simulated annealing whose chains go on when their energy, the model, is fitted again.
autotvm2018 (section 3.3): a batch of Markov chains keeps the model busy, the chains' states persist across
updates of the model, and what they find cheapest is measured. `Listing` asks the model about every
configuration of a small space. `Draft` lets an analytical model propose and the learned one choose among its
proposals, the scheme of Pruner (Qiao et al., ASPLOS 2025, section 3, "draft-then-verify"; its two models are
others than ours).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from costbench.arrays import F64
from costbench.search.annealing import accept_moves, score_distances, temperature_scale
from costbench.search.space import Rows, SearchSpace, Seen, keys

Energy = Callable[[Rows], F64]
"""Predicted cost of decisions [n, m], finite float64 [n], lower is faster."""
_REMEMBERED = 1024
"""Moves that the scale of the temperature is taken from."""


@dataclass(frozen=True)
class ChainSpec:
    """Size of a run of the chains; the defaults are those of AutoTVM's own tuner.

    Attributes:
        chains: number of chains that step together.
        steps: largest number of steps of every chain between two updates of the model.
        patience: number of steps without a better candidate after which a run ends.
        persistent: whether the next run continues from the states of the last; else it draws new ones.

    Raises:
        ValueError: for a count below 1.
    """

    chains: int = 128
    steps: int = 500
    patience: int = 50
    persistent: bool = True

    def __post_init__(self) -> None:
        for name in ("chains", "steps", "patience"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1")


@dataclass(frozen=True, eq=False)
class Candidates:
    """Decisions with their predicted costs, cheapest first.

    Attributes:
        rows: distinct decisions, [n, m].
        costs: predicted costs, float64 [n].
    """

    rows: Rows
    costs: F64


class Chains:
    """Chains over one space.

    Args:
        space: space of the decisions.
        spec: sizes of a run.

    Attributes:
        states: states of the chains, [chains, m]; none before the first run.
    """

    def __init__(self, space: SearchSpace[Any], spec: ChainSpec) -> None:
        self._space = space
        self._spec = spec
        self.states: Rows = space.rows([])

    def run(self, energy: Energy, count: int, measured: Seen, rng: np.random.Generator) -> Candidates:
        """Returns the `count` cheapest decisions that the chains meet, fewer if they meet fewer.

        A move to a random neighbour is accepted by the Metropolis rule. The temperature falls linearly from
        the median cost difference of the moves so far to 0, so that costs may have any scale. A run asks for
        the cost of a decision once.

        Args:
            energy: current model.
            count: number of candidates that are wanted, at most.
            measured: decisions that are no candidates; chains may pass through them.
            rng: only source of randomness.
        """
        spec = self._spec
        if not spec.persistent or not len(self.states):
            rows = self._space.draw(rng, spec.chains, Seen())
            self.states = rows[np.arange(spec.chains) % len(rows)] if len(rows) else rows
        visited = _Visited(energy, measured, count)
        states, old = self.states, visited.costs(self.states)
        distances, step, improved = np.zeros(0), 0, 0
        while len(states) and step < spec.steps and step - improved < spec.patience:
            moves = self._space.step(states, rng)
            if visited.add(moves):
                improved = step
            new = visited.costs(moves)
            distances = np.concatenate([distances, score_distances(old, new)])[-_REMEMBERED:]
            heat = 1.0 - step / spec.steps
            accepted = accept_moves(old, new, heat * temperature_scale(distances), rng.random(len(states)))
            states = np.where(accepted[:, None], moves, states)
            old = np.where(accepted, new, old)
            step += 1
        self.states = states
        return visited.cheapest()


class _Visited:
    """Decisions that a run has met, with their costs."""

    def __init__(self, energy: Energy, measured: Seen, count: int) -> None:
        self._energy, self._measured, self._count = energy, measured, count
        self._seen = Seen()
        self._cost_of: dict[bytes, float] = {}
        self._rows: list[Rows] = []
        self._costs: list[F64] = []
        self._best = np.zeros(0)

    def costs(self, rows: Rows) -> F64:
        """Returns the cost of each decision, float64 [n]."""
        self.add(rows)
        return np.array([self._cost_of[key] for key in keys(rows)], dtype=np.float64)

    def add(self, rows: Rows) -> bool:
        """Asks for the costs of decisions not met so far; returns whether the cheapest candidates changed."""
        fresh = self._seen.take_fresh(rows)
        if not len(fresh):
            return False
        costs = self._energy(fresh)
        self._cost_of.update(zip(keys(fresh), costs.tolist(), strict=True))
        new = self._measured.fresh(fresh)
        self._rows.append(fresh[new])
        self._costs.append(costs[new])
        joined = np.sort(np.concatenate([self._best, costs[new]]))[: self._count]
        changed = len(joined) > len(self._best) or bool((joined < self._best).any())
        self._best = joined
        return changed

    def cheapest(self) -> Candidates:
        """Returns the cheapest candidates; of equal costs those met first."""
        if not self._rows:
            return Candidates(np.zeros((0, 0), dtype=np.int64), np.zeros(0))
        rows, costs = np.concatenate(self._rows), np.concatenate(self._costs)
        order = np.argsort(costs, kind="stable")[: self._count]
        return Candidates(rows[order], costs[order])


class Finder(Protocol):
    """Finds candidates; may keep state from one call to the next."""

    def run(self, energy: Energy, count: int, measured: Seen, rng: np.random.Generator) -> Candidates:
        """Returns up to `count` configurations that are not in `measured`, cheapest first.

        Args:
            energy: current model.
            count: number of candidates that are wanted, at most.
            measured: configurations that are no candidates.
            rng: only source of randomness.
        """
        ...


@dataclass(frozen=True, eq=False)
class Listing:
    """A `Finder` that asks the model about every configuration there is.

    Attributes:
        rows: distinct decisions, [n, m].
    """

    rows: Rows

    def run(self, energy: Energy, count: int, measured: Seen, rng: np.random.Generator) -> Candidates:
        """Returns the cheapest of those that are not measured; equal costs in random order."""
        left = rng.permutation(self.rows[measured.fresh(self.rows)])
        return _cheapest(left, energy, count)


@dataclass(frozen=True, eq=False)
class Draft:
    """A `Finder` in two steps: one model drafts, the current one verifies.

    Attributes:
        finder: finder of the draft.
        drafts: costs by the model that drafts.
        size: size of the draft, or the number of candidates that are wanted if that is larger.
    """

    finder: Finder
    drafts: Energy
    size: int

    def run(self, energy: Energy, count: int, measured: Seen, rng: np.random.Generator) -> Candidates:
        """Returns those of the draft that the current model finds cheapest."""
        draft = self.finder.run(self.drafts, max(self.size, count), measured, rng)
        return _cheapest(draft.rows, energy, count)


def _cheapest(rows: Rows, energy: Energy, count: int) -> Candidates:
    costs = energy(rows) if len(rows) else np.zeros(0)
    order = np.argsort(costs, kind="stable")[:count]
    return Candidates(rows[order], costs[order])
