"""Recurrent language models and the attention-based LSTM translator.

PTB models: the medium and large LSTM of "Recurrent Neural Network Regularization" (650 x 2 and
1500 x 2, 35 steps, vocabulary 10000). NMT: the GNMT shape (8 layers of 1024, bidirectional first
encoder layer, residual connections, additive attention of the first decoder layer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from corpus.context import Ctx
from corpus.zoo.cells import (
    bidirectional,
    lstm,
    lstm_state,
    run_gru,
    run_lstm,
    scan_time,
    zeros,
)
from corpus.zoo.layers import cross_entropy, dense, dropout, embedding

if TYPE_CHECKING:
    from jax import Array

_PTB_VOCABULARY = 10000


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
