"""Generators of images other than diffusion: DCGAN and the variational autoencoder.

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
    dense,
)

if TYPE_CHECKING:
    from jax import Array

_NOISE = 100
_PIXELS = 784


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
    with c.tied([stop_gradient(one) for one in weights]):
        fooled = _real_score(c, fake)
    parts = ((on_real, 1.0), (on_fake, 0.0), (fooled, 1.0))
    return jnp.sum(jnp.stack([jnp.mean(binary_cross_entropy(one, target)) for one, target in parts]))


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
