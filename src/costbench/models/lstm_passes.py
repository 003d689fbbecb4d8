"""A compiled LSTM over the nodes of each kernel, forward and backward, that keeps only the last state.

Steps of a kernel go by in order, its C decisions being the rows of every product, and what a step computes is
still in the caches when the next one reads it. Rows are those of states [N, C, H] as [N C, H]; the gates i,
f, g, o lie one above the other, [4, rows, W]. Nothing is padded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from costbench.compiled import compiled, compiled_inline, compiled_step
from costbench.models.layer_passes import BLOCK_ROWS, aligned
from costbench.models.narrow_products import add_gradient, product, product_add

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]

FORGET_OFFSET = 1.0
"""Added to the forget gate, as TensorFlow's LSTM cells do: an untrained LSTM without biases would otherwise
halve its memory at every node, and see only the last few of a kernel."""

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
def _tanh(x: np.float32) -> np.float32:
    """By the quotient of two polynomials that Eigen uses: a few units in the last place, without branches."""
    x = _LIMIT if x > _LIMIT else x
    x = -_LIMIT if x < -_LIMIT else x
    s = x * x
    p = x * (_P0 + s * (_P1 + s * (_P2 + s * (_P3 + s * (_P4 + s * (_P5 + s * _P6))))))
    return p / (_Q0 + s * (_Q1 + s * (_Q2 + s * _Q3)))


class LstmMatrices(NamedTuple):
    """Over inputs [4, H, W] and over states [4, W, W], inputs first; for gradients outputs first."""

    inputs: FloatArray
    states: FloatArray


class LstmStates(NamedTuple):
    """What an LSTM reads and computes.

    Attributes:
        inputs: [N C, H].
        gates: [4, N C, W], after their activation.
        cells: [N C, W], c.
        squashed: [N C, W], tanh c.
        hidden: [N C, W], h.
    """

    inputs: FloatArray
    gates: FloatArray
    cells: FloatArray
    squashed: FloatArray
    hidden: FloatArray


@compiled_step
def _activate(
    gates: FloatArray,
    cells: FloatArray,
    squashed: FloatArray,
    hidden: FloatArray,
    place: tuple[int, int, int],
) -> None:
    """Gates, cells and states of rows place[0] to place[1]; the step before has the place[2] rows before."""
    for r in range(place[0], place[1]):
        for w in range(cells.shape[1]):
            i = _HALF + _HALF * _tanh(_HALF * gates[0, r, w])
            f = _HALF + _HALF * _tanh(_HALF * (gates[1, r, w] + _OFFSET))
            g = _tanh(gates[2, r, w])
            o = _HALF + _HALF * _tanh(_HALF * gates[3, r, w])
            c = i * g
            if place[2]:
                c += f * cells[r - place[2], w]
            s = _tanh(c)
            gates[0, r, w], gates[1, r, w], gates[2, r, w], gates[3, r, w] = i, f, g, o
            cells[r, w], squashed[r, w], hidden[r, w] = c, s, o * s


@compiled
def lstm_forward(lstm: LstmStates, weights: LstmMatrices, starts: IntArray, configs: int) -> None:
    """h_t = o tanh(c_t), c_t = f c_(t-1) + i g, (i, f, g, o) = (s, s, tanh, s)(W x_t + U h_(t-1) + offset).

    Args:
        lstm: of which all but the inputs are written.
        weights: W and U.
        starts: int64 [K + 1], where each kernel's nodes begin.
        configs: C.
    """
    steps = max(1, BLOCK_ROWS // configs)
    for k in range(len(starts) - 1):
        for node in range(starts[k], starts[k + 1], steps):
            end = min(node + steps, starts[k + 1])
            for gate in range(4):
                rows = (end - node) * configs
                product(
                    lstm.inputs, node * configs, weights.inputs[gate], lstm.gates[gate], node * configs, rows
                )
            for now in range(node, end):
                row, before = now * configs, 0
                if now > starts[k]:
                    before = configs
                    for gate in range(4):
                        product_add(
                            lstm.hidden, row - configs, weights.states[gate], lstm.gates[gate], row, configs
                        )
                _activate(lstm.gates, lstm.cells, lstm.squashed, lstm.hidden, (row, row + configs, before))


@compiled_step
def _activate_gradient(
    lstm: LstmStates,
    d_hidden: FloatArray,
    d_cells: FloatArray,
    d_gates: FloatArray,
    place: tuple[int, int, int, int],
) -> None:
    """Through the gates of the place[1] rows from place[0] on to rows from place[3] on of `d_gates`.

    place[2] is as in `_activate`; `d_cells` becomes what reaches the cells of the step before.
    """
    gates, cells, squashed = lstm.gates, lstm.cells, lstm.squashed
    for c in range(place[1]):
        row, to = place[0] + c, place[3] + c
        for w in range(d_cells.shape[1]):
            i, f, g, o = gates[0, row, w], gates[1, row, w], gates[2, row, w], gates[3, row, w]
            s, d_h = squashed[row, w], d_hidden[c, w]
            d_c = d_cells[c, w] + d_h * o * (_ONE - s * s)
            d_gates[0, to, w] = d_c * g * i * (_ONE - i)
            d_f = d_c * f * (_ONE - f)
            d_gates[1, to, w] = d_f * cells[row - place[2], w] if place[2] else np.float32(0.0)
            d_gates[2, to, w] = d_c * i * (_ONE - g * g)
            d_gates[3, to, w] = d_h * s * o * (_ONE - o)
            d_cells[c, w] = d_c * f


@compiled
def lstm_backward(
    gradient: FloatArray,
    lstm: LstmStates,
    weights: LstmMatrices,
    starts: IntArray,
    d_inputs: FloatArray,
    d_weights: LstmMatrices,
) -> None:
    """Gradients of the last states' [K, C, W]; those of the weights, outputs first, are added."""
    configs, width = gradient.shape[1:]
    steps = max(1, BLOCK_ROWS // configs)
    d_hidden, d_cells = aligned(configs, width), aligned(configs, width)
    d_gates = aligned(4 * steps * configs, width).reshape(4, steps * configs, width)
    for k in range(len(starts) - 1):
        first = starts[k]
        d_hidden[:] = gradient[k]
        d_cells[:] = 0.0
        for end in range(starts[k + 1], first, -steps):
            begin = max(first, end - steps)
            for now in range(end - 1, begin - 1, -1):
                row, slot, before = now * configs, (now - begin) * configs, configs if now > first else 0
                _activate_gradient(lstm, d_hidden, d_cells, d_gates, (row, configs, before, slot))
                if now > first:
                    product(d_gates[0], slot, weights.states[0], d_hidden, 0, configs)
                    for gate in range(1, 4):
                        product_add(d_gates[gate], slot, weights.states[gate], d_hidden, 0, configs)
            rows, row = (end - begin) * configs, begin * configs
            product(d_gates[0], 0, weights.inputs[0], d_inputs, row, rows)
            for gate in range(1, 4):
                product_add(d_gates[gate], 0, weights.inputs[gate], d_inputs, row, rows)
            alone = configs if begin == first else 0
            for gate in range(4):
                add_gradient(d_gates[gate], 0, lstm.inputs, row, rows, d_weights.inputs[gate])
                add_gradient(
                    d_gates[gate],
                    alone,
                    lstm.hidden,
                    row + alone - configs,
                    rows - alone,
                    d_weights.states[gate],
                )
