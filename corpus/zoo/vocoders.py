"""From acoustic features to sound: WaveRNN, WaveNet and the HiFi-GAN generator.

WaveRNN: the dual-softmax model with a state of 896 whose halves predict the coarse and the fine byte.
WaveNet: 30 layers in three dilation cycles, 128 residual and 256 skip channels. HiFi-GAN: the V1
generator, upsampling by 8, 8, 2, 2 with multi-receptive-field blocks. One second is 24000 samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from corpus.context import Ctx
from corpus.zoo.cells import zeros
from corpus.zoo.layers import (
    batch_norm,
    bias,
    conv,
    conv_transpose,
    cross_entropy,
    dense,
    dilated_conv,
)

if TYPE_CHECKING:
    from jax import Array

_BYTES = 256
_MEL_BANDS = 80


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

    def scaled(drawn: Array) -> Array:
        return (drawn.astype("float32") / 127.5 - 1.0).astype(c.dtype)

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
