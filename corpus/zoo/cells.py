"""Recurrent cells and the scans that run them.

Weights are asked for outside the scan, because a scan's body may be traced more than once. Sequences
enter and leave as [batch, time, features]; the scan itself runs over time-major slices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from corpus.context import Ctx

if TYPE_CHECKING:
    from jax import Array

# (carried state, input at one step) -> (new state, output at that step)
Cell = Callable[[Any, "Array"], tuple[Any, "Array"]]


def lstm(c: Ctx, inputs: int, hidden: int, projection: int = 0) -> Cell:
    """i, f, g, o = [x, h] W + b; c' = s(f) c + s(i) tanh(g); h' = s(o) tanh(c'), projected if asked."""
    import jax
    import jax.numpy as jnp

    kernel = c.weight(inputs + (projection or hidden), 4 * hidden)
    offset = c.weight(4 * hidden)
    project = c.weight(hidden, projection) if projection else None

    def step(state: tuple[Array, Array], x: Array) -> tuple[tuple[Array, Array], Array]:
        cell, output = state
        gates = jnp.concatenate([x, output], -1) @ kernel + offset
        i, f, g, o = jnp.split(gates, 4, -1)
        cell = jax.nn.sigmoid(f + 1.0) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
        output = jax.nn.sigmoid(o) * jnp.tanh(cell)
        output = output if project is None else output @ project
        return (cell, output), output

    return step


def gru(c: Ctx, inputs: int, hidden: int) -> Cell:
    """r, z = s(x W + h U); h~ = tanh(x W + r (h U)); h' = z h + (1 - z) h~"""
    import jax
    import jax.numpy as jnp

    from_input, from_state = c.weight(inputs, 3 * hidden), c.weight(hidden, 3 * hidden)
    offset = c.weight(3 * hidden)

    def step(state: Array, x: Array) -> tuple[Array, Array]:
        xr, xz, xh = jnp.split(x @ from_input + offset, 3, -1)
        hr, hz, hh = jnp.split(state @ from_state, 3, -1)
        update = jax.nn.sigmoid(xz + hz)
        candidate = jnp.tanh(xh + jax.nn.sigmoid(xr + hr) * hh)
        state = update * state + (1.0 - update) * candidate
        return state, state

    return step


def zeros(c: Ctx, *shape: int) -> Array:
    """An initial state in the compute dtype."""
    import jax.numpy as jnp

    return jnp.zeros(shape, c.dtype)


def lstm_state(c: Ctx, batch: int, hidden: int, projection: int = 0) -> tuple[Array, Array]:
    """(cell, output) at the start."""
    return zeros(c, batch, hidden), zeros(c, batch, projection or hidden)


def scan_time(cell: Cell, state: Any, x: Array, reverse: bool = False) -> tuple[Any, Array]:
    """Run `cell` along time: x [b, t, f] -> (last state, outputs [b, t, f'])."""
    import jax.numpy as jnp
    from jax import lax

    state, outputs = lax.scan(cell, state, jnp.swapaxes(x, 0, 1), reverse=reverse)
    return state, jnp.swapaxes(outputs, 0, 1)


def run_lstm(c: Ctx, x: Array, hidden: int, reverse: bool = False) -> Array:
    """One LSTM layer from a zero state: [b, t, f] -> [b, t, hidden]."""
    cell = lstm(c, x.shape[-1], hidden)
    return scan_time(cell, lstm_state(c, x.shape[0], hidden), x, reverse)[1]


def run_gru(c: Ctx, x: Array, hidden: int, reverse: bool = False) -> Array:
    """One GRU layer from a zero state: [b, t, f] -> [b, t, hidden]."""
    cell = gru(c, x.shape[-1], hidden)
    return scan_time(cell, zeros(c, x.shape[0], hidden), x, reverse)[1]


def bidirectional(c: Ctx, x: Array, hidden: int) -> Array:
    """LSTM layers in both directions, side by side: [b, t, f] -> [b, t, 2 hidden]."""
    import jax.numpy as jnp

    return jnp.concatenate([run_lstm(c, x, hidden), run_lstm(c, x, hidden, reverse=True)], -1)
