"""Synthesis of speech: from characters to acoustic features (Tacotron 2), and from these to sound.

From characters to acoustic features: the shape of Tacotron 2.

Encoder: three 5-wide convolutions of 512 with batch norm and a bidirectional LSTM of 256 each way.
Decoder: prenet of 256 x 2, two LSTMs of 1024, location-sensitive
attention (32 filters of width 31, 128 hidden), one 80-band frame and a stop bit per step, and a
postnet of five 5-wide convolutions of 512.

WaveRNN: the dual-softmax model with a state of 896 whose halves predict the coarse and the fine byte.
WaveNet: 30 layers in three dilation cycles, 128 residual and 256 skip channels. HiFi-GAN: the V1
generator, upsampling by 8, 8, 2, 2 with multi-receptive-field blocks. One second is 24000 samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from corpus.context import Ctx
from corpus.zoo.layers import (
    batch_norm,
    bias,
    bidirectional,
    conv,
    conv_transpose,
    cross_entropy,
    dense,
    dilated_conv,
    dropout,
    embedding,
    lstm,
    lstm_state,
    zeros,
)

if TYPE_CHECKING:
    from jax import Array

_BANDS = 80
_SYMBOLS = 148
_HIDDEN = 1024
_ENCODED = 512
_BYTES = 256
_MEL_BANDS = 80


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
        location = lax.conv_general_dilated(
            seen, self.location_filters, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
        )
        energy = jnp.tanh(self.keys + (query @ self.query)[:, None] + location @ self.location) @ self.score
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


class _WaveRnnCore:
    """Weights of the WaveRNN cell: one GRU of `size` whose input is the last two bytes (and features).

    The fine half also sees the coarse byte of the same sample, so its input matrix has one more row
    than the coarse half's.
    """

    def __init__(self, c: Ctx, size: int, features: int) -> None:
        half = size // 2
        self.half = half
        self.recurrent = c.weight(size, 3 * size)
        self.coarse_input = c.weight(2 + features, 3 * half)
        self.fine_input = c.weight(3 + features, 3 * half)
        self.offset = c.weight(3 * size)

    def gates(self, state: Array) -> tuple[Array, Array]:
        """The recurrent part for the coarse and the fine half, [b, 3, half] each."""
        import jax.numpy as jnp

        both = (state @ self.recurrent + self.offset).reshape(state.shape[0], 3, 2, self.half)
        return jnp.squeeze(both[:, :, :1], 2), jnp.squeeze(both[:, :, 1:], 2)

    def update(self, recurrent: Array, from_input: Array, state: Array) -> Array:
        """u, r = s(R + I); e = tanh(r R_e + I_e); u h + (1 - u) e, for one half."""
        import jax
        import jax.numpy as jnp

        inputs = from_input.reshape(recurrent.shape)
        update = jax.nn.sigmoid(recurrent[:, 0] + inputs[:, 0])
        reset = jax.nn.sigmoid(recurrent[:, 1] + inputs[:, 1])
        candidate = jnp.tanh(reset * recurrent[:, 2] + inputs[:, 2])
        return update * state + (1.0 - update) * candidate


def _upsampled_features(c: Ctx, steps: int, features: int, hop: int) -> Array:
    """Mel frames through a residual convolutional network, stretched to one row per sample."""
    import jax
    import jax.numpy as jnp

    x = c.input(c.batch, steps // hop, _MEL_BANDS)
    x = jax.nn.relu(batch_norm(c, conv(c, x, 128, 5)))
    for _ in range(10):
        y = jax.nn.relu(batch_norm(c, conv(c, x, 128, 1)))
        x = x + batch_norm(c, conv(c, y, 128, 1))
    return jnp.repeat(dense(c, x, features), hop, axis=1)


def wavernn(c: Ctx, size: int = 896, steps: int = 960, features: int = 0, hop: int = 240) -> Array:
    """Teacher-forced WaveRNN: cross entropy of the coarse and the fine byte of every sample."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    core = _WaveRnnCore(c, size, features)
    bytes_in = c.input(c.batch, steps, 3)  # coarse and fine byte before, coarse byte now, in [-1, 1]
    x = bytes_in
    if features:
        x = jnp.concatenate([_upsampled_features(c, steps, features, hop), bytes_in], -1)
    coarse_in, fine_in = x[..., :-1] @ core.coarse_input, x @ core.fine_input

    def step(state: Any, inputs: Any) -> tuple[Any, Any]:
        coarse, fine = state
        for_coarse, for_fine = core.gates(jnp.concatenate([coarse, fine], -1))
        state = (core.update(for_coarse, inputs[0], coarse), core.update(for_fine, inputs[1], fine))
        return state, state

    start = (zeros(c, c.batch, core.half), zeros(c, c.batch, core.half))
    time_major = (jnp.swapaxes(coarse_in, 0, 1), jnp.swapaxes(fine_in, 0, 1))
    _, halves = lax.scan(step, start, time_major)
    labels = c.tokens(2, steps, c.batch)
    loss: Array = jnp.float32(0)
    for half, label in zip(halves, labels, strict=True):
        hidden = jax.nn.relu(dense(c, half, core.half))
        loss += cross_entropy(dense(c, hidden, _BYTES), label)
    return loss


def wavernn_sampling(c: Ctx, size: int = 896, steps: int = 2400) -> Array:
    """Sample after sample: draw the coarse byte, then the fine byte given it."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    core = _WaveRnnCore(c, size, features=0)
    heads = [(c.weight(core.half, core.half), c.weight(core.half, _BYTES)) for _ in range(2)]
    noise = jax.random.gumbel(c.rng(), (steps, 2, c.batch, _BYTES), "float32")

    def draw(head: tuple[Array, Array], hidden: Array, gumbel: Array) -> Array:
        logits = jax.nn.relu(hidden @ head[0]) @ head[1]
        return jnp.argmax(logits.astype("float32") + gumbel, -1)[:, None]

    def scaled(sample: Array) -> Array:
        return (sample.astype("float32") / 127.5 - 1.0).astype(c.dtype)

    def step(state: Any, gumbel: Array) -> tuple[Any, Array]:
        coarse, fine, last = state
        for_coarse, for_fine = core.gates(jnp.concatenate([coarse, fine], -1))
        coarse = core.update(for_coarse, last @ core.coarse_input, coarse)
        high = draw(heads[0], coarse, gumbel[0])
        with_high = jnp.concatenate([last, scaled(high)], -1)
        fine = core.update(for_fine, with_high @ core.fine_input, fine)
        low = draw(heads[1], fine, gumbel[1])
        last = jnp.concatenate([scaled(high), scaled(low)], -1)
        return (coarse, fine, last), high * _BYTES + low

    start = (zeros(c, c.batch, core.half), zeros(c, c.batch, core.half), zeros(c, c.batch, 2))
    return lax.scan(step, start, noise)[1]


def wavenet(c: Ctx, layers: int = 30, steps: int = 7680) -> Array:
    """Conditional WaveNet on mu-law samples: gated dilated convolutions, summed skips, 256-way softmax."""
    import jax
    import jax.numpy as jnp

    samples = c.tokens(c.batch, steps)
    x = bias(c, conv(c, jax.nn.one_hot(samples, _BYTES, dtype=c.dtype), 128, 1))
    features = c.input(c.batch, steps // 300 + 1, _MEL_BANDS)
    for stride in (15, 20):
        features = jax.nn.relu(bias(c, conv_transpose(c, features, _MEL_BANDS, 2 * stride, stride)))
    features = features[:, :steps]
    skips = jnp.zeros((), c.dtype)
    for layer in range(layers):
        y = dilated_conv(c, x, 256, 2, 2 ** (layer % 10), causal=True) + conv(c, features, 256, 1)
        filtered, gate = jnp.split(bias(c, y), 2, -1)
        y = jnp.tanh(filtered) * jax.nn.sigmoid(gate)
        skips = skips + bias(c, conv(c, y, 256, 1))
        x = (x + bias(c, conv(c, y, 128, 1))) * 0.5**0.5
    hidden = jax.nn.relu(bias(c, conv(c, jax.nn.relu(skips), 256, 1)))
    return cross_entropy(bias(c, conv(c, hidden, _BYTES, 1)), c.tokens(c.batch, steps))


def _receptive_fields(c: Ctx, x: Array) -> Array:
    """Mean of three residual stacks with kernels 3, 7, 11, each with dilations 1, 3, 5."""
    import jax
    import jax.numpy as jnp

    def active(y: Array) -> Array:
        return jax.nn.leaky_relu(y, 0.1)

    total = jnp.zeros((), c.dtype)
    for kernel in (3, 7, 11):
        branch = x
        for dilation in (1, 3, 5):
            y = bias(c, dilated_conv(c, active(branch), x.shape[-1], kernel, dilation))
            branch = branch + bias(c, conv(c, active(y), x.shape[-1], kernel))
        total = total + branch
    return total / 3.0


def hifigan(c: Ctx, channels: int = 512, frames: int = 64) -> Array:
    """HiFi-GAN V1 generator: mel frames [b, frames, 80] -> samples [b, 256 frames]."""
    import jax
    import jax.numpy as jnp

    x = bias(c, conv(c, c.input(c.batch, frames, _MEL_BANDS), channels, 7))
    for index, factor in enumerate((8, 8, 2, 2)):
        x = jax.nn.leaky_relu(x, 0.1)
        x = bias(c, conv_transpose(c, x, channels // 2 ** (index + 1), 2 * factor, factor))
        x = _receptive_fields(c, x)
    return jnp.tanh(bias(c, conv(c, jax.nn.leaky_relu(x, 0.01), 1, 7)))[..., 0]
