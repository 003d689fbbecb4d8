"""Simulation of a pipeline: cycles of blocks and superblocks by list scheduling (crop2024, section 3.4).

Operations enter in program order, at most `width` a cycle and `window` in flight. Each starts when its
operands are there and its resources are free, in any order, and leaves in program order. Crop simulates
blocks with Simian, a simulator of discrete events, one vertex after another; this one knows a window, so that
iterations of a loop overlap as they do in a processor.

A block costs what it adds after its predecessor: the time until it has left minus the time until the
predecessor has. A block that follows itself is repeated until its window is full, and costs what a further
repetition adds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from costbench.execution.compiled import compiled

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
_REPEATED = 2
"""Windows that a repeated block fills before it counts as steady, and again while it is measured."""
_MOST_OPERATIONS = 6000
"""Instructions after which a repetition is steady enough in any case."""
_HORIZON = 1 << 13
"""Cycles for which occupation is kept, more than anything in flight takes."""


class Code(NamedTuple):
    """What is simulated; see `StaticFeatures` and `MachineCode`. `busy` and `latency` hold memory, too."""

    blocks: IntArray
    starts: IntArray
    operands: IntArray
    sources: IntArray
    results: IntArray
    keys: IntArray
    slots: IntArray
    latency: FloatArray
    busy: FloatArray


class _State(NamedTuple):
    """What is in flight.

    Attributes:
        available: cycle at which each value is there.
        defined: how often each value has been computed.
        stored: cycle at which what was stored under each key can be loaded.
        version: of the key's base when that was.
        used: of each resource and cycle, the share that is taken; cycles modulo `_HORIZON`.
        tag: which cycle an entry of `used` is about.
        low: of each resource, the first cycle that may have room.
        ring: cycle at which each of the last `window` operations left.
        clock: cycle of the last entry, of the last exit, and operations entered.
    """

    available: FloatArray
    defined: IntArray
    stored: FloatArray
    version: IntArray
    used: FloatArray
    tag: IntArray
    low: IntArray
    ring: FloatArray
    clock: FloatArray


@compiled
def edge_cycles(code: Code, edges: IntArray, wanted: IntArray, sizes: IntArray) -> FloatArray:
    """Returns the cycles that the target of each edge adds after its source [e].

    Args:
        code: the program.
        edges: [e, 2] source block, or -1, and target block.
        wanted: [e] 0 to leave an edge out (0 cycles), 1 for the target after its source, 2 for the target
        alone. sizes: values, keys, width and window.
    """
    found = np.zeros(len(edges))
    state = _State(
        np.zeros(sizes[0] + 1),
        np.zeros(sizes[0] + 1, dtype=np.int64),
        np.zeros(sizes[1] + 1),
        np.full(sizes[1] + 1, -1, dtype=np.int64),
        np.zeros((code.busy.shape[1], _HORIZON)),
        np.full((code.busy.shape[1], _HORIZON), -1, dtype=np.int64),
        np.zeros(code.busy.shape[1], dtype=np.int64),
        np.zeros(sizes[3]),
        np.zeros(3),
    )
    alone = np.full(len(code.blocks) - 1, -1.0)
    for edge in range(len(edges)):
        if wanted[edge] == 0:
            continue
        source, target = edges[edge]
        length = code.blocks[target + 1] - code.blocks[target]
        if source == target and wanted[edge] == 1:
            entered = 0
            for place in range(code.blocks[target], code.blocks[target + 1]):
                entered += code.slots[place]
            half = max(2, -(-_REPEATED * sizes[3] // max(1, entered)))
            half = max(2, min(half, _MOST_OPERATIONS // (2 * max(1, length))))
            times = _simulated(code, (-1, target), half, 2 * half, sizes, state)
            found[edge] = (times[1] - times[0]) / half
        elif source < 0 or wanted[edge] == 2:
            if alone[target] < 0:
                alone[target] = _simulated(code, (-1, target), 1, 1, sizes, state)[1]
            found[edge] = alone[target]
        else:
            times = _simulated(code, (source, target), 1, 1, sizes, state)
            found[edge] = times[1] - times[0]
    return found


@compiled
def _simulated(
    code: Code, pair: tuple[int, int], middle: int, repetitions: int, sizes: IntArray, state: _State
) -> tuple[float, float]:
    """Returns when the part before, and when all has left: `pair[0]`, then `pair[1]` repeatedly."""
    clock = state.clock
    # Time goes on from one simulation to the next, so that what earlier ones left lies in the past.
    begin = np.ceil(clock[1]) + 1.0
    clock[0], clock[1], clock[2] = begin, begin, 0.0
    state.low[:] = int(begin)
    state.ring[:] = 0.0
    step, window = 1.0 / sizes[2], sizes[3]
    before = -1
    first = begin
    if pair[0] >= 0:
        _block(code, pair[0], -1, step, window, state)
        first, before = clock[1], pair[0]
    for number in range(repetitions):
        _block(code, pair[1], before, step, window, state)
        before = pair[1]
        if pair[0] < 0 and number + 1 == middle:
            first = clock[1]
    return first - begin, clock[1] - begin


@compiled
def _block(code: Code, block: int, before: int, step: float, window: int, state: _State) -> None:
    available, defined, stored, version, _, _, _, ring, clock = state
    resources = code.busy.shape[1]
    for place in range(code.blocks[block], code.blocks[block + 1]):
        ready = 0.0
        for at in range(code.starts[place], code.starts[place + 1]):
            source = code.sources[at]
            if source == -1 or source == before:
                ready = max(ready, available[code.operands[at]])
        key, base = code.keys[place, 0], code.keys[place, 1]
        if key >= 0 and stored[key] > ready and version[key] == defined[base]:
            ready = stored[key]
        count = code.slots[place]
        if count:
            # The window is full until the operation `window` places before has left.
            oldest = int(clock[2] + count - 1) % window
            clock[0] = max(clock[0] + step * count, ring[oldest])
            ready = max(ready, clock[0])
        start, end = ready, ready
        for resource in range(resources):
            amount = code.busy[place, resource]
            if amount > 0.0:
                began, done = _occupy(state, resource, ready, clock[0], amount)
                start, end = max(start, began), max(end, done)
        result_at = start + code.latency[place]
        if count:
            clock[1] = max(clock[1] + step * count, result_at, end)
            for _ in range(min(count, window)):
                ring[int(clock[2]) % window] = clock[1]
                clock[2] += 1.0
        result = code.results[place]
        if result >= 0:
            available[result] = result_at
            defined[result] += 1
        if key >= 0 and code.keys[place, 2]:
            stored[key] = result_at
            version[key] = defined[base]


@compiled
def _occupy(state: _State, resource: int, ready: float, entry: float, amount: float) -> tuple[float, float]:
    """Takes `amount` cycles of a resource from `ready` on; returns when the first and the last are taken."""
    used, tag, low = state.used[resource], state.tag[resource], state.low
    cycle = max(int(ready + 1e-9), low[resource])
    horizon = len(used)
    began = -1
    while True:
        place = cycle % horizon
        if tag[place] != cycle:
            tag[place] = cycle
            used[place] = 0.0
        free = 1.0 - used[place]
        if free > 1e-9:
            if began < 0:
                began = cycle
            taken = min(free, amount)
            used[place] += taken
            amount -= taken
            if amount <= 1e-9:
                break
        cycle += 1
    # What lies before the cycle of entry cannot be taken any more.
    start = max(low[resource], int(entry))
    while tag[start % horizon] == start and used[start % horizon] > 1.0 - 1e-9:
        start += 1
    low[resource] = start
    # Mean latencies are no whole cycles: what is ready within a cycle starts there and then.
    return max(ready, float(began)), max(ready, float(cycle))
