"""Reinforcement learning: IMPALA's learner, and the policy-and-value network of AlphaGo Zero and AlphaZero.

IMPALA: the deep residual network (three sections of 16, 32, 32 features) on 72 x 96 frames, an LSTM of
256, unrolls of 100 steps, V-trace targets. AlphaZero on chess: a convolution and 19 residual blocks of 256
features on 8 x 8 x 119, 73 planes of moves. Go on 9 x 9 with a tower of half the depth and width.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from corpus.context import Ctx
from corpus.zoo.convnets import residual_block_v1
from corpus.zoo.layers import batch_norm, bias, conv, dense, lstm, lstm_state, max_pool, scan_time

if TYPE_CHECKING:
    from jax import Array

_ACTIONS = 9
_UNROLL = 100
_DISCOUNT = 0.99


def _frame_features(c: Ctx, frames: Array) -> Array:
    """Frames [n, 72, 96, 3] to [n, 256]."""
    import jax

    relu = jax.nn.relu
    x = frames
    for features in (16, 32, 32):
        x = max_pool(bias(c, conv(c, x, features, 3)), 3, 2)
        for _ in range(2):
            y = bias(c, conv(c, relu(x), features, 3))
            x = x + bias(c, conv(c, relu(y), features, 3))
    return relu(dense(c, relu(x).reshape(x.shape[0], -1), 256))


def vtrace(ratios: Array, values: Array, rewards: Array, discounts: Array) -> tuple[Array, Array]:
    """V-trace targets v_s and advantages r + g v_{s+1} - V(s), of [b, t] (Espeholt et al. 2018, section 4.1).

    Args:
        ratios: target policy over behaviour policy, clipped here at 1.
        values: of the states, [b, t + 1].
        rewards: [b, t].
        discounts: 0 where an episode ends, [b, t].
    """
    import jax.numpy as jnp
    from jax import lax

    clipped = jnp.minimum(ratios, 1.0)
    errors = clipped * (rewards + discounts * values[:, 1:] - values[:, :-1])

    def step(later: Array, one: Any) -> tuple[Array, Array]:
        error, carried = one
        later = error + carried * later
        return later, later

    inputs = (jnp.swapaxes(errors, 0, 1), jnp.swapaxes(discounts * clipped, 0, 1))
    _, corrections = lax.scan(step, jnp.zeros(rewards.shape[0]), inputs, reverse=True)
    targets = values[:, :-1] + jnp.swapaxes(corrections, 0, 1)
    following = jnp.concatenate([targets[:, 1:], values[:, -1:]], 1)
    return targets, clipped * (rewards + discounts * following - values[:, :-1])


def impala(c: Ctx) -> Array:
    """Policy gradient with V-trace, squared error of values, entropy bonus."""
    import jax
    import jax.numpy as jnp

    steps = _UNROLL + 1
    frames = c.input(c.batch * steps, 72, 96, 3)
    x = _frame_features(c, frames).reshape(c.batch, steps, -1)
    before = jax.nn.one_hot(c.tokens(c.batch, steps), _ACTIONS, dtype=c.dtype)
    rewards = c.input(c.batch, steps, dtype="float32")
    x = jnp.concatenate([x, before, jnp.clip(rewards, -1, 1)[..., None].astype(c.dtype)], -1)
    _, x = scan_time(lstm(c, x.shape[-1], 256), lstm_state(c, c.batch, 256), x)
    log_policy = jax.nn.log_softmax(dense(c, x, _ACTIONS).astype("float32"))[:, :-1]
    values = dense(c, x, 1)[..., 0].astype("float32")
    actions = c.tokens(c.batch, _UNROLL)
    chosen = jnp.take_along_axis(log_policy, actions[..., None], -1)[..., 0]
    ratios = jnp.exp(chosen - c.input(c.batch, _UNROLL, dtype="float32"))
    discounts = _DISCOUNT * c.input(c.batch, _UNROLL, dtype="float32")
    targets, advantages = jax.lax.stop_gradient(vtrace(ratios, values, rewards[:, 1:], discounts))
    policy = -jnp.sum(chosen * advantages)
    baseline = 0.5 * jnp.sum(jnp.square(targets - values[:, :-1]))
    entropy = -jnp.sum(jnp.exp(log_policy) * log_policy)
    return policy + 0.5 * baseline - 0.00025 * entropy


def _tower(c: Ctx, planes: Array, blocks: int, features: int) -> Array:
    import jax

    x = jax.nn.relu(batch_norm(c, conv(c, planes, features, 3)))
    for _ in range(blocks):
        x = residual_block_v1(c, x, features, 1, bottleneck=False)
    return x


def _value(c: Ctx, x: Array) -> Array:
    """tanh of two dense layers on one plane: [b]."""
    import jax
    import jax.numpy as jnp

    x = jax.nn.relu(batch_norm(c, conv(c, x, 1, 1))).reshape(c.batch, -1)
    return jnp.tanh(dense(c, jax.nn.relu(dense(c, x, 256)), 1)[:, 0].astype("float32"))


def go_network(c: Ctx, side: int, blocks: int, features: int) -> Array:
    """Training on self-played games: cross entropy to the search's policy, squared error of the result."""
    import jax
    import jax.numpy as jnp

    x = _tower(c, c.input(c.batch, side, side, 17), blocks, features)
    policy = jax.nn.relu(batch_norm(c, conv(c, x, 2, 1))).reshape(c.batch, -1)
    log_policy = jax.nn.log_softmax(dense(c, policy, side * side + 1).astype("float32"))
    value = _value(c, x)
    searched = c.input(c.batch, side * side + 1, dtype="float32")
    won = c.input(c.batch, dtype="float32")
    return jnp.mean(jnp.square(value - won)) - jnp.mean(jnp.sum(searched * log_policy, -1))


def chess_network(c: Ctx, blocks: int = 19, features: int = 256) -> tuple[Array, Array]:
    """Policy over 8 x 8 x 73 moves and value of chess positions."""
    import jax

    x = _tower(c, c.input(c.batch, 8, 8, 119), blocks, features)
    policy = jax.nn.relu(batch_norm(c, conv(c, x, features, 3)))
    policy = bias(c, conv(c, policy, 73, 3)).reshape(c.batch, -1)
    return jax.nn.softmax(policy.astype("float32")), _value(c, x)
