"""Packs the parameters of a chip into one array of numbers for compiled code."""

from __future__ import annotations

from dataclasses import astuple, fields
from functools import lru_cache
from typing import get_args, get_type_hints

import numpy as np

from costbench.arrays import F64
from costbench.target import Formulas, Target, Timing

# Indices of the numbers in the array: the fields of `Timing` in order, some of `Architecture`, then the
# fields of `Formulas` in order.
(
    LAUNCH_NS, ITERATION_NS, TRANSFER_NS, READ_GB_PER_S, WRITE_GB_PER_S, CHUNK_NS, DESCRIPTOR_NS,
    BANK_NS, OVERLAP_EXPONENT, WEIGHT_LOAD_CYCLES, CONVOLUTION_DRAIN_NS, DOT_DRAIN_NS,
    ACCUMULATE_CYCLES, VECTOR_CYCLES, UNROLL_REGISTERS, TRANSCENDENTAL_CYCLES, RANDOM_CYCLES,
    CROSS_LANE_NS, CROSS_SUBLANE_NS, ROW_MOVE_CYCLES, PACKED_MOVE_FACTOR, ROW_ADDRESS_NS,
    CODEGEN_COMPUTE_SD, CODEGEN_TRANSFER_SD, NOISE_SD, NOISE_SHORT_NS, FAILURE_FLOOR, FAILURE_RATE,
    CYCLE_NS, NUM_MXUS, MXU_SIZE, SCRATCHPAD_BYTES, OVERLAP, CHUNKS, EDGES,
) = range(len(fields(Timing)) + 4 + len(fields(Formulas)))  # fmt: skip
CHOICES: dict[str, tuple[str, ...]] = {
    name: get_args(choices) for name, choices in get_type_hints(Formulas).items()
}
"""Field of `Formulas` -> its choices; compiled code reads the number of one."""
(OVERLAP_MAXIMUM, OVERLAP_SHARE), (CHUNKS_ROWS, CHUNKS_BURSTS), (EDGES_FULL, EDGES_ROWS) = (
    (CHOICES["overlap"].index("maximum"), CHOICES["overlap"].index("share")),
    (CHOICES["chunks"].index("rows"), CHOICES["chunks"].index("bursts")),
    (CHOICES["edges"].index("full"), CHOICES["edges"].index("rows")),
)


@lru_cache(maxsize=64)
def machine_numbers(target: Target) -> F64:
    """Returns the timing, the figures of the architecture that pricing needs, and numbers of the formulas.

    The array is cached and must not be changed.
    """
    chip = target.architecture
    formulas = [choices.index(getattr(target.formulas, name)) for name, choices in CHOICES.items()]
    values = (
        *astuple(target.timing),
        *(chip.cycle_ns, chip.num_mxus, chip.mxu_size, chip.scratchpad_bytes),
        *formulas,
    )
    return np.array(values, dtype=np.float64)
