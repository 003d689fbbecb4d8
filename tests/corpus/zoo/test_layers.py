"""Layers, cells and searches on arrays small enough to work out by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from corpus.context import Ctx

pytestmark = pytest.mark.corpus
jax = pytest.importorskip("jax", reason="needs the corpus extra: jax")
import jax.numpy as jnp  # noqa: E402

from corpus.zoo import detection, layers, transformers  # noqa: E402


def given(*params: Any, train: bool = False, states: tuple[Any, ...] = ()) -> Ctx:
    """A context that hands out these weights."""
    blank = Ctx(1, train=train, dtype="f32")
    arrays = [jnp.asarray(one, "float32") for one in params]
    return blank.replay(
        arrays, [jnp.asarray(one, "float32") for one in states], [], jnp.arange(4, dtype="uint32")
    )


def test_convolution_strides_and_pads_like_the_definition() -> None:
    x = jnp.arange(5.0).reshape(1, 5, 1)
    kernel = jnp.array([1.0, 10.0, 100.0]).reshape(3, 1, 1)
    assert layers.conv(given(kernel), x, 1, 3).ravel().tolist() == [100, 210, 321, 432, 43]
    assert layers.conv(given(kernel), x, 1, 3, 2, "VALID").ravel().tolist() == [210, 432]


def test_causal_dilated_convolution_sees_only_the_past() -> None:
    x = jnp.arange(1.0, 6.0).reshape(1, 5, 1)
    kernel = jnp.array([10.0, 1.0]).reshape(2, 1, 1)
    out = layers.dilated_conv(given(kernel), x, 1, 2, dilation=2, causal=True)
    assert out.ravel().tolist() == [1, 2, 13, 24, 35]


def test_grouped_convolution_keeps_groups_apart() -> None:
    x = jnp.array([1.0, 2.0, 3.0, 4.0]).reshape(1, 1, 1, 4)
    kernel = jnp.ones((1, 1, 2, 2))
    assert layers.grouped_conv(given(kernel), x, 2, 1, 1, groups=2).ravel().tolist() == [3, 7]


def test_transposed_convolution_spreads_the_input() -> None:
    x = jnp.array([1.0, 2.0]).reshape(1, 2, 1)
    kernel = jnp.array([1.0, 10.0]).reshape(2, 1, 1)
    # The kernel slides over the input with zeros between: last tap first.
    assert layers.conv_transpose(given(kernel), x, 1, 2, 2).ravel().tolist() == [10, 1, 20, 2]


def test_pools() -> None:
    x = jnp.arange(16.0).reshape(1, 4, 4, 1)
    assert layers.max_pool(x, 2, 2).ravel().tolist() == [5, 7, 13, 15]
    assert layers.global_mean(x).tolist() == [[7.5]]
    assert layers.upsample(x[:, :2, :2]).ravel().tolist() == [0, 0, 1, 1, 0, 0, 1, 1, 4, 4, 5, 5, 4, 4, 5, 5]


def test_batch_norm_uses_the_batch_in_training_and_moving_statistics_after() -> None:
    x = jnp.array([[1.0], [3.0]])
    c = given([2.0], [5.0], train=True, states=([0.0], [1.0]))
    assert layers.batch_norm(c, x).ravel().tolist() == pytest.approx([3.0, 7.0], abs=1e-4)
    # Batch mean 2 and variance 1, a tenth of the way.
    assert [float(one[0]) for one in c.new_states] == pytest.approx([0.2, 1.0])
    c = given([2.0], [5.0], states=([1.0], [4.0]))
    assert layers.batch_norm(c, x).ravel().tolist() == pytest.approx([5.0, 7.0], abs=1e-4)


def test_layer_and_group_norm() -> None:
    x = jnp.array([[1.0, 3.0, 10.0, 30.0]])
    normal = layers.layer_norm(given([1.0] * 4, [0.0] * 4), x)
    assert float(jnp.mean(normal)) == pytest.approx(0.0, abs=1e-5)
    assert float(jnp.mean(normal**2)) == pytest.approx(1.0, abs=1e-4)
    grouped = layers.group_norm(given([1.0] * 4, [0.0] * 4), x.reshape(1, 1, 1, 4), groups=2)
    assert grouped.ravel().tolist() == pytest.approx([-1, 1, -1, 1], abs=1e-4)


def test_dropout_keeps_its_share_and_its_mean() -> None:
    dropped = layers.dropout(given(train=True), jnp.ones((100, 100)), 0.25)
    assert np.unique(np.asarray(dropped)).tolist() == pytest.approx([0.0, 1 / 0.75])
    assert float(jnp.mean(dropped)) == pytest.approx(1.0, abs=0.05)
    assert layers.dropout(given(), jnp.ones(3), 0.25).tolist() == [1, 1, 1]


def test_cross_entropies() -> None:
    even = jnp.zeros((2, 4))
    labels = jnp.array([0, 3])
    assert float(layers.cross_entropy(even, labels)) == pytest.approx(math.log(4))
    assert float(layers.one_hot_cross_entropy(even, labels, 0.1)) == pytest.approx(math.log(4))
    sure = jnp.array([[50.0, 0, 0, 0], [0, 0, 0, 50.0]])
    assert float(layers.cross_entropy(sure, labels)) == pytest.approx(0.0, abs=1e-6)
    # Smoothing leaves 0.1 spread over four classes, three of them 50 below.
    assert float(layers.one_hot_cross_entropy(sure, labels, 0.1)) == pytest.approx(0.075 * 50, rel=1e-4)


def test_binary_cross_entropy_is_the_negative_log_likelihood() -> None:
    logits = jnp.array([0.0, 2.0, -3.0])
    expected = [math.log(2), -math.log(1 / (1 + math.exp(-2.0))), -math.log(1 - 1 / (1 + math.exp(3.0)))]
    entropy = layers.binary_cross_entropy(logits, jnp.array([0.5, 1.0, 0.0]))
    assert entropy.tolist() == pytest.approx(expected, rel=1e-5)


def test_lstm_and_gru_with_zero_weights() -> None:
    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    step = layers.lstm(given(np.zeros((3, 8)), np.zeros(8)), 1, 2)
    (cell, output), _ = step((jnp.ones((1, 2)), jnp.zeros((1, 2))), jnp.ones((1, 1)))
    assert cell.ravel().tolist() == pytest.approx([sigmoid(1.0)] * 2)
    assert output.ravel().tolist() == pytest.approx([0.5 * math.tanh(sigmoid(1.0))] * 2)
    recur = layers.gru(given(np.zeros((1, 6)), np.zeros((2, 6)), np.zeros(6)), 1, 2)
    assert recur(jnp.ones((1, 2)), jnp.ones((1, 1)))[0].ravel().tolist() == [0.5, 0.5]


def test_a_reversed_scan_gives_outputs_at_their_own_times() -> None:
    def running_sum(state: Any, x: Any) -> Any:
        return state + x, state + x

    x = jnp.array([1.0, 2.0, 4.0]).reshape(1, 3, 1)
    start = jnp.zeros((1, 1))
    assert layers.scan_time(running_sum, start, x)[1].ravel().tolist() == [1, 3, 7]
    assert layers.scan_time(running_sum, start, x, reverse=True)[1].ravel().tolist() == [7, 6, 4]


def test_attention_goes_only_where_the_mask_lets_it() -> None:
    values = jnp.array([1.0, 2.0, 6.0]).reshape(1, 1, 3, 1)
    equal = jnp.zeros((1, 1, 3, 1))
    mixed = layers.attend(given(), equal, equal, values, layers.causal_mask(3))
    assert mixed.ravel().tolist() == pytest.approx([1.0, 1.5, 3.0])


def test_suppression_removes_the_overlapping_lesser_box_only() -> None:
    boxes = jnp.array([[0, 0, 10, 10], [0, 1, 10, 10], [20, 20, 30, 30], [0, 2, 10, 10]], "float32")
    scores = jnp.array([0.9, 0.8, 0.7, 0.6])
    assert detection.suppress_overlaps(boxes, scores).tolist() == pytest.approx([0.9, 0.0, 0.7, 0.0])
    # A box that was itself suppressed suppresses nothing: the third overlaps the second, not the first.
    chain = jnp.array([[0, 0, 10, 10], [0, 3, 10, 13], [0, 6, 10, 16]], "float32")
    assert detection.suppress_overlaps(chain, scores[:3]).tolist() == pytest.approx([0.9, 0.0, 0.7])


def test_beam_search_finds_what_greedy_search_misses_and_stops_when_all_have_ended() -> None:
    # Word 1 ends. From the start 2 looks better than 3, but only 3 leads to a likely end.
    table = np.full((5, 5), 1e-6)
    table[0, 2], table[0, 3] = 0.6, 0.4
    table[2, 4], table[2, 1] = 0.55, 0.45
    table[3, 1] = 1.0
    table[4, 1] = 0.5
    log_table = jnp.log(jnp.asarray(table))

    def step(last: Any, cache: Any, position: Any) -> Any:
        return log_table[last], [cache[0].at[0].add(1)]

    cache = [jnp.zeros((1, 2), "int32")]
    words, scores = transformers.beam_search(step, cache, batch=1, beams=2, limit=9)
    assert words[0, 0].tolist()[:3] == [3, 1, 1]
    assert float(scores[0, 0]) == pytest.approx(math.log(0.4), abs=1e-3)
    greedy, greedy_scores = transformers.beam_search(
        step, [jnp.zeros((1, 1), "int32")], batch=1, beams=1, limit=9
    )
    assert greedy[0, 0].tolist()[:3] == [2, 4, 1]
    assert float(greedy_scores[0, 0]) == pytest.approx(math.log(0.6 * 0.55 * 0.5), abs=1e-3)
