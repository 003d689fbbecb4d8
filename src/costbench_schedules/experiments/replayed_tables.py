"""Replays strategies on tuning tables, repeat by repeat, with the same random numbers for all strategies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from costbench.arrays import I64
from costbench.rng import stream
from costbench_schedules.experiments.table_scores import TableSearches
from costbench_schedules.records.tuning_table import TuningTable
from costbench_schedules.search.replay import run_search
from costbench_schedules.search.table_strategies import build_strategy, check_strategy


def search_tables(
    tables: Iterable[TuningTable],
    strategies: Sequence[str],
    trials: int,
    repeats: int,
    sources: Sequence[TuningTable] = (),
    seed: int = 0,
) -> Iterator[TableSearches]:
    """Yields the searches of each strategy on each table.

    Args:
        tables: tables that are searched.
        strategies: names of strategies, keys of `TABLE_STRATEGIES`, or dotted paths.
        trials: number of trials of a search; at most as many as a table has configurations.
        repeats: number of searches.
        sources: tables that strategies may learn from: those of the same kernel on another device.
        seed: seed of all searches.

    Raises:
        ChoiceError: for an unknown strategy.
        ParamsError: for a strategy of a user's own that fails.
        DataError: if a strategy needs what is not installed.
    """
    for name in strategies:
        check_strategy(name)
    for table in tables:
        others = related(table, sources)
        for name in strategies:
            orders = [repeat_search(table, name, trials, repeat, others, seed) for repeat in range(repeats)]
            yield TableSearches(table, name, trials, orders)


def repeat_search(
    table: TuningTable, strategy: str, trials: int, repeat: int, sources: Sequence[TuningTable], seed: int
) -> I64:
    """Returns the numbers of the configurations that one search measured, in order, int64 [<= trials].

    Repeat r of every strategy draws from the same stream, so that those that begin with random
    configurations begin alike, and their differences are not those of the draws.
    """
    draws = stream(seed, "table search", table.name, repeat)
    return run_search(build_strategy(strategy), table, trials, draws, sources)


def related(table: TuningTable, tables: Iterable[TuningTable]) -> tuple[TuningTable, ...]:
    """Returns the tables of the same kernel on other devices."""
    return tuple(other for other in tables if other.kernel == table.kernel and other.device != table.device)
