"""Connectionist temporal classification: the loss of a transcript without an alignment.

Graves et al. 2006: the transcript with a blank (class 0) before, between and after its labels; the forward
recursion over frames sums the probabilities of all ways to read it off, in logarithms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jax import Array

_NEVER = -1e9


def ctc_loss(log_probs: Array, labels: Array, frames: Array, lengths: Array) -> Array:
    """Mean over the batch of -log p(labels).

    Args:
        log_probs: [b, t, classes], class 0 is the blank.
        labels: [b, n], padded.
        frames: how many frames count, [b].
        lengths: how many labels count, [b].
    """
    import jax.numpy as jnp
    from jax import lax

    batch, steps, _ = log_probs.shape
    states = 2 * labels.shape[1] + 1
    extended = jnp.zeros((batch, states), labels.dtype).at[:, 1::2].set(labels)
    emitted = jnp.take_along_axis(log_probs, extended[:, None], 2)
    # A blank may be left out between two different labels.
    earlier = jnp.pad(extended, ((0, 0), (2, 0)))[:, :-2]
    skips = (extended != 0) & (extended != earlier) & (jnp.arange(states) >= 2)

    def advance(forward: Array, one: tuple[Array, Array]) -> tuple[Array, None]:
        emission, number = one
        after_one = jnp.pad(forward, ((0, 0), (1, 0)), constant_values=_NEVER)[:, :-1]
        after_two = jnp.pad(forward, ((0, 0), (2, 0)), constant_values=_NEVER)[:, :-2]
        ways = jnp.stack([forward, after_one, jnp.where(skips, after_two, _NEVER)])
        highest = lax.stop_gradient(jnp.max(ways, 0))
        total = highest + jnp.log(jnp.sum(jnp.exp(ways - highest), 0)) + emission
        return jnp.where((number < frames)[:, None], total, forward), None

    start = jnp.where(jnp.arange(states) < 2, emitted[:, 0], _NEVER)
    rest = (jnp.swapaxes(emitted, 0, 1)[1:], jnp.arange(1, steps))
    forward, _ = lax.scan(advance, start, rest)
    last = 2 * lengths[:, None]
    ends = jnp.take_along_axis(forward, jnp.concatenate([last, jnp.maximum(last - 1, 0)], 1), 1)
    return -jnp.mean(jnp.logaddexp(ends[:, 0], ends[:, 1]))
