"""Simulation of a pipeline: cycles of blocks and superblocks by list scheduling (crop2024, section 3.4).

Operations enter in program order, at most `width` a cycle and `window` in flight. Each starts when its
operands are there and its resources are free, in any order, and leaves in program order. Crop simulates
blocks with Simian, a simulator of discrete events, one vertex after another; this one knows a window, so that
iterations of a loop overlap as they do in a processor.

A block costs what it adds after the blocks before it: the time until it has left minus the time until its
predecessor has. In a loop these are the iterations before; elsewhere the predecessor, what that follows most
often, and so on, until they fill the window. crop2024 joins a block to one successor.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import F64, I64, Bool
from costbench.execution.compiled import compiled

_FILLED = 2
"""Windows of operations before the block whose cycles are counted."""
_MAX_BLOCKS = 512
"""Largest number of blocks before it."""
_HORIZON = 1 << 13
"""Cycles for which occupation is kept, more than anything in flight takes."""


class Code(NamedTuple):
    """What is simulated; see `StaticFeatures` and `MachineCode`. `busy` and `latency` hold memory, too."""

    blocks: I64
    starts: I64
    operands: I64
    sources: I64
    results: I64
    keys: I64
    slots: I64
    latency: F64
    busy: F64


class Sizes(NamedTuple):
    """Sizes of a program and of the pipeline that it runs in.

    Attributes:
        values: number of values.
        keys: number of keys of accesses.
        width: operations that enter and leave per cycle.
        window: operations in flight.
    """

    values: int
    keys: int
    width: int
    window: int


class _State(NamedTuple):
    """What is in flight.

    Attributes:
        available: cycle at which each value is there.
        defined: number of times that each value has been computed.
        stored: cycle at which what was stored under each key can be loaded.
        version: number of times that the key's base had been computed then.
        used: share of each resource and cycle that is taken; cycles modulo `_HORIZON`.
        tag: cycle that an entry of `used` is about.
        low: first cycle of each resource that may have room.
        ring: cycle at which each of the last `window` operations left.
        clock: cycle of the last entry, of the last exit, and number of operations that have entered.
    """

    available: F64
    defined: I64
    stored: F64
    version: I64
    used: F64
    tag: I64
    low: I64
    ring: F64
    clock: F64


@compiled
def edge_cycles(code: Code, edges: I64, wanted: I64, via: I64, sizes: Sizes) -> F64:
    """Returns the cycles that the target of each edge adds after its source [e].

    Args:
        code: machine code of the program.
        edges: source block, or -1, and target block, [e, 2].
        wanted: 0 to leave an edge out (0 cycles), 1 for the target after its source, 2 for it alone, [e].
        via: edge by which each block is entered most often, or -1, [b].
        sizes: sizes of program and pipeline.
    """
    cycles = np.zeros(len(edges))
    state = _State(
        np.zeros(sizes.values + 1),
        np.zeros(sizes.values + 1, dtype=np.int64),
        np.zeros(sizes.keys + 1),
        np.full(sizes.keys + 1, -1, dtype=np.int64),
        np.zeros((code.busy.shape[1], _HORIZON)),
        # No simulation begins at cycle 0, so that zero is no cycle's tag, and untouched pages cost nothing.
        np.zeros((code.busy.shape[1], _HORIZON), dtype=np.int64),
        np.zeros(code.busy.shape[1], dtype=np.int64),
        np.zeros(sizes.window),
        np.zeros(3),
    )
    operations = np.zeros(len(code.blocks) - 1, dtype=np.int64)
    for block in range(len(operations)):
        for instruction in range(code.blocks[block], code.blocks[block + 1]):
            operations[block] += code.slots[instruction]
    path = np.empty(_MAX_BLOCKS, dtype=np.int64)
    looped = np.zeros(len(edges), dtype=np.bool_)
    alone = np.full(len(operations), -1.0)
    for edge in range(len(edges)):
        source, target = edges[edge]
        if wanted[edge] == 0 or looped[edge]:
            continue
        if source < 0 or wanted[edge] == 2:
            if alone[target] < 0:
                alone[target] = _cycles_after(code, path[:0], target, sizes, state)
            cycles[edge] = alone[target]
            continue
        if via[target] == edge:
            start = _path_to(edges, via, operations, path, source, target, 1 << 40)
            if path[start] == target:
                _loop(code, path[start:], via, sizes, state, cycles, looped, wanted)
                continue
        start = _path_to(edges, via, operations, path, source, -1, _FILLED * sizes.window)
        cycles[edge] = _cycles_after(code, path[start:], target, sizes, state)
    return cycles


@compiled
def _path_to(
    edges: I64, via: I64, operations: I64, path: I64, last: int, first: int, max_operations: int
) -> int:
    """Fills in the blocks that lead to one, those entered from most often; returns where the path begins.

    Args:
        edges: source and target block, [e, 2].
        via: edge by which each block is entered most often, or -1, [b].
        operations: number of operations of each block, [b].
        path: array that receives the blocks, at its end.
        last: block that the path leads to.
        first: block at which the path may begin, or -1.
        max_operations: number of operations after which the path begins.
    """
    start, entered = len(path) - 1, operations[last]
    path[start] = last
    while path[start] != first and entered < max_operations and start > 0:
        edge = via[path[start]]
        if edge < 0 or edges[edge, 0] < 0:
            break
        start -= 1
        path[start] = edges[edge, 0]
        entered += operations[path[start]]
    return start


@compiled
def _begin(state: _State) -> None:
    """Empties the pipeline; time goes on, so that what earlier simulations left lies in the past."""
    begin = np.ceil(state.clock[1]) + 1.0
    state.clock[0], state.clock[1], state.clock[2] = begin, begin, 0.0
    state.low[:] = int(begin)
    state.ring[:] = 0.0


@compiled
def _loop(
    code: Code,
    loop: I64,
    via: I64,
    sizes: Sizes,
    state: _State,
    cycles: F64,
    looped: Bool,
    wanted: I64,
) -> None:
    """Adds the cycles of the blocks of a loop to their edges, means over iterations that follow each other.

    One simulation serves all its edges, for which block of a loop waits depends on where it was begun.
    """
    _begin(state)
    entered = 0
    for block in loop:
        for instruction in range(code.blocks[block], code.blocks[block + 1]):
            entered += code.slots[instruction]
    rounds = max(2, _FILLED * sizes.window // max(1, entered) + 1)
    before = loop[-1]
    for number in range(2 * rounds):
        for block in loop:
            first = state.clock[1]
            _block(code, block, before, sizes, state)
            before = block
            edge = via[block]
            if number >= rounds and wanted[edge] == 1:
                cycles[edge] += (state.clock[1] - first) / rounds
                looped[edge] = True


@compiled
def _cycles_after(code: Code, path: I64, target: int, sizes: Sizes, state: _State) -> float:
    """Returns the cycles that a block adds after a path."""
    _begin(state)
    before = -1
    for block in path:
        _block(code, block, before, sizes, state)
        before = block
    first = state.clock[1]
    _block(code, target, before, sizes, state)
    return float(state.clock[1] - first)


@compiled
def _block(code: Code, block: int, before: int, sizes: Sizes, state: _State) -> None:
    step, window = 1.0 / sizes.width, sizes.window
    available, defined, stored, version, _, _, _, ring, clock = state
    resources = code.busy.shape[1]
    for instruction in range(code.blocks[block], code.blocks[block + 1]):
        ready = 0.0
        for at in range(code.starts[instruction], code.starts[instruction + 1]):
            source = code.sources[at]
            if source == -1 or source == before:
                ready = max(ready, available[code.operands[at]])
        key, base = code.keys[instruction, 0], code.keys[instruction, 1]
        if key >= 0 and stored[key] > ready and version[key] == defined[base]:
            ready = stored[key]
        count = code.slots[instruction]
        if count:
            # The window is full until the operation that entered `window` operations before has left.
            oldest = int(clock[2] + count - 1) % window
            clock[0] = max(clock[0] + step * count, ring[oldest])
            ready = max(ready, clock[0])
        start, end = ready, ready
        for resource in range(resources):
            amount = code.busy[instruction, resource]
            if amount > 0.0:
                began, done = _occupy(state, resource, ready, clock[0], amount)
                start, end = max(start, began), max(end, done)
        result_at = start + code.latency[instruction]
        if count:
            clock[1] = max(clock[1] + step * count, result_at, end)
            for _ in range(min(count, window)):
                ring[int(clock[2]) % window] = clock[1]
                clock[2] += 1.0
        result = code.results[instruction]
        if result >= 0:
            available[result] = result_at
            defined[result] += 1
        if key >= 0 and code.keys[instruction, 2]:
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
        slot = cycle % horizon
        if tag[slot] != cycle:
            tag[slot] = cycle
            used[slot] = 0.0
        free = 1.0 - used[slot]
        if free > 1e-9:
            if began < 0:
                began = cycle
            taken = min(free, amount)
            used[slot] += taken
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
