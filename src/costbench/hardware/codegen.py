"""Simulates irregular efficiency of generated code: a random but fixed factor per structure of inner loops.

Two kernels with the same mix of operations and the same innermost tile extents get the same inner loops,
hence the same inefficiency. The factor is log-normal and keyed on exactly that, never on a kernel's identity.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from functools import lru_cache
from typing import Any

import numpy as np

from costbench.arrays import F64, I64
from costbench.compiler.lowering.loop_nest import LoopNest
from costbench.compiler.lowering.packed import PackedNest
from costbench.execution.compiled import compiled, compiled_step
from costbench.hardware.normal import normal_quantile
from costbench.hashing import GOLDEN_GAMMA, mix
from costbench.target import Target

_11, _32 = np.uint64(11), np.uint64(32)
_LOW = np.uint64(2**32 - 1)
_UNROLL_LIMIT = 8
NUM_STRUCTURES = (_UNROLL_LIMIT + 1) ** 2
_REGULAR = np.ones((2, NUM_STRUCTURES))
COMPUTE, TRANSFER = range(2)
"""Rows of a table of factors."""


@lru_cache(maxsize=1 << 16)
def structure_key(opcodes: tuple[int, ...], chip: str) -> int:
    """Returns a 64-bit key of a kernel's mix of operations: opcodes with counts rounded to powers of two."""
    counts = sorted(Counter(opcodes).items())
    text = chip + "".join(f",{opcode}:{count.bit_length()}" for opcode, count in counts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def codegen_factors(nest: LoopNest, target: Target) -> F64:
    """Returns factors of compute and of transfers for every structure of inner loops, [2, num_structures].

    exp(sd * z) with z standard normal per (operation mix, two innermost output extents up to 8).
    """
    deviations = (target.timing.codegen_compute_sd, target.timing.codegen_transfer_sd)
    # A kernel without loops is one fixed routine.
    if not any(deviations) or not nest.is_tiled:
        return _REGULAR
    opcodes = nest.space.body.opcodes
    operations = tuple(sorted([opcodes[position] for position in nest.kernel.instructions]))
    return _factors(operations, target.name, deviations)


@lru_cache(maxsize=4096)
def _factors(opcodes: tuple[int, ...], chip: str, deviations: tuple[float, float]) -> F64:
    return _factor_table(np.uint64(structure_key(opcodes, chip)), *deviations)


@compiled
def _factor_table(key: np.uint64, compute_sd: float, transfer_sd: float) -> F64:
    table = np.empty((2, NUM_STRUCTURES))
    for structure in range(NUM_STRUCTURES):
        set_factors(table, structure, key, (compute_sd, transfer_sd))
    return table


@compiled
def set_factors(table: F64, structure: int, key: np.uint64, deviations: tuple[float, float]) -> None:
    """Fills in one column of a table of factors, for a `structure_key`."""
    compute, transfer = halves(mix((np.uint64(structure) * GOLDEN_GAMMA) ^ key))
    table[COMPUTE, structure] = np.exp(deviations[0] * normal_quantile(compute))
    table[TRANSFER, structure] = np.exp(deviations[1] * normal_quantile(transfer))


@compiled_step
def structure_of(nest: PackedNest, extents: I64) -> int:
    """Returns the number of the structure that a tile size [num_loops] gives the inner loops."""
    last = nest.num_output_loops - 1
    if last < 0:
        return 0
    outer = min(extents[max(0, last - 1)], _UNROLL_LIMIT)
    return int(outer * (_UNROLL_LIMIT + 1) + min(extents[last], _UNROLL_LIMIT))


@compiled
def uniform(key: Any) -> Any:
    """Returns numbers in (0, 1) from mixed keys, 53 bits each."""
    return ((key >> _11) * 1.0 + 0.5) / 2.0**53


@compiled
def halves(key: Any) -> Any:
    """Returns two independent numbers in (0, 1) from each mixed key, 32 bits each."""
    return ((key >> _32) * 1.0 + 0.5) / 2.0**32, ((key & _LOW) * 1.0 + 0.5) / 2.0**32
