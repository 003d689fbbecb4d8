"""A compiled LSTM over the nodes of each kernel, forward and backward, that keeps only the last state.

Steps of a kernel go by in order, its C decisions being the rows of every product, and what a step computes is
still in the caches when the next one reads it. Rows are those of states [N, C, H] as [N C, H]. Nothing is
padded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from costbench.execution.compiled import compiled, compiled_fused, compiled_inline
from costbench.models.kernels.feed_forward import aligned, aligned_zeros, turned_all
from costbench.models.kernels.gemm import (
    BLOCK_ROWS,
    add_gradient,
    add_picked_gradient,
    all_units,
    pick,
    picked_product,
    piece_end,
    product,
    product_add,
)
from costbench.models.kernels.register_tiles import fused
from costbench.models.networks.constants import FORGET_OFFSET

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

_ONE, _HALF, _OFFSET = np.float32(1.0), np.float32(0.5), np.float32(FORGET_OFFSET)
_LIMIT = np.float32(7.90531110763549805)
"""From here on tanh is 1 in single precision."""
_P0, _P1, _P2, _P3 = (
    np.float32(c)
    for c in (4.89352455891786e-03, 6.37261928875436e-04, 1.48572235717979e-05, 5.12229709037114e-08)
)
_P4, _P5, _P6 = (np.float32(c) for c in (-8.60467152213735e-11, 2.00018790482477e-13, -2.76076847742355e-16))
_Q0, _Q1, _Q2, _Q3 = (
    np.float32(c)
    for c in (4.89352518554385e-03, 2.26843463243900e-03, 1.18534705686654e-04, 1.19825839466702e-06)
)


@compiled_inline
def _tanh_parts(x: np.float32) -> tuple[np.float32, np.float32]:
    """Polynomials whose quotient Eigen uses: tanh x to a few units in the last place, without branches."""
    x = _LIMIT if x > _LIMIT else x
    x = -_LIMIT if x < -_LIMIT else x
    s = x * x
    p = x * (_P0 + s * (_P1 + s * (_P2 + s * (_P3 + s * (_P4 + s * (_P5 + s * _P6))))))
    return p, _Q0 + s * (_Q1 + s * (_Q2 + s * _Q3))


@compiled_inline
def _tanh(x: np.float32) -> np.float32:
    p, q = _tanh_parts(x)
    return p / q


class LstmMatrices(NamedTuple):
    """Over inputs [4 W, H] and over states [4 W, W], outputs first, gates i, f, g, o one above the other."""

    inputs: FloatArray
    states: FloatArray


class LstmStates(NamedTuple):
    """What an LSTM reads and keeps for its gradient.

    Attributes:
        inputs: [N C, H].
        gates: [4, N C, W], after their activation.
        cells: [N C, W], c.
    """

    inputs: FloatArray
    gates: FloatArray
    cells: FloatArray


@compiled_fused
def _activate(
    gates: tuple[FloatArray, ...], before: FloatArray, cells: FloatArray, hidden: FloatArray
) -> None:
    """Gates, cells and states of a step, all in a row; `before` are the cells of the step before."""
    of_i, of_f, of_g, of_o = gates
    for w in range(len(cells)):
        i, under_i = _tanh_parts(_HALF * of_i[w])
        f, under_f = _tanh_parts(_HALF * (of_f[w] + _OFFSET))
        g, under_g = _tanh_parts(of_g[w])
        o, under_o = _tanh_parts(_HALF * of_o[w])
        # One division for all four: it takes as long as ten products.
        under_if, under_go = under_i * under_f, under_g * under_o
        over = _ONE / (under_if * under_go)
        over_if, over_go = over * under_go, over * under_if
        i, f = _HALF + _HALF * (i * (over_if * under_f)), _HALF + _HALF * (f * (over_if * under_i))
        g, o = g * (over_go * under_o), _HALF + _HALF * (o * (over_go * under_g))
        c = fused(f, before[w], i * g)
        of_i[w], of_f[w], of_g[w], of_o[w] = i, f, g, o
        cells[w], hidden[w] = c, o * _tanh(c)


@compiled_inline
def _gates(gates: FloatArray, first: int, end: int) -> tuple[FloatArray, ...]:
    """Numbers of each gate [4, numbers] from one on to another."""
    return gates[0, first:end], gates[1, first:end], gates[2, first:end], gates[3, first:end]


@compiled
def lstm_forward(
    inputs: FloatArray, weights: LstmMatrices, starts: IntArray, configs: int
) -> tuple[FloatArray, LstmStates]:
    """h_t = o tanh(c_t), c_t = f c_(t-1) + i g, (i, f, g, o) = (s, s, tanh, s)(W x_t + U h_(t-1) + offset).

    Args:
        inputs: x, [N C, H].
        weights: W and U.
        starts: int64 [K + 1], where each kernel's nodes begin.
        configs: C.

    Returns:
        The last states, [K, C, W], and what the gradient needs.
    """
    rows, width = len(inputs), weights.states.shape[1]
    of_inputs = turned_all(weights.inputs.reshape(4, width, -1))
    of_states = turned_all(weights.states.reshape(4, width, width))
    gates, cells = aligned(4 * rows, width).reshape(4, rows, width), aligned(rows, width)
    hidden, num_kernels = aligned(configs, width), len(starts) - 1
    last = aligned(num_kernels * configs, width).reshape(num_kernels, configs, width)
    flat_gates, flat_cells = gates.reshape(4, -1), cells.reshape(-1)
    steps, wide = max(1, BLOCK_ROWS // configs), configs * width
    units, nothing = all_units(inputs.shape[1]), np.zeros(wide, np.float32)
    for k in range(num_kernels):
        for node in range(starts[k], starts[k + 1], steps):
            end = min(node + steps, starts[k + 1])
            row = node * configs
            while row < end * configs:
                stop = piece_end(row, end * configs, configs)
                on = pick(inputs, row, stop - row, configs, units)
                for gate in range(4):
                    picked_product((inputs, row), of_inputs[gate], (gates[gate], row), stop - row, on)
                row = stop
            for now in range(node, end):
                place = now * wide
                before = nothing
                if now > starts[k]:
                    before = flat_cells[place - wide : place]
                    for gate in range(4):
                        product_add(hidden, 0, of_states[gate], gates[gate], now * configs, configs)
                to = flat_cells[place : place + wide]
                _activate(_gates(flat_gates, place, place + wide), before, to, hidden.reshape(-1))
        last[k] = hidden
    return last, LstmStates(inputs, gates, cells)


@compiled_fused
def _squash(cells: FloatArray, out: FloatArray) -> None:
    """tanh c: cheaper to compute again than to keep."""
    for w in range(len(cells)):
        out[w] = _tanh(cells[w])


@compiled_fused
def _open(squashed: FloatArray, gate: FloatArray) -> None:
    """h in place of tanh c."""
    for w in range(len(gate)):
        squashed[w] *= gate[w]


@compiled_fused
def _activate_gradient(
    gates: tuple[FloatArray, ...],
    before: FloatArray,
    squashed: FloatArray,
    d_states: tuple[FloatArray, FloatArray],
    d_gates: tuple[FloatArray, ...],
) -> None:
    """Through the gates of a step; arguments as in `_activate`, and tanh c.

    `d_states` are gradients of h and c; the latter becomes that of the step before.
    """
    of_i, of_f, of_g, of_o = gates
    d_hidden, d_cells = d_states
    to_i, to_f, to_g, to_o = d_gates
    forgets = len(before) > 0
    for w in range(len(d_cells)):
        i, f, g, o = of_i[w], of_f[w], of_g[w], of_o[w]
        s, d_h = squashed[w], d_hidden[w]
        d_c = d_cells[w] + d_h * o * (_ONE - s * s)
        to_i[w] = d_c * g * i * (_ONE - i)
        d_f = d_c * f * (_ONE - f)
        to_f[w] = d_f * before[w] if forgets else np.float32(0.0)
        to_g[w] = d_c * i * (_ONE - g * g)
        to_o[w] = d_h * s * o * (_ONE - o)
        d_cells[w] = d_c * f


@compiled
def lstm_backward(
    gradient: FloatArray, lstm: LstmStates, weights: LstmMatrices, starts: IntArray
) -> tuple[FloatArray, LstmMatrices]:
    """Gradients of the inputs, [N C, H], and of the weights, where [K, C, W] reaches the last states."""
    configs, width = gradient.shape[1:]
    inputs, wide, steps = lstm.inputs.shape[1], configs * width, max(1, BLOCK_ROWS // configs)
    of_inputs = weights.inputs.reshape(4, width, inputs)
    found = LstmMatrices(aligned_zeros(4 * width, inputs), aligned_zeros(4 * width, width))
    d_inputs, squashed = aligned(len(lstm.inputs), inputs), aligned((steps + 1) * configs, width)
    d_hidden, d_cells = aligned(configs, width), aligned(configs, width)
    d_gates = aligned(4 * steps * configs, width).reshape(4, steps * configs, width)
    d_turned, units = aligned_zeros(4 * inputs, width).reshape(4, inputs, width), all_units(inputs)
    for k in range(len(starts) - 1):
        d_hidden[:] = gradient[k]
        d_cells[:] = 0.0
        for end in range(starts[k + 1], starts[k], -steps):
            begin = max(starts[k], end - steps)
            # The first node has none before it.
            alone = configs if begin == starts[k] else 0
            known = lstm.cells.reshape(-1)[(begin - 1) * wide + alone * width : end * wide]
            _squash(known, squashed.reshape(-1)[alone * width :])
            _through_steps(
                lstm, weights.states, (begin, end, starts[k]), squashed, (d_hidden, d_cells), d_gates
            )
            rows, row = (end - begin) * configs, begin * configs
            product(d_gates[0], 0, of_inputs[0], d_inputs, row, rows)
            for gate in range(1, 4):
                product_add(d_gates[gate], 0, of_inputs[gate], d_inputs, row, rows)
            opened = lstm.gates[3].reshape(-1)[(begin - 1) * wide + alone * width : (end - 1) * wide]
            _open(squashed.reshape(-1)[alone * width :], opened)
            _add_input_gradients(lstm.inputs, d_gates, (row, rows, configs), units, d_turned)
            for gate in range(4):
                part = slice(gate * width, (gate + 1) * width)
                add_gradient(d_gates[gate], alone, squashed, alone, rows - alone, found.states[part])
    for gate in range(4):
        found.inputs[gate * width : (gate + 1) * width] = d_turned[gate].T
    return d_inputs, found


@compiled
def _add_input_gradients(
    inputs: FloatArray, d_gates: FloatArray, block: tuple[int, int, int], units: IntArray, out: FloatArray
) -> None:
    """Add x^T d of each gate, [4, H, W], for a block of so many rows from one on, of so many decisions.

    Inputs come from a rectifier, gradients of gates do not: the product is the other way round than others.
    """
    first, rows, configs = block
    row = first
    while row < first + rows:
        stop = piece_end(row, first + rows, configs)
        on = pick(inputs, row, stop - row, configs, units)
        for gate in range(4):
            add_picked_gradient((inputs, row), (d_gates[gate], row - first), stop - row, out[gate], on)
        row = stop


@compiled
def _through_steps(
    lstm: LstmStates,
    of_states: FloatArray,
    nodes: tuple[int, int, int],
    squashed: FloatArray,
    d_states: tuple[FloatArray, FloatArray],
    d_gates: FloatArray,
) -> None:
    """Through the steps of nodes[0] to nodes[1], the last one first; nodes[2] is the first of the kernel.

    `squashed` are tanh c from the node before nodes[0] on, `d_gates` those of the block's steps, written.
    """
    configs, width = d_states[0].shape
    wide, matrices = configs * width, of_states.reshape(4, width, width)
    gates, cells, tanhs = lstm.gates.reshape(4, -1), lstm.cells.reshape(-1), squashed.reshape(-1)
    both, flat = (d_states[0].reshape(-1), d_states[1].reshape(-1)), d_gates.reshape(4, -1)
    for now in range(nodes[1] - 1, nodes[0] - 1, -1):
        place, slot = now * wide, (now - nodes[0]) * wide
        before = cells[place - wide : place] if now > nodes[2] else cells[place:place]
        known = tanhs[slot + wide : slot + 2 * wide]
        to = _gates(flat, slot, slot + wide)
        _activate_gradient(_gates(gates, place, place + wide), before, known, both, to)
        if now > nodes[2]:
            row = (now - nodes[0]) * configs
            product(d_gates[0], row, matrices[0], d_states[0], 0, configs)
            for gate in range(1, 4):
                product_add(d_gates[gate], row, matrices[gate], d_states[0], 0, configs)
