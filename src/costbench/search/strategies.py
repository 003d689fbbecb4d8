"""The search strategies by name, and the signature that they share.

A strategy is a generator over the decisions of any space. It yields a batch of decisions to try and receives
their scores through `send`; it knows neither how they were scored nor the budget, so a run with a smaller
budget tries a prefix of what a run with a larger one tries. It proposes legal decisions only, each once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from costbench.search.annealing import Annealing
from costbench.search.genetic import Genetic
from costbench.search.sampling import Proposals, enumeration, exhaustive, random_draws
from costbench.search.space import Rows, SearchSpace


class Strategy(Protocol):
    """A search strategy: proposes what to try next."""

    def __call__(self, space: SearchSpace[Any], rng: np.random.Generator, start: Rows, /) -> Proposals:
        """Yields non-empty batches of decisions until no new ones are left.

        Args:
            space: the decision space.
            rng: the only source of randomness.
            start: distinct legal decisions to try first and to start from; may be empty.
        """
        ...


STRATEGIES: Mapping[str, Strategy] = {
    "annealing": Annealing(),
    "annealing-1": Annealing(num_chains=1),
    "enumeration": enumeration,
    "exhaustive": exhaustive,
    "genetic": Genetic(),
    "random": random_draws,
}
