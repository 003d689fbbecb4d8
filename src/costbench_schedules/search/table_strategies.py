"""The strategies that search tuning tables, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from costbench.errors import choose
from costbench.execution.dotted import is_part, load_part
from costbench.search.strategies import STRATEGIES
from costbench_schedules.search.bayesian import BayesianSearch
from costbench_schedules.search.guided_tables import GUIDED_MODELS
from costbench_schedules.search.kernel_tuner import KERNEL_TUNER
from costbench_schedules.search.replay import Replay, TableStrategy, TrialsSpentError, replay_proposals
from costbench_schedules.search.tpe import search_tpe

TABLE_STRATEGIES: Mapping[str, Callable[[], TableStrategy]] = {
    "random": lambda: replay_proposals(STRATEGIES["random"]),
    "genetic": lambda: replay_proposals(STRATEGIES["genetic"]),
    "annealing": lambda: replay_proposals(STRATEGIES["annealing"]),
    "annealing-1": lambda: replay_proposals(STRATEGIES["annealing-1"]),
    **GUIDED_MODELS,
    "tpe": lambda: search_tpe,
    "bayesian": BayesianSearch,
    "bayesian-transfer": lambda: BayesianSearch(transfer=True),
    **KERNEL_TUNER,
}
"""Builders of strategies by name; one whose package is not installed says so when it is built."""
TRANSFER = frozenset({"bayesian-transfer", "transfer-target"})
"""Strategies that begin with tables of other devices; without any they are others under their names."""


def check_strategy(name: str) -> None:
    """Raises ChoiceError for a name that is neither that of a strategy nor a dotted path."""
    if not is_part(name):
        choose(TABLE_STRATEGIES, name, "strategy")


def build_strategy(name: str) -> TableStrategy:
    """Returns a strategy by its name, or one of a user's own by dotted path.

    `module:function` is a `TableStrategy`; `module:name(argument=value, ...)` returns one when it is called.

    Raises:
        ChoiceError: for an unknown name.
        ParamsError: for a dotted path that cannot be imported or called, or fails in a search.
        DataError: if the strategy needs a package that is not installed.
    """
    if not is_part(name):
        return choose(TABLE_STRATEGIES, name, "strategy")()
    part = load_part(name, "strategy")
    expected = "a function of a Replay and a random generator"
    with part.checked(expected):
        strategy: TableStrategy = part.value(**part.arguments) if "(" in name else part.value

    def search(replay: Replay, rng: np.random.Generator) -> None:
        spent = False
        with part.checked(expected):
            try:
                strategy(replay, rng)
            except TrialsSpentError:
                spent = True
        if spent:
            raise TrialsSpentError

    return search
