"""What a program's instructions and accesses cost on a processor, by its description.

Instructions become operations on native registers. A vector that is wider than the processor's becomes
several operations; a fused multiply-add becomes two where there is none; values that do not fit into the
vector registers are stored and loaded again. Costs that a description does not list are made of those it
does: a gather is a load per lane, a bulk copy stores and loads native vectors, a call takes the time of a
mispredicted branch. Where a load finds its line follows from hit rates of caches, and these from reuse
distances (crop2024, section 3.3.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr

from costbench.arrays import F64, I64, Bool
from costbench_schedules.devices.processor import OPTIONAL, RESOURCES, CacheLevel, Memory, Processor
from costbench_schedules.llvm.features import StaticFeatures
from costbench_schedules.llvm.operations import KINDS

RESOURCE_NAMES = ("integer", "float", "shuffle", "load", "store")
_LANE_BITS = 20
_READS = np.array([kind in ("load", "masked_load", "gather", "copy_bytes") for kind in KINDS])
_BULK = np.array([kind in ("set_bytes", "copy_bytes") for kind in KINDS])


@dataclass(frozen=True, eq=False)
class MachineCode:
    """Costs of each instruction.

    Attributes:
        slots: number of operations that enter the pipeline, int64 [n].
        latency: cycles until the result can be used, of loads from the first cache, float64 [n].
        busy: cycles that each resource is occupied, float64 [n, resources].
        reads: whether the result comes from memory, bool [n].
    """

    slots: I64
    latency: F64
    busy: F64
    reads: Bool


class InstructionCosts:
    """What instructions cost on a processor; each kind and shape is worked out once.

    Args:
        processor: processor that they run on.
    """

    def __init__(self, processor: Processor) -> None:
        self.processor = processor
        self._rows: dict[int, tuple[int, float, list[float]]] = {}

    def machine_code(self, static: StaticFeatures, lengths: F64) -> MachineCode:
        """Returns the costs of a program's instructions.

        Args:
            static: static features of the program.
            lengths: bytes of each bulk access, [n].
        """
        packed = (static.kinds << _LANE_BITS | static.shapes[:, 0]) << _LANE_BITS | static.shapes[:, 1]
        unique, inverse = np.unique(packed, return_inverse=True)
        rows = [self._row(code) for code in unique.tolist()]
        slots = np.array([row[0] for row in rows], dtype=np.int64)[inverse]
        latency = np.array([row[1] for row in rows])[inverse]
        busy = np.array([row[2] for row in rows])[inverse]
        bulk = np.flatnonzero(_BULK[static.kinds])
        vectors = np.ceil(np.maximum(lengths[bulk], 1) / (self.processor.core.vector_bits / 8))
        slots[bulk] = (vectors * slots[bulk]).astype(np.int64)
        busy[bulk] *= vectors[:, None]
        return MachineCode(slots, latency, busy, _READS[static.kinds])

    def _row(self, packed: int) -> tuple[int, float, list[float]]:
        if packed not in self._rows:
            mask = (1 << _LANE_BITS) - 1
            kind, lanes, bits = packed >> 2 * _LANE_BITS, packed >> _LANE_BITS & mask, packed & mask
            self._rows[packed] = _cost(KINDS[kind], lanes, bits, self.processor)
        return self._rows[packed]


def _cost(kind: str, lanes: int, bits: int, processor: Processor) -> tuple[int, float, list[float]]:
    """Returns operations, latency and occupation of one instruction; of a bulk access, per native vector."""
    resources = RESOURCES | OPTIONAL
    core, busy = processor.core, dict.fromkeys(RESOURCE_NAMES, 0.0)
    width = lanes * bits
    registers = max(1, -(-width // core.vector_bits))
    part = max(1, min(width, core.vector_bits))

    def occupy(name: str, times: int, at: int) -> float:
        cost = processor.operations[name]
        busy[resources[name]] += times * cost.inverse_at(at)
        return cost.latency

    if kind == "free":
        return 0, 0.0, list(busy.values())
    if kind == "call":
        latency = processor.core.mispredict
        return 1 + int(latency), latency, list(busy.values())
    if kind == "multiply_add" and not core.fused:
        latency = occupy("multiply", registers, part) + occupy("add", registers, part)
        return 2 * registers, latency, list(busy.values())
    if kind in OPTIONAL and kind not in processor.operations:
        latency = occupy("load" if kind == "gather" else "store", lanes, bits)
        latency += occupy("shuffle", lanes, part)
        return 2 * lanes, latency, list(busy.values())
    if kind in ("set_bytes", "copy_bytes"):
        latency = occupy("store", 1, core.vector_bits)
        if kind == "copy_bytes":
            latency += occupy("load", 1, core.vector_bits)
        return 1 + (kind == "copy_bytes"), latency, list(busy.values())
    name = {"masked_load": "load", "masked_store": "store"}.get(kind, kind)
    latency = occupy(name, registers, part)
    return registers, latency, list(busy.values())


def hit_probability(distances: F64, level: CacheLevel, sharers: int = 1) -> F64:
    """Returns the probability that a line is still in a cache, equation 4.

    P(h | D) = sum over a < A of (D over a) (A/B)^a ((B-A)/B)^(D-a): of D other lines, each of which falls
    into the line's set with probability A/B, fewer than A did.

    Args:
        distances: reuse distances D in lines; negative for first accesses, which miss.
        level: cache with A lines to a set and B in all.
        sharers: number of threads among which a shared cache is divided evenly.
    """
    lines = level.num_lines / (sharers if level.shared else 1)
    ways = min(level.associativity, lines)
    known = np.maximum(distances, 0.0)
    if ways >= lines:
        probability = (known < lines).astype(np.float64)
    else:
        # Binned distances are no integers; a binomial of the next smaller one is what the bin stands for.
        probability = np.asarray(bdtr(ways - 1, known.astype(np.int64), ways / lines), dtype=np.float64)
        probability[known < ways] = 1.0
    return np.where(distances < 0, 0.0, probability)


def level_shares(distances: F64, memory: Memory, sharers: int = 1) -> F64:
    """Returns where an access at each reuse distance finds its line.

    Equation 6 weighs a level by its own hit rate and the miss rates of those before it.

    Args:
        distances: reuse distances in lines, negative for first accesses, [n].
        memory: memory hierarchy.
        sharers: number of threads that share the last caches.

    Returns:
        Probabilities [n, levels + 1] of each cache and of main memory; rows sum to 1.
    """
    shares, left = [], np.ones(len(distances))
    for level in memory.caches:
        rate = hit_probability(distances, level, sharers)
        shares.append(left * rate)
        left = left * (1.0 - rate)
    return np.column_stack([*shares, left])


def average_latency(shares: F64, memory: Memory) -> F64:
    """Returns the mean cycles of loads that find their lines by `shares` [..., levels + 1], equation 6."""
    latencies = np.array([*(level.latency for level in memory.caches), memory.ram_latency])
    return np.asarray(shares @ latencies)
