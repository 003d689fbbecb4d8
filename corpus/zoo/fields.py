"""Neural radiance fields: the two networks of NeRF, volume rendering, and sampling where the coarse one saw.

Eight layers of 256 with the position fed again at the fifth, a direction branch of 128; 64 coarse and 128
more fine samples per ray; ten and four frequencies of position and direction. The batch is rays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from corpus.context import Ctx
from corpus.zoo.layers import dense, mlp

if TYPE_CHECKING:
    from jax import Array

_COARSE, _FINE = 64, 128
_NEAR, _FAR = 2.0, 6.0


def _frequencies(x: Array, count: int) -> Array:
    """x with the sines and cosines of x 2^k, k < count, over the last dimension."""
    import jax.numpy as jnp

    scaled = (x[..., None, :] * (2.0 ** jnp.arange(count))[:, None]).reshape(*x.shape[:-1], -1)
    return jnp.concatenate([x, jnp.sin(scaled), jnp.cos(scaled)], -1)


def _radiance(c: Ctx, points: Array, directions: Array) -> tuple[Array, Array]:
    """Density [r, s] and colour [r, s, 3] at points [r, s, 3] seen along directions [r, 3]."""
    import jax
    import jax.numpy as jnp

    encoded = _frequencies(points, 10).astype(c.dtype)
    x = mlp(c, encoded, (256,) * 5)
    x = mlp(c, jnp.concatenate([encoded, x], -1), (256,) * 3)
    density = jax.nn.relu(dense(c, x, 1)[..., 0].astype("float32"))
    view = _frequencies(directions, 4)[:, None].astype(c.dtype)
    view = jnp.broadcast_to(view, (*points.shape[:2], view.shape[-1]))
    x = jnp.concatenate([dense(c, x, 256), view], -1)
    return density, jax.nn.sigmoid(dense(c, mlp(c, x, (128,)), 3).astype("float32"))


def _rendered(density: Array, colour: Array, depths: Array) -> tuple[Array, Array]:
    """Colour of each ray [r, 3] and each sample's share of it, 1 - exp(-density gap) behind the rest."""
    import jax.numpy as jnp

    gaps = jnp.concatenate([depths[:, 1:] - depths[:, :-1], jnp.full_like(depths[:, :1], 1e10)], -1)
    opacity = 1.0 - jnp.exp(-density * gaps)
    passing = jnp.cumprod(1.0 - opacity[:, :-1] + 1e-10, -1)
    weights = opacity * jnp.concatenate([jnp.ones_like(passing[:, :1]), passing], -1)
    return jnp.sum(weights[..., None] * colour, 1), weights


def _finer_depths(c: Ctx, depths: Array, weights: Array) -> Array:
    """Depths drawn where the coarse weights are, by inverting their cumulative sum: [r, fine]."""
    import jax
    import jax.numpy as jnp

    middles = 0.5 * (depths[:, 1:] + depths[:, :-1])
    shares = weights[:, 1:-1] + 1e-5
    shares = shares / jnp.sum(shares, -1, keepdims=True)
    below = jnp.concatenate([jnp.zeros_like(shares[:, :1]), jnp.cumsum(shares, -1)], -1)
    quantiles = jax.random.uniform(c.rng(), (depths.shape[0], _FINE))
    # Comparing with all bounds at once: a binary search would be a loop of gathers.
    upper = jnp.sum(quantiles[..., None] >= below[:, None], -1)
    pair = jnp.stack([jnp.maximum(upper - 1, 0), jnp.minimum(upper, below.shape[1] - 1)], -1)
    flat = pair.reshape(pair.shape[0], -1)
    bounds = jnp.take_along_axis(below, flat, 1).reshape(pair.shape)
    ends = jnp.take_along_axis(middles, flat, 1).reshape(pair.shape)
    width = bounds[..., 1] - bounds[..., 0]
    part = (quantiles - bounds[..., 0]) / jnp.where(width < 1e-5, 1.0, width)
    return ends[..., 0] + part * (ends[..., 1] - ends[..., 0])


def nerf(c: Ctx) -> Array:
    """Squared error of both networks' colours in training, the fine network's colours at inference."""
    import jax
    import jax.numpy as jnp

    origins, directions = (c.input(c.batch, 3, dtype="float32") for _ in range(2))
    edges = jnp.linspace(_NEAR, _FAR, _COARSE + 1)
    jitter = jax.random.uniform(c.rng(), (c.batch, _COARSE))
    depths = edges[:-1] + (edges[1:] - edges[:-1]) * jitter

    def points(at: Array) -> Array:
        return origins[:, None] + at[..., None] * directions[:, None]

    coarse, weights = _rendered(*_radiance(c, points(depths), directions), depths)
    finer = jax.lax.stop_gradient(_finer_depths(c, depths, weights))
    depths = jnp.sort(jnp.concatenate([depths, finer], -1), -1)
    fine, _ = _rendered(*_radiance(c, points(depths), directions), depths)
    if not c.train:
        return fine
    truth = c.input(c.batch, 3, dtype="float32")
    return jnp.mean(jnp.square(coarse - truth)) + jnp.mean(jnp.square(fine - truth))
