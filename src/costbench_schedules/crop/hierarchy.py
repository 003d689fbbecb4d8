"""Where a load finds its line: hit rates of caches from reuse distances (crop2024, section 3.3.1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import bdtr

from costbench.arrays import F64
from costbench_schedules.devices.processor import CacheLevel, Memory


def hit_probability(distances: F64, level: CacheLevel, sharers: int = 1) -> F64:
    """Returns the probability that a line is still in a cache, equation 4.

    P(h | D) = sum over a < A of (D over a) (A/B)^a ((B-A)/B)^(D-a): of D other lines, each of which falls
    into the line's set with probability A/B, fewer than A did.

    Args:
        distances: reuse distances D in lines; negative for first accesses, which miss.
        level: with A lines to a set and B in all.
        sharers: threads among which a shared cache is divided evenly.
    """
    lines = level.num_lines / (sharers if level.shared else 1)
    ways = min(level.associativity, lines)
    known = np.maximum(distances, 0.0)
    if ways >= lines:
        probability = (known < lines).astype(np.float64)
    else:
        # Binned distances are no integers; a binomial of the next smaller one is what the bin stands for.
        probability = np.asarray(bdtr(ways - 1, known.astype(np.int64), ways / lines), dtype=np.float64)
        probability[known < ways] = 1.0
    return np.where(distances < 0, 0.0, probability)


def level_shares(distances: F64, memory: Memory, sharers: int = 1) -> F64:
    """Returns where an access at each reuse distance finds its line.

    Equation 6 weighs a level by its own hit rate and the miss rates of those before it.

    Args:
        distances: [n] in lines; negative for first accesses.
        memory: the hierarchy.
        sharers: threads that share the last caches.

    Returns:
        Probabilities [n, levels + 1] of each cache and of main memory; rows sum to 1.
    """
    shares, left = [], np.ones(len(distances))
    for level in memory.caches:
        rate = hit_probability(distances, level, sharers)
        shares.append(left * rate)
        left = left * (1.0 - rate)
    return np.column_stack([*shares, left])


def average_latency(shares: Sequence[float] | F64, memory: Memory) -> float:
    """Returns the mean cycles of a load that finds its lines by `shares`, equation 6."""
    latencies = [*(level.latency for level in memory.caches), memory.ram_latency]
    return float(np.dot(shares, latencies))
