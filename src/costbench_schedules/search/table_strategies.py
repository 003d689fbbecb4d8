"""The strategies that search tuning tables, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from costbench.search.strategies import STRATEGIES
from costbench_schedules.search.guided_tables import GUIDED_TREES
from costbench_schedules.search.replay import TableStrategy, replay_proposals

TABLE_STRATEGIES: Mapping[str, Callable[[], TableStrategy]] = {
    "random": lambda: replay_proposals(STRATEGIES["random"]),
    "genetic": lambda: replay_proposals(STRATEGIES["genetic"]),
    "annealing": lambda: replay_proposals(STRATEGIES["annealing"]),
    "annealing-1": lambda: replay_proposals(STRATEGIES["annealing-1"]),
    **GUIDED_TREES,
}
"""Builders of strategies by name; one whose package is not installed says so when it is built."""
