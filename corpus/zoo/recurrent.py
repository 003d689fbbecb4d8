"""Recurrent language models and the attention-based LSTM translator.

PTB models: the medium and large LSTM of "Recurrent Neural Network Regularization" (650 x 2 and
1500 x 2, 35 steps, vocabulary 10000). NMT: the GNMT shape (8 layers of 1024, bidirectional first
encoder layer, residual connections, additive attention of the first decoder layer).

Completion of search queries while they are typed, from characters:
the application's inside is not public. Built as published query completers are: a character GRU language
model with the user's vector beside every character; at inference it reads the prefix, and the likeliest
first characters are each continued greedily.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from corpus.context import Ctx
from corpus.zoo.layers import (
    bidirectional,
    cross_entropy,
    dense,
    dropout,
    embedding,
    gru,
    lstm,
    lstm_state,
    run_gru,
    run_lstm,
    scan_time,
    zeros,
)

if TYPE_CHECKING:
    from jax import Array

_PTB_VOCABULARY = 10000
_CHARACTERS, _FEATURES = 128, 64
_USERS, _USER_FEATURES = 100_000, 32
_END = 0


def ptb_lstm(c: Ctx, hidden: int, steps: int = 35, keep_drop: float = 0.5) -> Array:
    """Two LSTM layers with dropout between them; states are carried from batch to batch."""
    import jax

    x = embedding(c, c.tokens(c.batch, steps), _PTB_VOCABULARY, hidden)
    for _ in range(2):
        x = dropout(c, x, keep_drop)
        cell = lstm(c, hidden, hidden)
        start = (c.state(c.batch, hidden).astype(c.dtype), c.state(c.batch, hidden).astype(c.dtype))
        last, x = scan_time(cell, start, x)
        if c.train:
            c.new_states.extend(part.astype("float32") for part in last)
    logits = dense(c, dropout(c, x, keep_drop), _PTB_VOCABULARY)
    if c.train:
        return cross_entropy(logits, c.tokens(c.batch, steps))
    return jax.nn.softmax(logits.astype("float32"))


def gru_lm(c: Ctx, layers: int = 3, hidden: int = 512, steps: int = 50) -> Array:
    """Stacked GRU language model over a 10000-word vocabulary."""
    x = embedding(c, c.tokens(c.batch, steps), _PTB_VOCABULARY, hidden)
    for _ in range(layers):
        x = dropout(c, run_gru(c, x, hidden), 0.2)
    return cross_entropy(dense(c, x, _PTB_VOCABULARY), c.tokens(c.batch, steps))


def char_rnn(c: Ctx, hidden: int = 512, steps: int = 100) -> Array:
    """Character model over 256 symbols, two LSTM layers."""
    import jax

    x = embedding(c, c.tokens(c.batch, steps), 256, 128)
    for _ in range(2):
        x = run_lstm(c, x, hidden)
    logits = dense(c, x, 256)
    if c.train:
        return cross_entropy(logits, c.tokens(c.batch, steps))
    return jax.nn.softmax(logits[:, -1].astype("float32"))


def _encode(c: Ctx, x: Array, hidden: int, layers: int) -> Array:
    """Bidirectional first layer, then unidirectional ones with residuals from the third on."""
    x = dropout(c, bidirectional(c, x, hidden), 0.2)
    for layer in range(1, layers):
        y = dropout(c, run_lstm(c, x, hidden), 0.2)
        x = x + y if layer >= 2 else y
    return x


def _attentive_decoder(c: Ctx, x: Array, memory: Array, hidden: int) -> tuple[Array, Array]:
    """First decoder layer: an LSTM fed the previous context; additive attention over `memory`.

    Returns:
        outputs and attention contexts, both [b, t, hidden].
    """
    import jax
    import jax.numpy as jnp
    from jax import lax

    cell = lstm(c, x.shape[-1] + hidden, hidden)
    query_kernel, score = c.weight(hidden, hidden), c.weight(hidden)
    keys = dense(c, memory, hidden, use_bias=False)

    def step(state: Any, token: Array) -> tuple[Any, tuple[Array, Array]]:
        inner, context = state
        inner, output = cell(inner, jnp.concatenate([token, context], -1))
        energy = jnp.tanh(keys + (output @ query_kernel)[:, None]) @ score
        weights = jax.nn.softmax(energy.astype("float32")).astype(c.dtype)
        context = jnp.einsum("bt,btf->bf", weights, memory)
        return (inner, context), (output, context)

    start = (lstm_state(c, c.batch, hidden), zeros(c, c.batch, hidden))
    _, (outputs, contexts) = lax.scan(step, start, jnp.swapaxes(x, 0, 1))
    return jnp.swapaxes(outputs, 0, 1), jnp.swapaxes(contexts, 0, 1)


def nmt(c: Ctx, hidden: int = 1024, layers: int = 8, vocabulary: int = 32000, steps: int = 50) -> Array:
    """GNMT-like translator, teacher-forced; at inference it scores given target sentences."""
    import jax
    import jax.numpy as jnp

    source = embedding(c, c.tokens(c.batch, steps), vocabulary, hidden)
    memory = _encode(c, source, hidden, layers)
    target = embedding(c, c.tokens(c.batch, steps), vocabulary, hidden)
    x, context = _attentive_decoder(c, target, memory, hidden)
    for layer in range(1, layers):
        y = run_lstm(c, jnp.concatenate([dropout(c, x, 0.2), context], -1), hidden)
        x = x + y if layer >= 2 else y
    logits = dense(c, x, vocabulary)
    labels = c.tokens(c.batch, steps)
    if c.train:
        return cross_entropy(logits, labels)
    log_probs = jax.nn.log_softmax(logits.astype("float32"))
    return jnp.sum(jnp.take_along_axis(log_probs, labels[..., None], -1), (1, 2))


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
