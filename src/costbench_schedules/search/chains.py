"""Parallel simulated annealing whose chains go on when their energy, a cost model, is fitted again.

autotvm2018 (section 3.3): a batch of Markov chains keeps the model busy, the chains' states persist across
updates of the model, and what they find cheapest is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
        chains: that step together.
        steps: of every chain between two updates of the model, at most.
        patience: steps without a better candidate after which a run ends.
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
        rows: [n, m], distinct.
        costs: float64 [n].
    """

    rows: Rows
    costs: F64


class Chains:
    """Chains over one space.

    Args:
        space: the decisions.
        spec: sizes.

    Attributes:
        states: of the chains, [chains, m]; none before the first run.
    """

    def __init__(self, space: SearchSpace[Any], spec: ChainSpec) -> None:
        self._space = space
        self._spec = spec
        self.states: Rows = space.rows([])

    def run(self, energy: Energy, wanted: int, measured: Seen, rng: np.random.Generator) -> Candidates:
        """Returns the `wanted` cheapest decisions that the chains meet, fewer if they meet fewer.

        A move to a random neighbour is accepted by the Metropolis rule. The temperature falls linearly from
        the median cost difference of the moves so far to 0, so that costs may have any scale. A run asks for
        the cost of a decision once.

        Args:
            energy: the current model.
            wanted: number of candidates.
            measured: decisions that are no candidates; chains may pass through them.
            rng: the only source of randomness.
        """
        spec = self._spec
        if not spec.persistent or not len(self.states):
            drawn = self._space.draw(rng, spec.chains, Seen())
            self.states = drawn[np.arange(spec.chains) % len(drawn)] if len(drawn) else drawn
        met = _Met(energy, measured, wanted)
        states, old = self.states, met.costs(self.states)
        distances, step, improved = np.zeros(0), 0, 0
        while len(states) and step < spec.steps and step - improved < spec.patience:
            moves = self._space.step(states, rng)
            if met.learn(moves):
                improved = step
            new = met.costs(moves)
            distances = np.concatenate([distances, score_distances(old, new)])[-_REMEMBERED:]
            heat = 1.0 - step / spec.steps
            accepted = accept_moves(old, new, heat * temperature_scale(distances), rng.random(len(states)))
            states = np.where(accepted[:, None], moves, states)
            old = np.where(accepted, new, old)
            step += 1
        self.states = states
        return met.cheapest()


class _Met:
    """Decisions that a run has met, with their costs."""

    def __init__(self, energy: Energy, measured: Seen, wanted: int) -> None:
        self._energy, self._measured, self._wanted = energy, measured, wanted
        self._seen = Seen()
        self._cost_of: dict[bytes, float] = {}
        self._rows: list[Rows] = []
        self._costs: list[F64] = []
        self._best = np.zeros(0)

    def costs(self, rows: Rows) -> F64:
        """Returns the cost of each decision, float64 [n]."""
        self.learn(rows)
        return np.array([self._cost_of[key] for key in keys(rows)], dtype=np.float64)

    def learn(self, rows: Rows) -> bool:
        """Asks for the costs of decisions not met so far; returns whether the cheapest candidates changed."""
        fresh = self._seen.take_fresh(rows)
        if not len(fresh):
            return False
        costs = self._energy(fresh)
        self._cost_of.update(zip(keys(fresh), costs.tolist(), strict=True))
        new = self._measured.fresh(fresh)
        self._rows.append(fresh[new])
        self._costs.append(costs[new])
        joined = np.sort(np.concatenate([self._best, costs[new]]))[: self._wanted]
        changed = len(joined) > len(self._best) or bool((joined < self._best).any())
        self._best = joined
        return changed

    def cheapest(self) -> Candidates:
        """Returns the cheapest candidates; of equal costs those met first."""
        if not self._rows:
            return Candidates(np.zeros((0, 0), dtype=np.int64), np.zeros(0))
        rows, costs = np.concatenate(self._rows), np.concatenate(self._costs)
        order = np.argsort(costs, kind="stable")[: self._wanted]
        return Candidates(rows[order], costs[order])
