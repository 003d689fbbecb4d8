"""Packs the parameters of a chip into one array of numbers for compiled code."""

from __future__ import annotations

from dataclasses import astuple, fields
from functools import lru_cache

import numpy as np

from costbench.arrays import F64
from costbench.target import Target, Timing

_NAMES = [field.name for field in fields(Timing)]
LAUNCH_NS = _NAMES.index("launch_ns")
ITERATION_NS = _NAMES.index("iteration_ns")
TRANSFER_NS = _NAMES.index("transfer_ns")
READ_GB_PER_S = _NAMES.index("read_gb_per_s")
WRITE_GB_PER_S = _NAMES.index("write_gb_per_s")
CHUNK_NS = _NAMES.index("chunk_ns")
DESCRIPTOR_NS = _NAMES.index("descriptor_ns")
BANK_NS = _NAMES.index("bank_ns")
OVERLAP_EXPONENT = _NAMES.index("overlap_exponent")
WEIGHT_LOAD_CYCLES = _NAMES.index("weight_load_cycles")
CONVOLUTION_DRAIN_NS = _NAMES.index("convolution_drain_ns")
DOT_DRAIN_NS = _NAMES.index("dot_drain_ns")
ACCUMULATE_CYCLES = _NAMES.index("accumulate_cycles")
VECTOR_CYCLES = _NAMES.index("vector_cycles")
UNROLL_REGISTERS = _NAMES.index("unroll_registers")
TRANSCENDENTAL_CYCLES = _NAMES.index("transcendental_cycles")
RANDOM_CYCLES = _NAMES.index("random_cycles")
CROSS_LANE_NS = _NAMES.index("cross_lane_ns")
CROSS_SUBLANE_NS = _NAMES.index("cross_sublane_ns")
ROW_MOVE_CYCLES = _NAMES.index("row_move_cycles")
PACKED_MOVE_FACTOR = _NAMES.index("packed_move_factor")
ROW_ADDRESS_NS = _NAMES.index("row_address_ns")
NOISE_SD = _NAMES.index("noise_sd")
NOISE_SHORT_NS = _NAMES.index("noise_short_ns")
FAILURE_FLOOR = _NAMES.index("failure_floor")
FAILURE_RATE = _NAMES.index("failure_rate")
CYCLE_NS, NUM_MXUS, MXU_SIZE, SCRATCHPAD_BYTES = range(len(_NAMES), len(_NAMES) + 4)


@lru_cache(maxsize=64)
def machine_numbers(target: Target) -> F64:
    """Returns the fields of `Timing` in order, then the figures of the architecture that pricing needs.

    The array is cached and must not be changed.
    """
    chip = target.architecture
    values = (*astuple(target.timing), chip.cycle_ns, chip.num_mxus, chip.mxu_size, chip.scratchpad_bytes)
    return np.array(values, dtype=np.float64)
