"""TpuGraphs' metrics against brute force over pairs, SciPy and values by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from costbench.errors import DataError
from costbench.metrics.tpugraphs import (
    LAYOUT_TOP_K,
    TILE_TOP_K,
    OrderedPairs,
    competition_layout_score,
    competition_score,
    competition_tile_score,
    graph_metrics,
    kendall_tau_b,
    labels_of,
    ordered_pair_accuracy,
    ordered_pairs,
    pooled_accuracy,
    top_k_slowdown,
)

SMALL = st.integers(0, 6)


def every_ordered_pair(labels: list[float], scores: list[float]) -> tuple[int, int]:
    """Correct and all ordered pairs, one after another, as the definition says."""
    valid = [(y, s) for y, s in zip(labels, scores, strict=True) if y >= 0]
    ordered = [(one, other) for one in valid for other in valid if one[0] > other[0]]
    return sum(one[1] > other[1] for one, other in ordered), len(ordered)


@given(st.lists(st.tuples(st.integers(-1, 6), SMALL), max_size=20))
def test_pairs_are_those_of_brute_force(rows: list[tuple[int, int]]) -> None:
    labels, scores = [float(y) for y, _ in rows], [float(s) for _, s in rows]
    correct, total = every_ordered_pair(labels, scores)
    pairs = ordered_pairs(labels, scores)
    assert (pairs.correct, pairs.total) == (correct, total)
    accuracy = ordered_pair_accuracy(labels, scores)
    assert math.isnan(accuracy) if not total else accuracy == correct / total


def test_many_configurations_are_counted_like_few() -> None:
    draw = np.random.default_rng(1)
    labels, scores = draw.integers(-1, 40, 700), draw.integers(0, 60, 700)
    valid = labels >= 0
    more = (labels[:, None] > labels) & valid & valid[:, None]
    pairs = ordered_pairs(labels, scores)
    assert pairs == OrderedPairs(int((more & (scores[:, None] > scores)).sum()), int(more.sum()))


def test_pairs_of_a_hundred_thousand_configurations_are_not_listed() -> None:
    draw = np.random.default_rng(2)
    runtime, scores = draw.integers(1, 2**40, 100_000), draw.normal(size=100_000)
    pairs = ordered_pairs(runtime, scores)  # 5e9 pairs, for which there is neither memory nor time
    assert pairs.total > 4.9e9
    assert pairs.accuracy == pytest.approx(0.5, abs=0.01)


def test_equal_scores_of_different_runtimes_are_wrong() -> None:
    assert ordered_pair_accuracy([1, 2, 3], [0, 0, 0]) == 0.0
    assert ordered_pair_accuracy([1, 2, 3], [0, 0, 1]) == pytest.approx(2 / 3)
    assert math.isnan(ordered_pair_accuracy([5, 5], [0, 1]))


def test_negative_labels_are_dropped() -> None:
    assert ordered_pairs([1, -1, 2], [1, 0, 2]) == OrderedPairs(1, 1)
    assert top_k_slowdown([4, -1, 2], [1, 0, 2], 1) == 1.0


def test_accuracy_is_pooled_over_the_pairs_of_all_graphs() -> None:
    graphs = [ordered_pairs([1, 2], [2, 1]), ordered_pairs([1, 2, 3], [1, 2, 3])]
    assert pooled_accuracy(graphs) == 3 / 4  # and not (0 + 1) / 2
    assert math.isnan(pooled_accuracy([]))


def test_normalizers_divide_in_float64() -> None:
    # In float32 the two quotients are equal.
    runtime, normalizers = [100_000_001, 100_000_002], [100_000_000, 100_000_000]
    assert ordered_pairs(runtime, [0, 1], normalizers) == OrderedPairs(1, 1)
    assert labels_of([10, 30], [5, 20]).tolist() == [2.0, 1.5]
    assert top_k_slowdown([10, 30], [0, 1], 1, [5, 20]) == 2.0 / 1.5 - 1.0


@given(st.lists(st.tuples(st.integers(1, 9), SMALL), min_size=2, max_size=12), st.integers(1, 14))
def test_slowdowns_are_those_of_brute_force(rows: list[tuple[int, int]], k: int) -> None:
    # Sorting pairs (score, place) is a stable order.
    order = sorted(range(len(rows)), key=lambda index: (rows[index][1], index))
    wanted = min(rows[index][0] for index in order[:k]) / min(y for y, _ in rows) - 1
    assert top_k_slowdown([y for y, _ in rows], [s for _, s in rows], k) == pytest.approx(wanted)


@given(st.lists(st.tuples(SMALL, SMALL), max_size=20))
def test_tau_is_that_of_scipy(rows: list[tuple[int, int]]) -> None:
    labels, scores = [y for y, _ in rows], [s for _, s in rows]
    tau = kendall_tau_b(labels, scores)
    if len(set(labels)) < 2 or len(set(scores)) < 2:
        assert math.isnan(tau)
    else:
        assert tau == stats.kendalltau(scores, labels).statistic


def test_the_first_of_equal_scores_is_chosen() -> None:
    assert top_k_slowdown([3, 1, 2], [0, 0, 0], 1) == 2.0
    assert top_k_slowdown([3, 1, 2], [0, 0, 0], 2) == 0.0


def test_a_single_configuration_has_no_metric() -> None:
    assert graph_metrics([7], [1.0], TILE_TOP_K, [7]) == dict.fromkeys(
        ("opa", "kendall_tau", "top_1", "top_5", "top_10")
    )


def test_metrics_of_a_graph() -> None:
    runtime, scores = [10, 20, 30, 40], [1.0, 3.0, 2.0, 4.0]
    metrics = graph_metrics(runtime, scores, LAYOUT_TOP_K)
    assert metrics == {
        "opa": 5 / 6,
        "kendall_tau": pytest.approx(stats.kendalltau(scores, runtime).statistic),
        "top_1": 0.0,
        "top_10": 0.0,
        "top_100": 0.0,
    }


def test_constant_scores_have_no_tau_but_an_accuracy() -> None:
    metrics = graph_metrics([1, 2], [5.0, 5.0], TILE_TOP_K, [1, 1])
    assert metrics["kendall_tau"] is None
    assert metrics["opa"] == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: ordered_pairs([1, 2], [1]), "scores"),
        (lambda: ordered_pairs([1, 2], [1, math.nan]), "scores"),
        (lambda: ordered_pairs([1, math.inf], [1, 2]), "runtime"),
        (lambda: labels_of([1], [0]), "normalizers"),
        (lambda: top_k_slowdown([1, 2], [1, 2], 0), "k"),
        (lambda: top_k_slowdown([0, 2], [1, 2], 1), "runtime"),
        (lambda: competition_tile_score([1, 2], [2], [1, 1]), "TopConfigs"),
        (lambda: competition_tile_score([1, 2], [], [1, 1]), "TopConfigs"),
        (lambda: competition_layout_score([1, 2], [0, 0]), "TopConfigs"),
        (lambda: competition_layout_score([1, 2], [0]), "TopConfigs"),
    ],
)
def test_what_cannot_be_scored(call: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        call()  # type: ignore[operator]


def test_scores_of_the_competition() -> None:
    runtime = [10, 12, 20, 40, 50, 5]
    assert competition_tile_score(runtime, [2, 1], [1] * 6) == pytest.approx(2 - 12 / 5)
    # The sixth of the list is not looked at.
    assert competition_tile_score(runtime, [0, 1, 2, 3, 4, 5], [1] * 6) == 0.0
    assert competition_layout_score([10, 30, 20], [0, 2, 1]) == 1.0
    assert competition_layout_score([10, 30, 20], [1, 2, 0]) == -1.0
    published = [0.9551, 0.3188, 0.5569, 0.5053, 0.8845]
    named = {str(number): [score] for number, score in enumerate(published)}
    assert competition_score(named) == pytest.approx(0.64412)
    assert competition_score({"a": [1.0, math.nan], "b": [0.0, 0.5]}) == 0.625
