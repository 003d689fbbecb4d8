"""What is left of the analytical model without its pipeline: a roofline, throughputs, instruction counts.

They read the same features and descriptions, so that a comparison says what the pipeline is worth.
"""

from __future__ import annotations

import numpy as np

from costbench.arrays import F64
from costbench_schedules.crop.costs import InstructionCosts, level_shares
from costbench_schedules.devices.processor import Processor
from costbench_schedules.llvm.features import BIN_DISTANCES, ProgramFeatures
from costbench_schedules.llvm.operations import KINDS

_FLOPS = np.array([{"multiply_add": 2, "add": 1, "multiply": 1, "divide": 1}.get(kind, 0) for kind in KINDS])
_FLOAT_BITS = 32


def executed_lanes(features: ProgramFeatures, threads: int = 1) -> F64:
    """Returns how many lanes of each kind of operation are executed, float64 [len(KINDS)]."""
    static = features.static
    executions = _executions(features, threads)
    lanes = executions * static.shapes[:, 0]
    return np.bincount(static.kinds, lanes, len(KINDS)).astype(np.float64)


def instruction_count(features: ProgramFeatures, threads: int = 1) -> float:
    """Returns the number of executed instructions of LLVM IR that cost anything."""
    return float(_executions(features, threads)[features.static.kinds > 0].sum())


def roofline_ns(features: ProgramFeatures, processor: Processor) -> float:
    """Returns the time of the slowest of arithmetic and the ways of lines, in nanoseconds, on one thread.

    max(operations on floating-point numbers / peak, lines from beyond each cache * cycles of a line): the
    roofline model with one roof for each level of memory (Williams et al., 2009).
    """
    core, memory = processor.core, processor.memory
    static = features.static
    flops = _executions(features, 1) * static.shapes[:, 0] * _FLOPS[static.kinds] * (static.shapes[:, 3] > 0)
    lanes = core.vector_bits // _FLOAT_BITS
    peak = 2.0 * lanes / processor.operations["multiply_add"].inverse_at(core.vector_bits)
    times = [float(flops.sum()) / peak]
    if len(features.profile):
        samples = features.profile[:, 2].astype(np.float64)
        shares = level_shares(BIN_DISTANCES[features.profile[:, 1]], memory)
        lines = features.touched * (samples / samples.sum()) @ shares
        cycles = [level.line_cycles for level in memory.caches[1:]] + [memory.ram_line_cycles]
        times += (np.cumsum(lines[:0:-1])[::-1] * np.array(cycles)).tolist()
    return max(times) / core.ghz


def throughput_ns(features: ProgramFeatures, processor: Processor) -> float:
    """Returns the time if every block was limited by its busiest resource alone, in nanoseconds.

    Sum over blocks of executions times the largest of its operations over the pipeline's width and the cycles
    that each resource is occupied, on one thread: no dependences, no memory beyond the first cache.
    """
    static = features.static
    code = InstructionCosts(processor).machine_code(static, static.shapes[:, 2].astype(np.float64))
    num_blocks = len(static.blocks) - 1
    block_of = np.repeat(np.arange(num_blocks), np.diff(static.blocks))
    columns = [code.slots / processor.core.width, *code.busy.T]
    cycles = np.max([np.bincount(block_of, column, num_blocks) for column in columns], axis=0)
    return float(cycles @ features.block_counts(1)) / processor.core.ghz


def _executions(features: ProgramFeatures, threads: int) -> F64:
    """Returns the effective executions of each instruction."""
    counts = features.block_counts(threads).astype(np.float64)
    return np.repeat(counts, np.diff(features.static.blocks))
