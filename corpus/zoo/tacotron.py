"""From characters to acoustic features: the shape of Tacotron 2.

Encoder: three 5-wide convolutions of 512 with batch norm and a bidirectional LSTM of 256 each way.
Decoder: prenet of 256 x 2, two LSTMs of 1024, location-sensitive
attention (32 filters of width 31, 128 hidden), one 80-band frame and a stop bit per step, and a
postnet of five 5-wide convolutions of 512.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from corpus.context import Ctx
from corpus.zoo.cells import bidirectional, lstm, lstm_state, zeros
from corpus.zoo.layers import batch_norm, conv, dense, dropout, embedding

if TYPE_CHECKING:
    from jax import Array

_BANDS = 80
_SYMBOLS = 148
_HIDDEN = 1024
_ENCODED = 512


def _encode(c: Ctx, characters: int) -> Array:
    import jax

    x = embedding(c, c.tokens(c.batch, characters), _SYMBOLS, _ENCODED)
    for _ in range(3):
        x = dropout(c, jax.nn.relu(batch_norm(c, conv(c, x, _ENCODED, 5))), 0.5)
    return bidirectional(c, x, _ENCODED // 2)


class _Decoder:
    """The decoder's weights and its step; the state is (LSTM, LSTM, context, attention, attention sum)."""

    def __init__(self, c: Ctx, memory: Array) -> None:
        self.c, self.memory = c, memory
        self.first = lstm(c, 256 + _ENCODED, _HIDDEN)
        self.second = lstm(c, _HIDDEN + _ENCODED, _HIDDEN)
        self.keys = dense(c, memory, 128, use_bias=False)
        self.query, self.score = c.weight(_HIDDEN, 128), c.weight(128)
        self.location_filters, self.location = c.weight(31, 2, 32), c.weight(32, 128)
        self.frame = c.weight(_HIDDEN + _ENCODED, _BANDS + 1)

    def start(self) -> Any:
        """The state before the first frame."""
        c, (batch, characters, _) = self.c, self.memory.shape
        weights = zeros(c, batch, characters)
        first, second = lstm_state(c, batch, _HIDDEN), lstm_state(c, batch, _HIDDEN)
        return first, second, zeros(c, batch, _ENCODED), weights, weights

    def step(self, state: Any, prenet: Array) -> tuple[Any, Array]:
        """One frame with its stop bit, [b, 81]."""
        import jax.numpy as jnp

        first, second, context, weights, total = state
        first, query = self.first(first, jnp.concatenate([prenet, context], -1))
        weights = self._attend(query, weights, total)
        context = jnp.einsum("bt,btf->bf", weights, self.memory)
        second, output = self.second(second, jnp.concatenate([query, context], -1))
        frame = jnp.concatenate([output, context], -1) @ self.frame
        return (first, second, context, weights, total + weights), frame

    def _attend(self, query: Array, weights: Array, total: Array) -> Array:
        import jax
        import jax.numpy as jnp
        from jax import lax

        seen = jnp.stack([weights, total], -1)
        place = lax.conv_general_dilated(
            seen, self.location_filters, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
        )
        energy = jnp.tanh(self.keys + (query @ self.query)[:, None] + place @ self.location) @ self.score
        return jax.nn.softmax(energy.astype("float32")).astype(self.c.dtype)


def _postnet(c: Ctx, frames: Array) -> Array:
    import jax.numpy as jnp

    x = frames
    for layer in range(5):
        x = batch_norm(c, conv(c, x, _BANDS if layer == 4 else 512, 5))
        x = dropout(c, x if layer == 4 else jnp.tanh(x), 0.5)
    return frames + x


def char2feats_training(c: Ctx, characters: int = 160, frames: int = 400) -> Array:
    """Teacher-forced: squared error of the frames before and after the postnet, and of the stop bit."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    decoder = _Decoder(c, _encode(c, characters))
    target = c.input(c.batch, frames, _BANDS)
    x = jnp.pad(target[:, :-1], ((0, 0), (1, 0), (0, 0)))
    for _ in range(2):
        x = dropout(c, jax.nn.relu(dense(c, x, 256)), 0.5)
    _, outputs = lax.scan(decoder.step, decoder.start(), jnp.swapaxes(x, 0, 1))
    outputs = jnp.swapaxes(outputs, 0, 1)
    before, stop = outputs[..., :_BANDS], outputs[..., _BANDS].astype("float32")
    after = _postnet(c, before)
    error = sum(jnp.mean(jnp.square((one - target).astype("float32"))) for one in (before, after))
    last = c.input(c.batch, frames, dtype="float32")
    return error + jnp.mean(jax.nn.softplus(stop) - last * stop)


def char2feats_inference(c: Ctx, characters: int = 160, frames: int = 800) -> Array:
    """Frame after frame until every stop bit is set or `frames` have been made."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    decoder = _Decoder(c, _encode(c, characters))
    prenet = [(c.weight(_BANDS, 256), c.weight(256)), (c.weight(256, 256), c.weight(256))]

    def running(loop: Any) -> Array:
        number: Array = loop[0]
        return (number < frames) & ~jnp.all(loop[4])

    def body(loop: Any) -> Any:
        number, state, last, made, stopped = loop
        x = last
        for kernel, offset in prenet:
            x = jax.nn.relu(x @ kernel + offset)
        state, output = decoder.step(state, x)
        frame, stop = output[:, :_BANDS], output[:, _BANDS]
        made = lax.dynamic_update_slice(made, frame[:, None], (0, number, 0))
        return number + 1, state, frame, made, stopped | (stop > 0)

    start = (
        jnp.int32(0), decoder.start(), zeros(c, c.batch, _BANDS),
        zeros(c, c.batch, frames, _BANDS), jnp.zeros((c.batch,), bool),
    )  # fmt: skip
    return _postnet(c, lax.while_loop(running, body, start)[3])
