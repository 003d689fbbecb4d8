"""Models that make images: ConvDRAW, the DDPM U-Net, and the U-Net of medical segmentation.

ConvDRAW: the recurrent convolutional variational autoencoder of "Towards Conceptual Compression" on
32 x 32 images: convolutional LSTMs with 5x5 kernels and 160 features at an eighth of the resolution,
unrolled. U-Net: four levels of two 3x3 convolutions, 64 to 1024 features. DDPM: 128 base features,
multipliers 1, 2, 2, 2, two residual blocks per level, self-attention at 16 x 16.

DCGAN: noise of 100, 4 x 4 x 1024 grown to 64 x 64 x 3 by strided transposed convolutions; the discriminator
mirrors it. VAE: one hidden layer of 500 on each side, 20 latents, 28 x 28 images.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpus.context import Ctx
from corpus.zoo.layers import (
    batch_norm,
    bias,
    binary_cross_entropy,
    conv,
    conv_transpose,
    cross_entropy,
    dense,
    group_norm,
    max_pool,
    upsample,
    zeros,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from jax import Array

    # ((cell, output), input) -> (cell, output)
    ConvLstm = Callable[[tuple[Array, Array], Array], tuple[Array, Array]]

_DRAW_FEATURES, _DRAW_LATENTS, _DRAW_SIDE = 160, 12, 8
_NOISE = 100
_PIXELS = 784


def _conv_lstm(c: Ctx, inputs: int, features: int) -> ConvLstm:
    """An LSTM whose products are 5x5 convolutions; weights are shared by all steps."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    kernel, offset = c.weight(5, 5, inputs + features, 4 * features), c.weight(4 * features)

    def step(state: tuple[Array, Array], x: Array) -> tuple[Array, Array]:
        cell, output = state
        seen = jnp.concatenate([x, output], -1)
        gates = lax.conv_general_dilated(
            seen, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        i, f, g, o = jnp.split(gates + offset, 4, -1)
        cell = jax.nn.sigmoid(f + 1.0) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        return cell, jax.nn.sigmoid(o) * jnp.tanh(cell)

    return step


def _pointwise(c: Ctx, inputs: int, outputs: int) -> Callable[[Array], Array]:
    """A 1x1 convolution whose weights are shared by all steps."""
    kernel, offset = c.weight(inputs, outputs), c.weight(outputs)
    return lambda x: x @ kernel + offset


class _ConvDraw:
    """ConvDRAW's weights; the canvas is kept at latent resolution and decoded once at the end."""

    def __init__(self, c: Ctx) -> None:
        features, latents = _DRAW_FEATURES, _DRAW_LATENTS
        self.c = c
        self.encoder = _conv_lstm(c, 2 * features + features, features) if c.train else None
        self.decoder = _conv_lstm(c, latents, features)
        self.posterior = _pointwise(c, features, 2 * latents) if c.train else None
        self.prior = _pointwise(c, features, 2 * latents)
        self.write = _pointwise(c, features, features)

    def state(self) -> tuple[Array, Array]:
        shape = (self.c.batch, _DRAW_SIDE, _DRAW_SIDE, _DRAW_FEATURES)
        return zeros(self.c, *shape), zeros(self.c, *shape)

    def draw_latent(self, parameters: Array) -> tuple[Array, Array, Array]:
        """Mean, log deviation and a sample of a diagonal Gaussian."""
        import jax
        import jax.numpy as jnp

        mean, log_deviation = jnp.split(parameters, 2, -1)
        noise = jax.random.normal(self.c.rng(), mean.shape, mean.dtype)
        return mean, log_deviation, mean + jnp.exp(log_deviation) * noise

    def decode_canvas(self, canvas: Array) -> Array:
        """Latent resolution to 32 x 32 x 3 logits."""
        import jax

        x = jax.nn.relu(bias(self.c, conv_transpose(self.c, canvas, 64, 5, 2)))
        return bias(self.c, conv_transpose(self.c, x, 3, 5, 2))


def convdraw(c: Ctx, steps: int = 8) -> Array:
    """Training: reconstruction and the KL terms of `steps` latents. Inference: images from the prior."""
    import jax
    import jax.numpy as jnp

    model = _ConvDraw(c)
    if model.encoder is None or model.posterior is None:
        return _convdraw_samples(c, model, steps)
    image = c.input(c.batch, 32, 32, 3)
    seen = jax.nn.relu(bias(c, conv(c, jax.nn.relu(bias(c, conv(c, image, 64, 5, 2))), _DRAW_FEATURES, 5, 2)))
    encoder, decoder = model.state(), model.state()
    canvas = jnp.zeros_like(seen)
    divergence: Array = jnp.float32(0)
    for _ in range(steps):
        encoder = model.encoder(encoder, jnp.concatenate([seen, seen - canvas, decoder[1]], -1))
        mean, log_deviation, latent = model.draw_latent(model.posterior(encoder[1]))
        prior_mean, prior_log = jnp.split(model.prior(decoder[1]), 2, -1)
        spread = jnp.exp(2.0 * (log_deviation - prior_log))
        distance = jnp.square(mean - prior_mean) * jnp.exp(-2.0 * prior_log)
        kl = 0.5 * (spread + distance - 1.0) + prior_log - log_deviation
        divergence += jnp.sum(kl.astype("float32"))
        decoder = model.decoder(decoder, latent)
        canvas = canvas + model.write(decoder[1])
    logits = model.decode_canvas(canvas).astype("float32")
    reconstruction = jnp.sum(jax.nn.softplus(logits) - image.astype("float32") * logits)
    return (reconstruction + divergence) / c.batch


def _convdraw_samples(c: Ctx, model: _ConvDraw, steps: int) -> Array:
    import jax

    decoder = model.state()
    canvas = zeros(c, c.batch, _DRAW_SIDE, _DRAW_SIDE, _DRAW_FEATURES)
    for _ in range(steps):
        _, _, latent = model.draw_latent(model.prior(decoder[1]))
        decoder = model.decoder(decoder, latent)
        canvas = canvas + model.write(decoder[1])
    return jax.nn.sigmoid(model.decode_canvas(canvas))


def unet(c: Ctx, size: int = 256, rank: int = 2, base: int = 64, classes: int = 2) -> Array:
    """U-Net over images (rank 2) or volumes (rank 3): per-pixel classes, padded so that sizes agree."""
    import jax
    import jax.numpy as jnp

    def twice(x: Array, features: int) -> Array:
        for _ in range(2):
            y = conv(c, x, features, 3)
            x = jax.nn.relu(bias(c, y) if rank == 2 else group_norm(c, y, features))
        return x

    x = c.input(c.batch, *(size,) * rank, 1)
    skips = []
    for level in range(4):
        x = twice(x, base * 2**level)
        skips.append(x)
        x = max_pool(x, 2, 2)
    x = twice(x, base * 16)
    for level in reversed(range(4)):
        x = bias(c, conv_transpose(c, x, base * 2**level, 2, 2))
        x = twice(jnp.concatenate([skips[level], x], -1), base * 2**level)
    logits = bias(c, conv(c, x, classes, 1))
    if c.train:
        return cross_entropy(logits, c.tokens(c.batch, *(size,) * rank))
    return jax.nn.softmax(logits.astype("float32"))


def _time_embedding(c: Ctx, features: int) -> Array:
    """Sinusoids of the diffusion step through two dense layers: [b, 4 features]."""
    import jax
    import jax.numpy as jnp

    frequencies = jnp.exp(jnp.arange(features // 2) * (-9.21 / (features // 2 - 1)))
    angles = c.tokens(c.batch).astype("float32")[:, None] * frequencies
    x = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], -1).astype(c.dtype)
    return dense(c, jax.nn.silu(dense(c, x, 4 * features)), 4 * features)


def _ddpm_block(c: Ctx, x: Array, time: Array, features: int, attention: bool) -> Array:
    """Residual block with the time embedding added inside; then self-attention over positions."""
    import jax
    import jax.numpy as jnp

    y = bias(c, conv(c, jax.nn.silu(group_norm(c, x)), features, 3))
    y = y + dense(c, jax.nn.silu(time), features)[:, None, None]
    y = bias(c, conv(c, jax.nn.silu(group_norm(c, y)), features, 3))
    x = y + (x if x.shape[-1] == features else bias(c, conv(c, x, features, 1)))
    if not attention:
        return x
    b, h, w, f = x.shape
    flat = group_norm(c, x).reshape(b, h * w, f)
    query, key, value = (dense(c, flat, f) for _ in range(3))
    scores = jnp.einsum("bqf,bkf->bqk", query, key).astype("float32") * f**-0.5
    mixed = jnp.einsum("bqk,bkf->bqf", jax.nn.softmax(scores).astype(c.dtype), value)
    return x + dense(c, mixed, f).reshape(b, h, w, f)


def ddpm(c: Ctx, size: int = 32, base: int = 128) -> Array:
    """DDPM's U-Net: the noise in a noisy image; squared error against the true noise in training."""
    import jax
    import jax.numpy as jnp

    time = _time_embedding(c, base)
    x = bias(c, conv(c, c.input(c.batch, size, size, 3), base, 3))
    skips, multipliers = [x], (1, 2, 2, 2)
    for level, multiplier in enumerate(multipliers):
        for _ in range(2):
            x = _ddpm_block(c, x, time, base * multiplier, attention=x.shape[1] == 16)
            skips.append(x)
        if level < 3:
            x = bias(c, conv(c, x, x.shape[-1], 3, 2))
            skips.append(x)
    x = _ddpm_block(c, _ddpm_block(c, x, time, x.shape[-1], True), time, x.shape[-1], False)
    for level, multiplier in reversed(list(enumerate(multipliers))):
        for _ in range(3):
            x = jnp.concatenate([x, skips.pop()], -1)
            x = _ddpm_block(c, x, time, base * multiplier, attention=x.shape[1] == 16)
        if level > 0:
            x = bias(c, conv(c, upsample(x), x.shape[-1], 3))
    noise = bias(c, conv(c, jax.nn.silu(group_norm(c, x)), 3, 3))
    if not c.train:
        return noise
    return jnp.mean(jnp.square((noise - c.input(*noise.shape)).astype("float32")))


def _generated(c: Ctx, noise: Array) -> Array:
    """Images [b, 64, 64, 3] in [-1, 1]."""
    import jax
    import jax.numpy as jnp

    x = dense(c, noise, 4 * 4 * 1024, use_bias=False).reshape(c.batch, 4, 4, 1024)
    for features in (512, 256, 128):
        x = conv_transpose(c, jax.nn.relu(batch_norm(c, x)), features, 5, 2)
    x = conv_transpose(c, jax.nn.relu(batch_norm(c, x)), 3, 5, 2)
    return jnp.tanh(bias(c, x))


def _real_score(c: Ctx, images: Array) -> Array:
    """Logits [b] that images are real."""
    import jax

    x = jax.nn.leaky_relu(bias(c, conv(c, images, 128, 5, 2)), 0.2)
    for features in (256, 512, 1024):
        x = jax.nn.leaky_relu(batch_norm(c, conv(c, x, features, 5, 2)), 0.2)
    return dense(c, x.reshape(c.batch, -1), 1)[:, 0].astype("float32")


def dcgan(c: Ctx) -> Array:
    """Both players' losses in one step: each one's gradient stops at the other's weights."""
    import jax
    import jax.numpy as jnp
    from jax.lax import stop_gradient

    fake = _generated(c, jax.random.uniform(c.rng(), (c.batch, _NOISE), c.dtype, -1.0, 1.0))
    if not c.train:
        return fake
    weights: list[Array] = []
    with c.tied(weights):
        on_real = _real_score(c, c.input(c.batch, 64, 64, 3))
    with c.tied(weights):
        on_fake = _real_score(c, stop_gradient(fake))
    with c.tied([stop_gradient(weight) for weight in weights]):
        fooled = _real_score(c, fake)
    parts = ((on_real, 1.0), (on_fake, 0.0), (fooled, 1.0))
    return jnp.sum(jnp.stack([jnp.mean(binary_cross_entropy(logits, target)) for logits, target in parts]))


def vae(c: Ctx, hidden: int = 500, latents: int = 20) -> Array:
    """Training: reconstruction of binary pixels plus KL. Inference: images decoded from fed latents."""
    import jax
    import jax.numpy as jnp

    def decoded(latent: Array) -> Array:
        return dense(c, jnp.tanh(dense(c, latent, hidden)), _PIXELS).astype("float32")

    if not c.train:
        return jax.nn.sigmoid(decoded(c.input(c.batch, latents)))
    images = c.input(c.batch, _PIXELS)
    parameters = dense(c, jnp.tanh(dense(c, images, hidden)), 2 * latents)
    mean, log_variance = jnp.split(parameters, 2, -1)
    noise = jax.random.normal(c.rng(), mean.shape, mean.dtype)
    logits = decoded(mean + jnp.exp(0.5 * log_variance) * noise)
    divergence = 0.5 * jnp.sum(jnp.square(mean) + jnp.exp(log_variance) - log_variance - 1.0)
    return (jnp.sum(binary_cross_entropy(logits, images.astype("float32"))) + divergence) / c.batch
