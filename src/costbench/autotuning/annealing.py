"""Simulated annealing: chains that walk from neighbour to neighbour, all of them scored in one call.

Each step moves every chain to a random neighbour of its state: always if that is no worse, else with
probability exp(-(new - old) / T). T starts at the spread of the first scores, so that scores may have any
scale and sign, and falls by a constant factor per step. Scores are remembered: a decision is proposed once,
and coming back to it is free. When the chains have found nothing new for a while they start afresh somewhere
not seen yet, so given enough budget the whole space is visited.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from costbench.autotuning.sampling import IntArray, Proposals, unseen
from costbench.compiler.spaces import DecisionSpace

NUM_CHAINS = 16
COOLING = 0.9
"""Factor on the temperature per step: a tenth is left after 22 steps."""
PATIENCE = 8
"""Steps in a row without a new decision after which the chains start afresh."""

FloatArray = npt.NDArray[np.float64]


def annealing(space: DecisionSpace[Any], rng: np.random.Generator, start: IntArray) -> Proposals:
    """Parallel chains, first from `start` (from random decisions if it is empty), later from random ones."""
    known: dict[int, float] = {}
    states = start if len(start) else unseen(space, rng, start, NUM_CHAINS)
    while len(states):
        scores = yield states
        known.update(zip(states.tolist(), scores.tolist(), strict=True))
        yield from _walk(space, rng, np.resize(states, max(NUM_CHAINS, len(states))), known)
        states = unseen(space, rng, np.fromiter(known, np.int64, len(known)), NUM_CHAINS)


def _walk(
    space: DecisionSpace[Any], rng: np.random.Generator, states: IntArray, known: dict[int, float]
) -> Proposals:
    """Steps until nothing new turns up; adds what it learns to `known`."""
    temperature = spread(_scores(states, known))
    idle = 0
    while idle < PATIENCE:
        moves = _random_neighbours(space, rng, states)
        fresh = np.array(sorted(set(moves.tolist()) - known.keys()), dtype=np.int64)
        idle = 0 if len(fresh) else idle + 1
        if len(fresh):
            scores = yield fresh
            known.update(zip(fresh.tolist(), scores.tolist(), strict=True))
        accepted = accepts(
            _scores(states, known), _scores(moves, known), temperature, rng.random(len(states))
        )
        states = np.where(accepted, moves, states)
        temperature *= COOLING


def accepts(old: FloatArray, new: FloatArray, temperature: float, draws: FloatArray) -> npt.NDArray[np.bool_]:
    """Metropolis' rule: new <= old, or draw < exp(-(new - old) / temperature); bool [chains].

    Args:
        old: scores of the states, infinite for one that does not work.
        new: scores of the moves, likewise.
        temperature: in units of scores; at 0 nothing worse is accepted.
        draws: uniform in [0, 1).
    """
    worse = np.zeros(len(old))
    uphill = new > old
    worse[uphill] = new[uphill] - old[uphill]
    if temperature == 0.0:
        return ~uphill
    chance: npt.NDArray[np.bool_] = draws < np.exp(-worse / temperature)
    return ~uphill | chance


def spread(scores: FloatArray) -> float:
    """Median distance of the finite scores from their median: outliers do not count; 0 without any."""
    finite = scores[np.isfinite(scores)]
    return float(np.median(np.abs(finite - np.median(finite)))) if len(finite) else 0.0


def _random_neighbours(space: DecisionSpace[Any], rng: np.random.Generator, states: IntArray) -> IntArray:
    """One neighbour per state, or the state itself where it has none."""
    moves = states.copy()
    for chain, state in enumerate(states.tolist()):
        around = space.neighbours(state)
        if len(around):
            moves[chain] = rng.choice(around)
    return moves


def _scores(ids: IntArray, known: dict[int, float]) -> FloatArray:
    return np.array([known[identifier] for identifier in ids.tolist()], dtype=np.float64)
