"""Measures one tile size of each of many kernels in one call, with the results of `Device.measure_nest`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from costbench.arrays import F64, I64, U64
from costbench.compiler.lowering.loop_nest import LoweredKernels
from costbench.compiler.lowering.lower import Nests
from costbench.compiler.lowering.packed import bound_bytes, unpacked
from costbench.compiler.lowering.work import Ragged, add_up, contraction_rows, row_of
from costbench.compiler.tile_footprint import new_tile, row_bytes
from costbench.compiler.tile_space import words_of
from costbench.execution.compiled import compiled
from costbench.hardware.codegen import (
    NUM_STRUCTURES,
    set_factors,
    structure_key,
    structure_of,
)
from costbench.hardware.device import FASTEST, Device, Measurement, measurement_of, run_priced
from costbench.hardware.machine import FAILURE_FLOOR, SCRATCHPAD_BYTES, machine_numbers
from costbench.hardware.matrix_unit import MATRIX_UNIT, pack_contraction
from costbench.hardware.simulator import NUM_PARTS, PreparedKernel, price
from costbench.hardware.vector_work import VECTOR_WORK
from costbench.hashing import mix
from costbench.rng import stream_words

_BITS = np.uint64(64)


class _Inputs(NamedTuple):
    """Inputs of the measured times besides loop nests and tile sizes.

    Attributes:
        subjects: `WorkTable.subjects` of the vector work.
        amounts: `WorkTable.amounts` of the vector work.
        contractions: see `pack_contraction`.
        structures: [m], `structure_key` of each kernel.
        starts: [m], keys of the kernels' noise.
        machine: see `machine_numbers`.
        deviations: standard deviations of the generated-code factors: compute, transfers.
    """

    subjects: I64
    amounts: F64
    contractions: Ragged
    structures: U64
    starts: U64
    machine: F64
    deviations: tuple[float, float]


def measure_batch(
    device: Device, lowered: LoweredKernels, chosen: I64, extents: I64, fingerprints: Sequence[str]
) -> Measurement:
    """Measures one tile size of each of m of the lowered kernels of a computation.

    Args:
        device: the measuring device.
        lowered: the kernels.
        chosen: numbers of the measured kernels, [m].
        extents: extents of their loops, [m, most_loops].
        fingerprints: fingerprints of the m kernels.

    Raises:
        UnsupportedKernelError: if a kernel holds an operation that the machine cannot run.
    """
    target = device.target
    table = lowered.tables.table(VECTOR_WORK)
    table.complete(lowered.kernels.instructions)
    inputs = _Inputs(
        table.subjects,
        table.amounts,
        contraction_rows(lowered.spaces, MATRIX_UNIT, pack_contraction),
        structure_keys(lowered, target.name)[chosen],
        stream_words(device.seed, "device", target.name, ends=fingerprints),
        machine_numbers(target),
        (target.timing.codegen_compute_sd, target.timing.codegen_transfer_sd),
    )
    timed = np.empty((2, len(chosen)))
    wrong = _run_each(lowered.nests, chosen, extents, inputs, timed)
    if wrong >= 0:
        raise FloatingPointError(
            f"{lowered.module.name}: the machine priced a kernel at {timed[0, wrong]} ns"
        )
    return measurement_of(timed)


def structure_keys(lowered: LoweredKernels, chip: str) -> U64:
    """Returns `structure_key` of every kernel, [k]."""
    kernels, body = lowered.kernels, lowered.module.computations[lowered.computation]
    opcodes = np.array(body.opcodes, dtype=np.int64)
    mixes = _operation_mixes(kernels.instructions_offsets, opcodes[kernels.instructions])
    _, places, inverse = np.unique(mixes, return_index=True, return_inverse=True)
    keys = []
    for place in places.tolist():
        start, stop = kernels.instructions_offsets[place : place + 2]
        keys.append(structure_key(tuple(opcodes[kernels.instructions[start:stop]].tolist()), chip))
    result: U64 = np.array(keys, dtype=np.uint64)[inverse.reshape(-1)]
    return result


@compiled
def _operation_mixes(offsets: I64, opcodes: I64) -> U64:
    """Returns hashes [k], equal for kernels of equal `structure_key`, else different except by chance."""
    counts = np.zeros(opcodes.max() + 1, dtype=np.int64)
    result = np.zeros(len(offsets) - 1, dtype=np.uint64)
    for k in range(len(result)):
        for i in range(offsets[k], offsets[k + 1]):
            counts[opcodes[i]] += 1
        for i in range(offsets[k], offsets[k + 1]):
            opcode, bits = opcodes[i], 0
            while counts[opcode] >> bits:
                bits += 1
            if bits:
                result[k] += mix(np.uint64(opcode) * _BITS + np.uint64(bits))
            counts[opcode] = 0
    return result


@compiled
def _run_each(nests: Nests, chosen: I64, extents: I64, inputs: _Inputs, timed: F64) -> int:
    """Fills in [2, m] times of the fastest run and of all runs; returns the first kernel whose price is no
    valid time, or -1.
    """
    machine = inputs.machine
    limit = machine[FAILURE_FLOOR] * machine[SCRATCHPAD_BYTES]
    columns, factors = np.empty((NUM_PARTS + 2, 1)), np.ones((2, NUM_STRUCTURES))
    is_regular = inputs.deviations[0] == 0.0 and inputs.deviations[1] == 0.0
    for i in range(len(chosen)):
        words = words_of(nests, chosen[i])
        nest = unpacked(words)
        one = np.empty((1, len(nest.loops)), dtype=np.int64)
        for loop in range(len(nest.loops)):
            one[0, loop] = extents[i, loop]
        amounts = np.zeros((2, len(nest.boxes) - 1, inputs.amounts.shape[2]))
        add_up(nest, inputs.subjects, inputs.amounts, amounts)
        structure = structure_of(nest, one[0])
        factors[:, structure] = 1.0
        if len(nest.loops) and not is_regular:
            set_factors(factors, structure, inputs.structures[i], inputs.deviations)
        contraction = row_of(inputs.contractions, nests.spaces[chosen[i]])
        price(PreparedKernel(words, contraction, amounts, factors, machine), one, columns)
        needed = np.zeros(1 if len(nest.loops) and bound_bytes(words) > limit else 0)
        if len(needed):
            needed[0] = row_bytes(nest, one[0], new_tile(nest))
        wrong = run_priced(columns, words, one, needed, inputs.starts[i], machine)
        timed[0, i], timed[1, i] = columns[FASTEST, 0], columns[FASTEST + 1, 0]
        if wrong >= 0:
            return i
    return -1
