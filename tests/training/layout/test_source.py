from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from costbench.rng import stream
from costbench.training.layout.source import (
    draw_configs,
    hash_configs,
    hold_out_configs,
    select_configs,
    space_evenly,
)
from costbench.training.spec import HoldOutSpec, SamplingSpec
from tests.models.layout.graphs import chain, random_graph


def test_equal_configs_have_equal_keys_and_others_do_not() -> None:
    graph = random_graph(0, 60, 8, 300)
    keys = hash_configs(graph)
    distinct = len(np.unique(graph.config_options, axis=0))
    assert 1 < distinct < 300
    assert len(np.unique(keys)) == distinct
    same = (graph.config_options[0] == graph.config_options).all(axis=1)
    assert np.array_equal(keys == keys[0], same)


def test_held_out_configs_were_never_trained_on() -> None:
    graph = random_graph(0, 60, 8, 300)
    parts = hold_out_configs(graph, HoldOutSpec(0.1, 0.3), seed=1)
    together = np.concatenate([parts.train, parts.validation, parts.unseen])
    assert np.array_equal(np.sort(together), np.arange(300))
    keys = hash_configs(graph)
    for left, right in ((parts.train, parts.unseen), (parts.train, parts.validation)):
        assert not set(keys[left].tolist()) & set(keys[right].tolist())
    distinct = len(np.unique(keys))
    assert len(np.unique(keys[parts.unseen])) == round(0.3 * distinct)
    again = hold_out_configs(graph, HoldOutSpec(0.1, 0.3), seed=1)
    assert np.array_equal(again.unseen, parts.unseen)
    assert not np.array_equal(hold_out_configs(graph, HoldOutSpec(0.1, 0.3), seed=2).unseen, parts.unseen)


def test_repeated_configs_count_once_at_their_mean() -> None:
    # Options of configs 0 to 3 are 00, 10, 01, 11; 4 to 7 repeat them.
    graph = chain(5, [1, 3], num_configs=8)
    graph = replace(graph, runtime_ns=np.array([10, 50, 30, 20, 14, 50, 20, 20]))
    found = select_configs(graph, None, SamplingSpec(), seed=0)
    assert found.runtime_ns.tolist() == [12.0, 20.0, 25.0, 50.0]
    assert found.rows.tolist() == [0, 3, 2, 1]
    assert len(select_configs(graph, None, SamplingSpec(deduplicate=False), seed=0)) == 8
    some = select_configs(graph, np.array([4, 5, 6]), SamplingSpec(), seed=0)
    assert (some.rows.tolist(), some.runtime_ns.tolist()) == ([4, 6, 5], [14.0, 20.0, 50.0])


def test_a_pool_is_drawn_once() -> None:
    graph = random_graph(0, 60, 8, 300)
    spec = SamplingSpec(pool=20)
    found = select_configs(graph, None, spec, seed=3)
    assert len(found) == 20
    assert np.array_equal(select_configs(graph, None, spec, seed=3).rows, found.rows)
    assert (np.diff(found.runtime_ns) >= 0).all()


@pytest.mark.parametrize("method", ["uniform", "spread"])
def test_draws_are_different_configs(method: str) -> None:
    spec = SamplingSpec(configs=8, method=method)
    places = draw_configs(stream(0, "x"), 100, spec)
    assert len(places) == len(set(places.tolist())) == 8
    assert (np.diff(places) > 0).all()
    assert draw_configs(stream(0, "x"), 5, spec).tolist() == [0, 1, 2, 3, 4]


def test_spread_draws_one_from_each_part() -> None:
    places = draw_configs(stream(4, "x"), 100, SamplingSpec(configs=10, method="spread"))
    assert (places // 10).tolist() == list(range(10))


def test_validation_configs_are_evenly_spaced_by_runtime() -> None:
    found = select_configs(random_graph(0, 60, 8, 300), None, SamplingSpec(deduplicate=False), seed=0)
    some = space_evenly(found, 5)
    assert len(some) == 5
    assert some.runtime_ns[[0, -1]].tolist() == [found.runtime_ns.min(), found.runtime_ns.max()]
    assert some.runtime_ns[2] == pytest.approx(np.median(found.runtime_ns), rel=0.01)
    assert len(space_evenly(found, 1000)) == 300
