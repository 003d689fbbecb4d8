"""Replays strategies on tuning tables, repeat by repeat, with the same random numbers for all strategies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from costbench.arrays import I64
from costbench.execution.workers import Backend, run_work_items
from costbench.rng import stream
from costbench_schedules.experiments.table_scores import TableSearches
from costbench_schedules.records.tuning_table import TuningTable
from costbench_schedules.search.replay import run_search
from costbench_schedules.search.table_strategies import build_strategy, check_strategy


@dataclass(frozen=True)
class SearchPlan:
    """What is searched with.

    Attributes:
        strategies: names of strategies, keys of `TABLE_STRATEGIES`, or dotted paths.
        trials: number of trials of a search; at most as many as a table has configurations.
        repeats: number of searches.
        seed: seed of all searches.
    """

    strategies: tuple[str, ...]
    trials: int = 500
    repeats: int = 30
    seed: int = 0


@dataclass(frozen=True, eq=False)
class _Task:
    """All repeats of a strategy on a table, a work item."""

    table: TuningTable
    strategy: str
    plan: SearchPlan
    sources: tuple[TuningTable, ...]


def _search(task: _Task) -> list[I64]:
    plan = task.plan
    return [
        repeat_search(task.table, task.strategy, plan.trials, repeat, task.sources, plan.seed)
        for repeat in range(plan.repeats)
    ]


def search_tables(
    tables: Iterable[TuningTable],
    plan: SearchPlan,
    sources: Sequence[TuningTable] = (),
    backend: Backend | None = None,
    on_done: Callable[[str], None] = lambda name: None,
) -> list[TableSearches]:
    """Returns the searches of each strategy on each table, tables in order.

    Args:
        tables: tables that are searched, of different names.
        plan: strategies, trials and repeats.
        sources: tables that strategies may learn from: those of the same kernel on another device.
        backend: backend that searches run on; None for this process.
        on_done: function of `TABLE: STRATEGY` that is called when its searches are done.

    Raises:
        ChoiceError: for an unknown strategy.
        ParamsError: for a strategy of a user's own that fails.
        DataError: if a strategy needs what is not installed.
    """
    for name in plan.strategies:
        check_strategy(name)
    tasks = {
        f"{table.name}: {name}": _Task(table, name, plan, related(table, sources))
        for table in tables
        for name in plan.strategies
    }
    orders = run_work_items(_search, tasks, backend or Backend(), lambda name, _: on_done(name))
    return [
        TableSearches(task.table, task.strategy, plan.trials, orders[name]) for name, task in tasks.items()
    ]


def repeat_search(
    table: TuningTable, strategy: str, trials: int, repeat: int, sources: Sequence[TuningTable], seed: int
) -> I64:
    """Returns the numbers of the configurations that one search measured, in order, int64 [<= trials].

    It ends when it has measured what has the least first measurement: no score can change any more. Repeat
    r of every strategy draws from the same stream, so that those that begin with random configurations begin
    alike, and their differences are not those of the draws.
    """
    draws = stream(seed, "table search", table.name, repeat)
    return run_search(build_strategy(strategy), table, trials, draws, sources, until_best=True)


def related(table: TuningTable, tables: Iterable[TuningTable]) -> tuple[TuningTable, ...]:
    """Returns the tables of the same kernel on other devices."""
    return tuple(other for other in tables if other.kernel == table.kernel and other.device != table.device)
