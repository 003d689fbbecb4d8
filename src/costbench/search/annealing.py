"""Simulated annealing: several chains of random moves to neighbours, scored together in one call per step.

Each step proposes a random neighbour of every chain's state and accepts it if it is no worse, else with
probability exp(-(new - old) / T). T is the median score difference of the moves so far, so that scores may
have any scale and sign, times a factor that falls with every step. Scores are remembered: a decision is
proposed once, and returning to it is free. When the chains have found nothing new for a while they restart
from unseen decisions, so given enough budget a small space is visited completely.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from costbench.arrays import F64, Bool
from costbench.search.space import Proposals, Rows, SearchSpace, Seen, keys

_MAX_DISTANCES = 1024
"""Number of moves that the scale of the temperature is taken from."""


@dataclass(frozen=True)
class Annealing:
    """A `Strategy`.

    Attributes:
        num_chains: chains that step together; 1 where every score is expensive.
        cooling: factor on the temperature per step and chain: 0.9 leaves a tenth after 22.
        patience: consecutive steps without a new decision after which the chains restart.

    Raises:
        ValueError: for a count below 1 or a factor outside of (0, 1].
    """

    num_chains: int = 16
    cooling: float = 0.9
    patience: int = 8

    def __post_init__(self) -> None:
        if self.num_chains < 1 or self.patience < 1:
            raise ValueError("num_chains, patience: at least 1")
        if not 0.0 < self.cooling <= 1.0:
            raise ValueError("cooling: above 0, at most 1")

    def __call__(self, space: SearchSpace[Any], rng: np.random.Generator, start: Rows, /) -> Proposals:
        """Runs chains from `start` (from random decisions if it is empty), later from random ones."""
        table = ScoreTable()
        states = start if len(start) else space.draw(rng, self.num_chains, table.seen)
        while len(states):
            table.record(states, (yield states))
            count = max(self.num_chains, len(states))
            yield from self._steps(space, rng, states[np.arange(count) % len(states)], table)
            states = space.draw(rng, self.num_chains, table.seen)

    def _steps(
        self, space: SearchSpace[Any], rng: np.random.Generator, states: Rows, table: ScoreTable
    ) -> Proposals:
        """Yields new moves of the chains until `patience` steps bring none, and records their scores."""
        heat, idle = 1.0, 0
        distances = np.zeros(0)
        while idle < self.patience:
            moves = space.step(states, rng)
            fresh = moves[table.seen.fresh(moves)]
            idle = 0 if len(fresh) else idle + 1
            if len(fresh):
                table.record(fresh, (yield fresh))
            old, new = table.scores(states), table.scores(moves)
            distances = np.concatenate([distances, score_distances(old, new)])[-_MAX_DISTANCES:]
            accepted = accept_moves(old, new, heat * temperature_scale(distances), rng.random(len(states)))
            states = np.where(accepted[:, None], moves, states)
            heat *= self.cooling


class ScoreTable:
    """The scores of all decisions scored so far.

    Attributes:
        seen: decisions that have a score.
    """

    def __init__(self) -> None:
        self.seen = Seen()
        self._scores: dict[bytes, float] = {}

    def record(self, rows: Rows, scores: F64) -> None:
        """Adds the scores of some decisions."""
        self.seen.add(rows)
        self._scores.update(zip(keys(rows), scores.tolist(), strict=True))

    def scores(self, rows: Rows) -> F64:
        """Returns the scores of decisions that have one, float64 [n]."""
        return np.array([self._scores[key] for key in keys(rows)], dtype=np.float64)


def accept_moves(old: F64, new: F64, temperature: float, draws: F64) -> Bool:
    """Applies the Metropolis rule: new <= old, or draw < exp(-(new - old) / temperature); bool [chains].

    Args:
        old: scores of the states, infinite for a decision that failed.
        new: scores of the moves, likewise.
        temperature: temperature in units of scores; at 0 nothing worse is accepted.
        draws: uniform random numbers in [0, 1).
    """
    worse = np.zeros(len(old))
    uphill = new > old
    worse[uphill] = new[uphill] - old[uphill]
    if temperature == 0.0:
        return ~uphill
    # After many steps the temperature is so low that the quotient overflows; the probability is then 0.
    with np.errstate(over="ignore"):
        chance: Bool = draws < np.exp(-worse / temperature)
    return ~uphill | chance


def score_distances(old: F64, new: F64) -> F64:
    """Returns |new - old| where both are finite and differ: equal scores say nothing about the scale."""
    both = np.isfinite(old) & np.isfinite(new)
    distances = np.abs(new[both] - old[both])
    result: F64 = distances[distances > 0.0]
    return result


def temperature_scale(distances: F64) -> float:
    """Returns the median of the distances, which is robust to outliers; 0 if there are none."""
    return float(np.median(distances)) if len(distances) else 0.0
