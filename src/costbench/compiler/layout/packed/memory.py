"""Estimates the peak main memory of a laid-out computation, padding included, on arrays.

The estimate approximates a buffer assignment: arguments and constants stay in memory all the time; an array
that a kernel writes lives until the last kernel that reads it, or to the end if the computation returns it or
passes it to a loop, a call or a tuple.
"""

from __future__ import annotations

import numpy as np

from costbench.arrays import I64
from costbench.compiler.kernel_arrays import KernelArrays
from costbench.compiler.layout.packed.facts import FLAGS, FREE, PADDED, PASSES_ON, STAYS, TAKES_OVER
from costbench.compiler.layout.packed.reads import Body
from costbench.execution.compiled import compiled


@compiled
def peak_bytes(b: Body, kernels: KernelArrays) -> int:
    """Returns the most bytes in memory at one time while the computation runs, callees not counted."""
    count, number = len(b.facts), len(kernels.outputs_offsets) - 1
    made, last = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    for kernel in range(number):
        for i in range(kernels.outputs_offsets[kernel], kernels.outputs_offsets[kernel + 1]):
            made[kernels.outputs[i]] = last[kernels.outputs[i]] = kernel
    for kernel in range(number):
        for i in range(kernels.inputs_offsets[kernel], kernels.inputs_offsets[kernel + 1]):
            _keep(b, made, last, kernels.inputs[i], kernel)
    _keep(b, made, last, b.root, number)
    staying = 0
    for position in range(count):
        if b.facts[position, FLAGS] & STAYS:
            staying += b.facts[position, PADDED]
        if b.facts[position, FLAGS] & TAKES_OVER:
            for i in range(b.operands_offsets[position], b.operands_offsets[position + 1]):
                _keep(b, made, last, b.operands[i], number)
    change = np.zeros(number + 2, dtype=np.int64)
    for position in range(count):
        if made[position] >= 0:
            change[made[position]] += b.facts[position, PADDED]
            change[last[position] + 1] -= b.facts[position, PADDED]
    return int(staying + change.cumsum().max())


@compiled
def _keep(b: Body, made: I64, last: I64, position: int, until: int) -> None:
    """Keeps the buffer that holds a value, if a kernel writes it, until a kernel has run."""
    source = _source(b, position, made)
    if made[source] >= 0:
        last[source] = max(last[source], until)


@compiled
def _source(b: Body, position: int, made: I64) -> int:
    """Returns the value whose buffer an instruction's result aliases."""
    while made[position] < 0:
        first = b.operands_offsets[position]
        shares = b.facts[position, FLAGS] & (PASSES_ON | FREE)
        if first == b.operands_offsets[position + 1] or not shares:
            break
        position = b.operands[first]
    return position
