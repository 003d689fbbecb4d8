"""The LSTM over the nodes of each kernel, which returns its last hidden state, as a fused kernel.

A node is one time step. The C decisions of a kernel are the rows of every matrix product, so kernels of
different lengths run one after another without padding. Node states [N, C, H] are read as a matrix [N C, H]
in which the rows of node n are n C to n C + C.

Loop order: kernels, then blocks of at most `BLOCK_ROWS` rows (or one step), then steps. W x does not depend
on the recurrence and is one product per gate for a whole block; only U h runs step by step. A block is small,
so what a step writes is still in a cache when the next step reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

import numpy as np
from torch import Tensor

from costbench.arrays import F32, I64
from costbench.execution.compiled import compiled, compiled_fused, compiled_inline
from costbench.models.networks.lstm import FORGET_OFFSET, KernelLstm, LstmWeights
from costbench_kernels.gemm import (
    BLOCK_ROWS,
    Rows,
    add_gathered_gradient,
    add_gradient,
    aligned,
    aligned_zeros,
    all_units,
    chunk_end,
    find_active_units,
    gathered_product,
    product,
    product_add,
    transpose_all,
)
from costbench_kernels.register_tiles import fused
from costbench_kernels.steps import FusedKernel, Step, as_array

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
    """Applies the activations of one step; all arrays are flat, [C W].

    Overwrites the pre-activations in `gates` by i, f, g, o, and writes c_t to `cells` and h_t to `hidden`.
    `before` is c_(t-1).
    """
    gate_i, gate_f, gate_g, gate_o = gates
    for w in range(len(cells)):
        i, q_i = _tanh_parts(_HALF * gate_i[w])
        f, q_f = _tanh_parts(_HALF * (gate_f[w] + _OFFSET))
        g, q_g = _tanh_parts(gate_g[w])
        o, q_o = _tanh_parts(_HALF * gate_o[w])
        # sigmoid x = 1/2 + 1/2 tanh(x / 2), so all four gates are quotients P / Q. One reciprocal of the
        # product of the four Q replaces four divisions: a division takes as long as ten multiplications.
        q_if, q_go = q_i * q_f, q_g * q_o
        reciprocal = _ONE / (q_if * q_go)
        per_if, per_go = reciprocal * q_go, reciprocal * q_if
        i, f = _HALF + _HALF * (i * (per_if * q_f)), _HALF + _HALF * (f * (per_if * q_i))
        g, o = g * (per_go * q_o), _HALF + _HALF * (o * (per_go * q_g))
        c = fused(f, before[w], i * g)
        gate_i[w], gate_f[w], gate_g[w], gate_o[w] = i, f, g, o
        cells[w], hidden[w] = c, o * _tanh(c)


@compiled_inline
def _slice_gates(gates: F32, first: int, end: int) -> tuple[F32, ...]:
    """Returns the elements `first` to `end` (exclusive) of each row of gates [4, n]."""
    return gates[0, first:end], gates[1, first:end], gates[2, first:end], gates[3, first:end]


@compiled
def lstm_forward(inputs: F32, weights: LstmMatrices, starts: I64, configs: int) -> tuple[F32, LstmStates]:
    """Runs the LSTM over the nodes of each kernel, starting from h = c = 0.

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
    input_matrices = transpose_all(weights.inputs.reshape(4, width, -1))
    state_matrices = transpose_all(weights.states.reshape(4, width, width))
    gates, cells = aligned(4 * rows, width).reshape(4, rows, width), aligned(rows, width)
    hidden, num_kernels = aligned(configs, width), len(starts) - 1
    last = aligned(num_kernels * configs, width).reshape(num_kernels, configs, width)
    flat_gates, flat_cells = gates.reshape(4, -1), cells.reshape(-1)
    steps, step_size = max(1, BLOCK_ROWS // configs), configs * width
    units, zeros = all_units(inputs.shape[1]), np.zeros(step_size, np.float32)
    for k in range(num_kernels):
        for node in range(starts[k], starts[k + 1], steps):
            end = min(node + steps, starts[k + 1])
            row = node * configs
            while row < end * configs:
                stop = chunk_end(row, end * configs, configs)
                active = find_active_units(inputs, row, stop - row, configs, units)
                for gate in range(4):
                    out = gates[gate], row
                    gathered_product((inputs, row), input_matrices[gate], out, stop - row, active)
                row = stop
            for step in range(node, end):
                first = step * step_size
                before = zeros
                if step > starts[k]:
                    before = flat_cells[first - step_size : first]
                    for gate in range(4):
                        product_add(hidden, 0, state_matrices[gate], gates[gate], step * configs, configs)
                after = flat_cells[first : first + step_size]
                step_gates = _slice_gates(flat_gates, first, first + step_size)
                _activate(step_gates, before, after, hidden.reshape(-1))
        last[k] = hidden
    return last, LstmStates(inputs, gates, cells)


@compiled_fused
def _tanh_of(cells: F32, out: F32) -> None:
    """Writes tanh c to `out`: computing it again is cheaper than keeping it from the forward kernel."""
    for w in range(len(cells)):
        out[w] = _tanh(cells[w])


@compiled_fused
def _multiply(states: F32, gate: F32) -> None:
    """Replaces tanh c in `states` by the hidden state h = o tanh c, where `gate` is o."""
    for w in range(len(gate)):
        states[w] *= gate[w]


@compiled_fused
def _activate_gradient(
    gates: tuple[F32, ...],
    before: F32,
    tanh_cells: F32,
    d_hidden: F32,
    d_cells: F32,
    d_gates: tuple[F32, ...],
) -> None:
    """Backpropagates through the activations of one step; all arrays are flat, [C W].

    Args:
        gates: i, f, g, o.
        before: c_(t-1), empty at the first step of a kernel.
        tanh_cells: tanh c_t.
        d_hidden: gradient of h_t.
        d_cells: gradient of c_t, overwritten by that of c_(t-1).
        d_gates: gradients of the pre-activations, written.
    """
    gate_i, gate_f, gate_g, gate_o = gates
    d_gate_i, d_gate_f, d_gate_g, d_gate_o = d_gates
    has_before = len(before) > 0
    for w in range(len(d_cells)):
        i, f, g, o = gate_i[w], gate_f[w], gate_g[w], gate_o[w]
        s, d_h = tanh_cells[w], d_hidden[w]
        d_c = d_cells[w] + d_h * o * (_ONE - s * s)
        d_gate_i[w] = d_c * g * i * (_ONE - i)
        d_f = d_c * f * (_ONE - f)
        d_gate_f[w] = d_f * before[w] if has_before else np.float32(0.0)
        d_gate_g[w] = d_c * i * (_ONE - g * g)
        d_gate_o[w] = d_h * s * o * (_ONE - o)
        d_cells[w] = d_c * f


@compiled
def lstm_backward(
    gradient: F32, lstm: LstmStates, weights: LstmMatrices, starts: I64
) -> tuple[F32, LstmMatrices]:
    """Returns the gradients of the inputs, [N C, H], and of the weights.

    Kernels go by in blocks of steps, the last block first. Within a block only the product with U runs step
    by step; the gradients of the inputs and of both weights are one product per gate for the whole block.

    Args:
        gradient: gradient of the last hidden states, [K, C, W].
        lstm: what `lstm_forward` returned.
        weights: W and U.
        starts: as in `lstm_forward`.
    """
    configs, width = gradient.shape[1:]
    inputs, step_size, steps = lstm.inputs.shape[1], configs * width, max(1, BLOCK_ROWS // configs)
    input_matrices = weights.inputs.reshape(4, width, inputs)
    d_weights = LstmMatrices(aligned_zeros(4 * width, inputs), aligned_zeros(4 * width, width))
    d_inputs, states = aligned(len(lstm.inputs), inputs), aligned((steps + 1) * configs, width)
    d_states = _StateGradients(aligned(configs, width), aligned(configs, width))
    d_gates = aligned(4 * steps * configs, width).reshape(4, steps * configs, width)
    d_transposed, units = aligned_zeros(4 * inputs, width).reshape(4, inputs, width), all_units(inputs)
    for k in range(len(starts) - 1):
        d_states.hidden[:] = gradient[k]
        d_states.cells[:] = 0.0
        for end in range(starts[k + 1], starts[k], -steps):
            begin = max(starts[k], end - steps)
            # Rows of `states` are those of the node before the block, then the block's: h_(t-1) of step t is
            # one node earlier. The first node of a kernel has no node before it, so its rows are skipped.
            skipped = configs if begin == starts[k] else 0
            first = (begin - 1) * step_size + skipped * width
            _tanh_of(lstm.cells.reshape(-1)[first : end * step_size], states.reshape(-1)[skipped * width :])
            _through_steps(lstm, weights.states, begin, end, starts[k], states, d_states, d_gates)
            rows, row = (end - begin) * configs, begin * configs
            product(d_gates[0], 0, input_matrices[0], d_inputs, row, rows)
            for gate in range(1, 4):
                product_add(d_gates[gate], 0, input_matrices[gate], d_inputs, row, rows)
            output_gate = lstm.gates[3].reshape(-1)[first : (end - 1) * step_size]
            _multiply(states.reshape(-1)[skipped * width :], output_gate)
            _add_input_gradients((lstm.inputs, row), d_gates, rows, configs, units, d_transposed)
            for gate in range(4):
                part = slice(gate * width, (gate + 1) * width)
                add_gradient(d_gates[gate], skipped, states, skipped, rows - skipped, d_weights.states[part])
    for gate in range(4):
        d_weights.inputs[gate * width : (gate + 1) * width] = d_transposed[gate].T
    return d_inputs, d_weights


@compiled
def _add_input_gradients(inputs: Rows, d_gates: F32, rows: int, configs: int, units: I64, out: F32) -> None:
    """Adds x^T d of each gate to `out`, [4, H, W], over one block of rows.

    This is the transposed weight gradient: x comes from a ReLU and has inactive units to leave out, while the
    gradients of the gates have none, and `add_gathered_gradient` leaves out columns of its first argument.

    Args:
        inputs: x, [N C, H], and the first row of the block.
        d_gates: gradients of the pre-activations, [4, rows of a block, W].
        rows: number of rows.
        configs: C.
        units: buffer of `find_active_units`.
        out: sums that are added to.
    """
    x, first = inputs
    row = first
    while row < first + rows:
        stop = chunk_end(row, first + rows, configs)
        active = find_active_units(x, row, stop - row, configs, units)
        for gate in range(4):
            add_gathered_gradient((x, row), (d_gates[gate], row - first), stop - row, out[gate], active)
        row = stop


class _StateGradients(NamedTuple):
    """Gradients of h and c at one step of a kernel, [C, W] each."""

    hidden: F32
    cells: F32


@compiled
def _through_steps(
    lstm: LstmStates,
    state_matrices: F32,
    begin: int,
    end: int,
    kernel_begin: int,
    tanh_cells: F32,
    d_states: _StateGradients,
    d_gates: F32,
) -> None:
    """Backpropagates through the steps of a block, the last one first.

    Args:
        lstm: what `lstm_forward` returned.
        state_matrices: U, [4 W, W].
        begin: first node of the block.
        end: node after its last one.
        kernel_begin: first node of the kernel.
        tanh_cells: tanh c, whose first C rows belong to the node before the block.
        d_states: gradients after the block; overwritten by those before it.
        d_gates: gradients of the pre-activations of the block's steps, written.
    """
    d_hidden, d_cells = d_states.hidden, d_states.cells
    configs, width = d_hidden.shape
    size, matrices = configs * width, state_matrices.reshape(4, width, width)
    gates, cells, tanhs = lstm.gates.reshape(4, -1), lstm.cells.reshape(-1), tanh_cells.reshape(-1)
    flat_hidden, flat_cells, flat_gates = d_hidden.reshape(-1), d_cells.reshape(-1), d_gates.reshape(4, -1)
    for step in range(end - 1, begin - 1, -1):
        first, in_block = step * size, (step - begin) * size
        before = cells[first - size : first] if step > kernel_begin else cells[first:first]
        _activate_gradient(
            _slice_gates(gates, first, first + size),
            before,
            tanhs[in_block + size : in_block + 2 * size],
            flat_hidden,
            flat_cells,
            _slice_gates(flat_gates, in_block, in_block + size),
        )
        if step > kernel_begin:
            row = (step - begin) * configs
            product(d_gates[0], row, matrices[0], d_hidden, 0, configs)
            for gate in range(1, 4):
                product_add(d_gates[gate], row, matrices[gate], d_hidden, 0, configs)


class LstmKernel(FusedKernel):
    """One LSTM layer without biases, which returns the last hidden state of each kernel.

    Args:
        weights: matrices of the inputs [4 W, H] and of the hidden states [4 W, W].
        node_counts: nodes of each kernel.

    Shape: states [N, C, H] to [K, C, W].
    """

    weights: Sequence[Tensor]

    def __init__(self, weights: tuple[Tensor, Tensor], node_counts: Sequence[int]) -> None:
        self.weights = weights
        self._starts = np.cumsum([0, *node_counts])

    def forward(self, states: F32, keep: bool) -> F32:
        """See `steps.FusedKernel`."""
        self._matrices = LstmMatrices(*map(as_array, self.weights))
        rows = states.reshape(-1, states.shape[2])
        last, self._computed = lstm_forward(rows, self._matrices, self._starts, states.shape[1])
        return last

    def backward(self, gradient: F32) -> tuple[F32, LstmMatrices]:
        """See `steps.FusedKernel`."""
        d_rows, d_weights = lstm_backward(gradient, self._computed, self._matrices, self._starts)
        return d_rows.reshape(-1, gradient.shape[1], d_rows.shape[1]), d_weights


def lstm_steps(lstm: KernelLstm, node_counts: Sequence[int]) -> list[Step]:
    """Returns the steps of an LSTM with one layer and no biases."""
    layer = cast(LstmWeights, lstm.layers[0])
    return [LstmKernel((layer.gates_of_inputs, layer.gates_of_states), node_counts)]
