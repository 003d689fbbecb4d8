"""Describes this machine's processor: sizes from the system, times measured (crop2024, section 3.3)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from llvmlite import binding

from costbench.errors import DataError
from costbench.params import parse
from costbench_schedules.devices.host import CacheFacts, cache_facts, model_name
from costbench_schedules.devices.instrumented.engine import host_vector_bits
from costbench_schedules.devices.instrumented.microbenchmarks import (
    FORMS,
    Rounds,
    TimedLoop,
    accesses,
    chain,
    forwarding,
    gathers,
    linear_walk,
    pin_to_one_processor,
    pointer_chase,
    scatters,
    side_by_side,
    time_fastest,
)
from costbench_schedules.devices.processor import OPTIONAL, CacheLevel, Core, Memory, OperationCost, Processor

ASSUMED = {"width": 6, "window": 256, "mispredict": 15.0, "history": 32}
"""What neither the system says nor a microbenchmark here measures: a current core's order of magnitude."""
_LARGEST_BYTES = 128 << 20
_PLAUSIBLE_GHZ = (0.5, 7.0)
_CLOCK_LATENCY = {"integer": 1.0}


def describe(name: str = "", rounds: Rounds | None = None) -> Processor:
    """Returns the description of this processor, measured now, on one thread.

    Args:
        name: name of the processor; the one that the system says if empty.
        rounds: length and number of measurements.

    Raises:
        DataError: if the system does not describe its caches, or times are implausible, as they are on a
            machine that others use.
    """
    bits = host_vector_bits()
    caches = cache_facts()
    with pin_to_one_processor():
        times = time_fastest(_loops(bits, caches), rounds or Rounds())
    # An integer addition takes one cycle.
    ghz = _CLOCK_LATENCY["integer"] / times["integer latency"]
    low, high = _PLAUSIBLE_GHZ
    if not low <= ghz <= high:
        raise DataError(
            f"a frequency of {ghz:.2f} GHz", expected=f"{low:g} to {high:g}; measure on an idle machine"
        )
    cycles = {loop: time_ns * ghz for loop, time_ns in times.items()}
    core = _core(ghz, bits, binding.get_host_cpu_features())
    source = "measured by costbench describe-cpu; assumed: " + ", ".join(ASSUMED) + ", branch"
    memory = _memory(caches, cycles)
    try:
        operations = _operations(cycles, memory.caches[0].latency)
        return Processor(name or model_name(), source, os.cpu_count() or 1, core, memory, operations)
    except ValueError as error:
        raise DataError(f"implausible measurements: {error}", expected="an idle machine") from error


def _core(ghz: float, bits: int, features: Mapping[str, bool]) -> Core:
    """Returns the pipeline of a core; processors other than x86 do not have the feature `sse2`."""
    x86 = bool(features.get("sse2"))
    return Core(
        ghz=round(ghz, 3),
        vector_bits=bits,
        vector_registers=16 if x86 and bits < 512 else 32,
        fused=not x86 or bool(features.get("fma")),
        width=int(ASSUMED["width"]),
        window=int(ASSUMED["window"]),
        mispredict=ASSUMED["mispredict"],
        history=int(ASSUMED["history"]),
    )


def _loops(bits: int, caches: Sequence[CacheFacts]) -> dict[str, TimedLoop]:
    """Returns all loops by name: `KIND latency` and `KIND WIDTH`, and those through levels of memory."""
    loops: dict[str, TimedLoop] = {}
    for kind in FORMS:
        widths = _widths(kind, bits)
        loops[f"{kind} latency"] = chain(kind, widths[-1])
        loops |= {f"{kind} {width}": side_by_side(kind, width) for width in widths}
    for kind in ("load", "store"):
        loops |= {f"{kind} {width}": accesses(kind, width) for width in _widths(kind, bits)}
    loops["store latency"] = forwarding(bits)
    widths = _widths("gather", bits)
    loops["gather latency"] = gathers(widths[-1], chained=True)
    loops |= {f"gather {width}": gathers(width, chained=False) for width in widths}
    loops |= {f"scatter {width}": scatters(width) for width in widths}
    for level, size in enumerate(_walked_bytes(caches)):
        loops[f"level {level} latency"] = pointer_chase(size)
        if level:
            loops[f"level {level} line"] = linear_walk(size)
    return loops


def _widths(kind: str, bits: int) -> list[int]:
    """Returns the bits of operands that a kind of operation is timed for, ascending."""
    if kind.startswith("integer"):
        return [64]
    least = 128 if kind in ("shuffle", *OPTIONAL) else 32
    return [width for width in (32, 128, 256, 512) if least <= width <= bits]


def _operations(cycles: Mapping[str, float], nearest: float) -> dict[str, OperationCost]:
    """Returns the costs of operations; `nearest` is the latency of a load from the first cache."""
    costs = {"branch": OperationCost(1.0, {"64": 0.5})}
    for kind in (*FORMS, "load", "store", *OPTIONAL):
        names = [name for name in cycles if name.startswith(f"{kind} ")]
        named = {name.rpartition(" ")[2]: cycles[name] for name in names}
        latency = named.pop("latency", 0.0)
        if kind == "load":
            latency = nearest
        elif kind == "store":
            # From a store to its value loaded again, less the load.
            latency = max(0.0, latency - nearest)
        inverse = {width: round(value, 3) for width, value in named.items()}
        costs[kind] = OperationCost(round(latency, 2), inverse)
    return costs


def _walked_bytes(facts: Sequence[CacheFacts]) -> list[int]:
    """Returns how many bytes are walked through to time each cache, then main memory.

    That is half of a cache, of far ones no more than four times the one before: the operators that are
    predicted are that large. Main memory takes a walk of at least twice the last cache.
    """
    sizes = []
    for level, fact in enumerate(facts):
        nearer = facts[level - 1].kib * 4096 if level else _LARGEST_BYTES
        sizes.append(int(min(fact.kib * 512, nearer, _LARGEST_BYTES)))
    last = int(facts[-1].kib * 1024)
    return [*sizes, max(2 * last, min(4 * last, _LARGEST_BYTES))]


def _memory(facts: Sequence[CacheFacts], cycles: Mapping[str, float]) -> Memory:
    """Returns the hierarchy with latencies of random and line times of linear walks.

    The nearest cache is a core's own: whatever more hardware threads share, cores share.
    """
    caches, before = [], 0.0
    for level, fact in enumerate(facts):
        before = max(before, round(cycles[f"level {level} latency"], 2))
        line = round(cycles[f"level {level} line"], 2) if level else 0.0
        caches.append(CacheLevel(fact.kib, fact.associativity, before, line, fact.sharers > facts[0].sharers))
    far = f"level {len(facts)}"
    ram = max(before, round(cycles[f"{far} latency"], 2))
    return Memory(facts[0].line_bytes, tuple(caches), ram, round(cycles[f"{far} line"], 2))


def median_description(descriptions: Sequence[Processor]) -> Processor:
    """Returns the description with the median of each number, and how far the numbers differ in `spread`.

    Args:
        descriptions: descriptions of one processor, at least one.
    """
    spread: dict[str, float] = {}
    merged = _merged([as_mapping(description) | {"spread": {}} for description in descriptions], "", spread)
    assert isinstance(merged, dict)
    return parse(Processor, merged | {"spread": spread}, where="descriptions of one processor")


def _merged(values: Sequence[Any], path: str, spread: dict[str, float]) -> object:
    """Returns medians of numbers and the first of what is no number; adds to `spread` where they differ."""
    first = values[0]
    if isinstance(first, Mapping):
        parts = {key: f"{path}.{key}" if path else str(key) for key in first}
        return {key: _merged([value[key] for value in values], where, spread) for key, where in parts.items()}
    if isinstance(first, Sequence) and not isinstance(first, str):
        return [
            _merged([value[index] for value in values], f"{path}.{index}", spread)
            for index in range(len(first))
        ]
    if not isinstance(first, float) or len(set(values)) == 1:
        return first
    middle = round(median(values), 3)
    spread[path] = round((max(values) - min(values)) / max(middle, 1e-9), 3)
    return middle


def as_mapping(processor: Processor) -> dict[str, object]:
    """Returns a description as `costbench_schedules.devices.processor.load_processor` reads it."""
    mapping = asdict(processor)
    mapping["memory"]["caches"] = [asdict(level) for level in processor.memory.caches]
    return mapping
