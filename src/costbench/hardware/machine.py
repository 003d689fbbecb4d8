"""Packs the parameters of a chip into one array of numbers for compiled code."""

from __future__ import annotations

from dataclasses import astuple, fields
from functools import lru_cache

import numpy as np

from costbench.arrays import F64
from costbench.target import Target, Timing

# Indices of the numbers in the array: the fields of `Timing` in order, then some of `Architecture`.
(
    LAUNCH_NS, ITERATION_NS, TRANSFER_NS, READ_GB_PER_S, WRITE_GB_PER_S, CHUNK_NS, DESCRIPTOR_NS,
    BANK_NS, OVERLAP_EXPONENT, WEIGHT_LOAD_CYCLES, CONVOLUTION_DRAIN_NS, DOT_DRAIN_NS,
    ACCUMULATE_CYCLES, VECTOR_CYCLES, UNROLL_REGISTERS, TRANSCENDENTAL_CYCLES, RANDOM_CYCLES,
    CROSS_LANE_NS, CROSS_SUBLANE_NS, ROW_MOVE_CYCLES, PACKED_MOVE_FACTOR, ROW_ADDRESS_NS,
    CODEGEN_COMPUTE_SD, CODEGEN_TRANSFER_SD, NOISE_SD, NOISE_SHORT_NS, FAILURE_FLOOR, FAILURE_RATE,
    CYCLE_NS, NUM_MXUS, MXU_SIZE, SCRATCHPAD_BYTES,
) = range(len(fields(Timing)) + 4)  # fmt: skip


@lru_cache(maxsize=64)
def machine_numbers(target: Target) -> F64:
    """Returns the fields of `Timing` in order, then the figures of the architecture that pricing needs.

    The array is cached and must not be changed.
    """
    chip = target.architecture
    values = (*astuple(target.timing), chip.cycle_ns, chip.num_mxus, chip.mxu_size, chip.scratchpad_bytes)
    return np.array(values, dtype=np.float64)
