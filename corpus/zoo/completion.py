"""Completion of search queries while they are typed, from characters.

The application's inside is not public. Built as published query completers are: a character GRU language
model with the user's vector beside every character; at inference it reads the prefix, and the likeliest
first characters are each continued greedily.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from corpus.context import Ctx
from corpus.zoo.cells import gru, scan_time, zeros
from corpus.zoo.layers import cross_entropy, dropout

if TYPE_CHECKING:
    from jax import Array

_CHARACTERS, _FEATURES = 128, 64
_USERS, _USER_FEATURES = 100_000, 32
_END = 0


def query_completion(
    c: Ctx, hidden: int = 600, prefix: int = 12, longest: int = 40, shown: int = 8
) -> Array | tuple[Array, Array]:
    """The loss over whole queries, or `shown` completions per prefix with their log probabilities."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    table = c.weight(_CHARACTERS, _FEATURES)
    user = c.weight(_USERS, _USER_FEATURES)[c.tokens(c.batch)]
    cell = gru(c, _FEATURES + _USER_FEATURES, hidden)
    kernel, offset = c.weight(hidden, _CHARACTERS), c.weight(_CHARACTERS)
    steps = longest if c.train else prefix
    typed = table[c.tokens(c.batch, steps)]
    beside = jnp.broadcast_to(user[:, None], (c.batch, steps, _USER_FEATURES))
    state, x = scan_time(cell, zeros(c, c.batch, hidden), jnp.concatenate([typed, beside], -1))
    if c.train:
        return cross_entropy(dropout(c, x, 0.2) @ kernel + offset, c.tokens(c.batch, steps))
    spread_user, state = jnp.repeat(user, shown, axis=0), jnp.repeat(state, shown, axis=0)

    def log_probs(hidden_state: Array) -> Array:
        return jax.nn.log_softmax((hidden_state @ kernel + offset).astype("float32"))

    def step(loop: Any, _: None) -> tuple[Any, Array]:
        state, last, score, ended = loop
        state, output = cell(state, jnp.concatenate([table[last], spread_user], -1))
        best = log_probs(output)
        last = jnp.where(ended, _END, jnp.argmax(best, -1)).astype("int32")
        score = score + jnp.where(ended, 0.0, jnp.max(best, -1))
        return (state, last, score, ended | (last == _END)), last

    score, first = lax.top_k(log_probs(x[:, -1]), shown)
    score, first = score.reshape(-1), first.reshape(-1)
    (_, _, score, _), rest = lax.scan(step, (state, first, score, first == _END), None, longest - prefix)
    queries = jnp.concatenate([first[:, None], rest.T], 1)
    return queries.reshape(c.batch, shown, -1), score.reshape(c.batch, shown)
