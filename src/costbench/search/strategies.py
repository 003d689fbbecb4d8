"""The strategies by name, and the one signature they share.

A strategy is a generator over the decisions of any space. It yields a batch of decisions to try and is sent
their scores; it knows neither how they were scored nor the budget, so with less budget it tries the first
part of what it tries with more. It proposes legal decisions only, and each once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from costbench.search.annealing import Annealing
from costbench.search.genetic import Genetic
from costbench.search.sampling import Proposals, exhaustive, random_draws
from costbench.search.space import Rows, SearchSpace


class Strategy(Protocol):
    """What to try next."""

    def __call__(self, space: SearchSpace[Any], rng: np.random.Generator, start: Rows, /) -> Proposals:
        """Batches of decisions, none empty, until there is nothing left that is new.

        Args:
            space: of the decisions.
            rng: the only source of chance.
            start: distinct legal decisions to try first, and to set out from; may be empty.
        """
        ...


STRATEGIES: Mapping[str, Strategy] = {
    "annealing": Annealing(),
    "annealing-1": Annealing(num_chains=1),
    "exhaustive": exhaustive,
    "genetic": Genetic(),
    "random": random_draws,
}
