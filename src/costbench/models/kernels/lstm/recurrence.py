"""Forward and backward kernel of an LSTM over the nodes of each kernel, which returns its last hidden state.

A node is one time step. The C decisions of a kernel are the rows of every matrix product, so kernels of
different lengths run one after another without padding. Node states [N, C, H] are read as a matrix [N C, H]
in which the rows of node n are n C to n C + C.

Loop order: kernels, then blocks of at most `BLOCK_ROWS` rows (or one step), then steps. W x does not depend
on the recurrence and is one product per gate for a whole block; only U h runs step by step. A block is small,
so what a step writes is still in a cache when the next step reads it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import F32, I64
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

_ONE, _HALF, _OFFSET = np.float32(1.0), np.float32(0.5), np.float32(FORGET_OFFSET)
_LIMIT = np.float32(7.90531110763549805)
"""Arguments are clamped to +-_LIMIT, beyond which tanh is +-1 in single precision."""
# Coefficients of x, x^3, ..., x^13 (P) and of 1, x^2, x^4, x^6 (Q) of Eigen's rational approximation P / Q.
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
    """Returns P(x) and Q(x) with tanh x = P / Q to a few units in the last place (Eigen's approximation).

    It has no branches, so a loop over it is vectorised. Callers divide, several quotients at a time.
    """
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
    """Weights of the inputs [4 W, H] and of the hidden states [4 W, W], [outputs, inputs] as in `nn.Linear`.

    The rows of gates i, f, g and o follow each other.
    """

    inputs: F32
    states: F32


class LstmStates(NamedTuple):
    """What the backward kernel needs of the forward one. Hidden states are computed again, not kept.

    Attributes:
        inputs: x, [N C, H].
        gates: i, f, g, o after their activation, [4, N C, W].
        cells: c, [N C, W].
    """

    inputs: F32
    gates: F32
    cells: F32


@compiled_fused
def _activate(gates: tuple[F32, ...], before: F32, cells: F32, hidden: F32) -> None:
    """Apply the activations of one step; all arrays are flat, [C W].

    Overwrites the pre-activations in `gates` by i, f, g, o, and writes c_t to `cells` and h_t to `hidden`.
    `before` is c_(t-1).
    """
    of_i, of_f, of_g, of_o = gates
    for w in range(len(cells)):
        i, under_i = _tanh_parts(_HALF * of_i[w])
        f, under_f = _tanh_parts(_HALF * (of_f[w] + _OFFSET))
        g, under_g = _tanh_parts(of_g[w])
        o, under_o = _tanh_parts(_HALF * of_o[w])
        # sigmoid x = 1/2 + 1/2 tanh(x / 2), so all four gates are quotients P / Q. One reciprocal of the
        # product of the four Q replaces four divisions: a division takes as long as ten multiplications.
        under_if, under_go = under_i * under_f, under_g * under_o
        over = _ONE / (under_if * under_go)
        over_if, over_go = over * under_go, over * under_if
        i, f = _HALF + _HALF * (i * (over_if * under_f)), _HALF + _HALF * (f * (over_if * under_i))
        g, o = g * (over_go * under_o), _HALF + _HALF * (o * (over_go * under_g))
        c = fused(f, before[w], i * g)
        of_i[w], of_f[w], of_g[w], of_o[w] = i, f, g, o
        cells[w], hidden[w] = c, o * _tanh(c)


@compiled_inline
def _gates(gates: F32, first: int, end: int) -> tuple[F32, ...]:
    """Returns the elements `first` to `end` (exclusive) of each row of gates [4, n]."""
    return gates[0, first:end], gates[1, first:end], gates[2, first:end], gates[3, first:end]


@compiled
def lstm_forward(inputs: F32, weights: LstmMatrices, starts: I64, configs: int) -> tuple[F32, LstmStates]:
    """Run the LSTM over the nodes of each kernel, starting from h = c = 0.

    h_t = o tanh(c_t), c_t = f c_(t-1) + i g, (i, f, g, o) = (s, s, tanh, s)(W x_t + U h_(t-1) + offset),
    where s is the sigmoid and the offset is `FORGET_OFFSET` for f and 0 for the other gates.

    Args:
        inputs: x, [N C, H].
        weights: W and U.
        starts: int64 [K + 1]; kernel k has the nodes starts[k] to starts[k + 1].
        configs: C, decisions per node.

    Returns:
        the last hidden states, [K, C, W], and what `lstm_backward` needs.
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
def _squash(cells: F32, out: F32) -> None:
    """Write tanh c to `out`: computing it again is cheaper than keeping it from the forward kernel."""
    for w in range(len(cells)):
        out[w] = _tanh(cells[w])


@compiled_fused
def _open(squashed: F32, gate: F32) -> None:
    """Replace tanh c by the hidden state h = o tanh c, where `gate` is o."""
    for w in range(len(gate)):
        squashed[w] *= gate[w]


@compiled_fused
def _activate_gradient(
    gates: tuple[F32, ...],
    before: F32,
    squashed: F32,
    d_states: tuple[F32, F32],
    d_gates: tuple[F32, ...],
) -> None:
    """Backpropagate through the activations of one step; all arrays are flat, [C W].

    `gates` and `before` are as in `_activate`, except that `before` is empty at the first step of a kernel.
    `squashed` is tanh c_t. `d_states` holds the gradients of h_t and c_t, and the latter is overwritten by
    that of c_(t-1). The gradients of the pre-activations are written to `d_gates`.
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
    gradient: F32, lstm: LstmStates, weights: LstmMatrices, starts: I64
) -> tuple[F32, LstmMatrices]:
    """Returns the gradients of the inputs, [N C, H], and of the weights.

    Kernels go by in blocks of steps, the last block first. Within a block only the product with U runs step
    by step; the gradients of the inputs and of both weights are one product per gate for the whole block.

    Args:
        gradient: of the last hidden states, [K, C, W].
        lstm: what `lstm_forward` returned.
        weights: W and U.
        starts: as in `lstm_forward`.
    """
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
            # Rows of `squashed` are those of the node before the block, then the block's: h_(t-1) of step t
            # is one node earlier. The first node of a kernel has no node before it, so its rows are left out.
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
    inputs: F32, d_gates: F32, block: tuple[int, int, int], units: I64, out: F32
) -> None:
    """Add x^T d of each gate to `out`, [4, H, W], over one block of rows.

    This is the transposed weight gradient: x comes from a ReLU and has inactive units to leave out, while the
    gradients of the gates have none, and `add_picked_gradient` leaves out columns of its first argument.

    Args:
        inputs: x, [N C, H].
        d_gates: gradients of the pre-activations, [4, rows of a block, W].
        block: first row, number of rows, and C.
        units: scratch of `pick`.
        out: added to.
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
    of_states: F32,
    nodes: tuple[int, int, int],
    squashed: F32,
    d_states: tuple[F32, F32],
    d_gates: F32,
) -> None:
    """Backpropagate through the steps of a block, the last one first.

    Args:
        lstm: what `lstm_forward` returned.
        of_states: U, [4 W, W].
        nodes: first node of the block, the node after its last one, and the first node of the kernel.
        squashed: tanh c, whose first C rows belong to the node before the block.
        d_states: gradients of h and c [C, W] after the block; overwritten by those before it.
        d_gates: gradients of the pre-activations of the block's steps are written here.
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
