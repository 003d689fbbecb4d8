"""The CTC loss against every alignment written out."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from costbench.rng import stream

pytestmark = pytest.mark.corpus
jax = pytest.importorskip("jax", reason="needs the corpus extra: jax")
import jax.numpy as jnp  # noqa: E402

from corpus.zoo import speech  # noqa: E402

ctc_loss = jax.jit(speech.ctc_loss)


def reading(path: tuple[int, ...]) -> tuple[int, ...]:
    """What an alignment reads: repeats merged, then blanks left out."""
    return tuple(label for label, _ in itertools.groupby(path) if label)


def probability(probs: np.ndarray, wanted: tuple[int, ...]) -> float:
    """Sum over all alignments."""
    frames, classes = probs.shape
    return math.fsum(
        math.prod(probs[time, label] for time, label in enumerate(path))
        for path in itertools.product(range(classes), repeat=frames)
        if reading(path) == wanted
    )


@pytest.mark.parametrize("labels", [(1,), (1, 2), (2, 2), (1, 2, 1), ()])
def test_the_loss_sums_over_all_alignments(labels: tuple[int, ...]) -> None:
    probs = stream(0, "ctc", len(labels)).dirichlet(np.ones(3), size=(1, 5))
    padded = np.zeros((1, 3), np.int32)
    padded[0, : len(labels)] = labels
    lengths = (jnp.array([5]), jnp.array([len(labels)]))
    loss = float(ctc_loss(jnp.log(jnp.asarray(probs)), jnp.asarray(padded), *lengths))
    if labels:
        assert loss == pytest.approx(-math.log(probability(probs[0], labels)), rel=1e-4)
    else:
        # The one alignment without labels is counted as the end and as what lies before the end.
        assert loss == pytest.approx(-math.log(2 * probability(probs[0], labels)), rel=1e-4)


def test_frames_and_labels_beyond_the_lengths_do_not_count() -> None:
    probs = stream(0, "ctc", 9).dirichlet(np.ones(3), size=(1, 6))
    loss = ctc_loss(jnp.log(jnp.asarray(probs)), jnp.array([[2, 1, 1]]), jnp.array([4]), jnp.array([2]))
    assert float(loss) == pytest.approx(-math.log(probability(probs[0, :4], (2, 1))), rel=1e-4)


def test_a_transcript_that_does_not_fit_has_a_large_finite_loss() -> None:
    even = jnp.full((1, 2, 3), -math.log(3))
    loss = float(ctc_loss(even, jnp.array([[1, 1]]), jnp.array([2]), jnp.array([2])))
    assert 1e6 < loss < math.inf
