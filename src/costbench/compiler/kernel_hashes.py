"""A fast 64-bit hash of kernels: equal for equal fingerprints, otherwise different except by chance.

It runs the two passes of `costbench.compiler.fingerprints` with sums of 64-bit numbers in place of
sorted digests of 128 bits, in a twentieth of the time. A search over fusion configs sees most kernels many
times, in many places of its program; the hash recognises them before kernel objects are built. A kernel that
occurs again in the same place is a group of the same instructions, which `group_hashes` recognises even
before it is cut out. Among n kernels two different ones share a hash with probability about n^2 / 2^65: 1e-7
for two million.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from costbench.arrays import I64, U64
from costbench.compiler.fingerprints import ModuleFingerprints
from costbench.compiler.fusion.cutting import BodyNodes
from costbench.compiler.fusion.group_graph import Groups
from costbench.compiler.kernel_arrays import KernelArrays
from costbench.execution.compiled import compiled
from costbench.hashing import FIRST_MULTIPLIER, GOLDEN_GAMMA, SECOND_MULTIPLIER, mix

# Odd constants that separate kinds of hashed items: SplitMix64's, and the multiplier of degski's 64-bit hash.
_NODE, _INSIDE, _INPUT = GOLDEN_GAMMA, FIRST_MULTIPLIER, SECOND_MULTIPLIER
_LEAVES = np.uint64(0xD6E8FEB86659FD93)
_MIN_SLOTS = 1024

UNKNOWN = -1
"""Number of a hash that a table does not hold."""


class Labels(NamedTuple):
    """Hashes of the n instructions of a computation, each without its operands.

    Attributes:
        instruction: [n], opcode, shape with layout, attributes and callees.
        shape: [n], shape with layout alone, used for a value that is read from memory.
    """

    instruction: U64
    shape: U64


def labels_of(fingerprints: ModuleFingerprints, computation: int) -> Labels:
    """Returns the hashes of a computation's instructions."""
    instructions, shapes = fingerprints.label_digests(computation)
    return Labels(_numbers(instructions), _numbers(shapes))


def _numbers(digests: Sequence[bytes]) -> U64:
    return np.frombuffer(b"".join(digest[:8] for digest in digests), dtype="<u8").astype(np.uint64)


@compiled
def group_hashes(g: Groups, chosen: I64, computation: int) -> U64:
    """Returns hashes [k] of the chosen groups.

    They are equal for groups of the same instructions, which determine the kernel.
    """
    sums = np.zeros(len(g.group), dtype=np.uint64)
    first = mix(np.uint64(computation))
    for position in range(len(g.group)):
        sums[g.group[position]] += mix(first + np.uint64(position))
    result = np.empty(len(chosen), dtype=np.uint64)
    for i in range(len(chosen)):
        result[i] = mix(sums[chosen[i]])
    return result


@compiled
def kernel_hashes(kernels: KernelArrays, nodes: BodyNodes, labels: Labels) -> U64:
    """Returns hashes of kernels [k], made from those of what values are computed from and of their uses."""
    count = len(kernels.instructions_offsets) - 1
    value_hashes = np.zeros(len(labels.shape), dtype=np.uint64)
    use_hashes = np.zeros(len(labels.shape), dtype=np.uint64)
    leaves = np.zeros(len(labels.shape), dtype=np.bool_)
    result = np.zeros(count, dtype=np.uint64)
    for k in range(count):
        inside = kernels.instructions[kernels.instructions_offsets[k] : kernels.instructions_offsets[k + 1]]
        inputs = kernels.inputs[kernels.inputs_offsets[k] : kernels.inputs_offsets[k + 1]]
        outputs = kernels.outputs[kernels.outputs_offsets[k] : kernels.outputs_offsets[k + 1]]
        for position in inputs:
            value_hashes[position] = mix(labels.shape[position] ^ _INPUT)
            use_hashes[position] = np.uint64(0)
        for position in inside:
            value = labels.instruction[position]
            for i in range(nodes.operands_offsets[position], nodes.operands_offsets[position + 1]):
                value = mix(value) ^ value_hashes[nodes.operands[i]]
            value_hashes[position] = mix(value)
            use_hashes[position] = np.uint64(0)
        for position in outputs:
            leaves[position] = True
        total = np.uint64(0)
        for position in inside[::-1]:
            value = mix(
                mix(value_hashes[position] ^ (_LEAVES if leaves[position] else _INSIDE))
                + use_hashes[position]
            )
            total += mix(value ^ _NODE)
            for i in range(nodes.operands_offsets[position], nodes.operands_offsets[position + 1]):
                value = value + _LEAVES
                use_hashes[nodes.operands[i]] += mix(value)
        for position in inputs:
            total += mix(mix(mix(value_hashes[position] ^ _INSIDE) + use_hashes[position]) ^ _NODE)
        for position in outputs:
            leaves[position] = False
        result[k] = mix(total)
    return result


# ---- tables of hashes ------------------------------------------------------------------------------------


class HashNumbers:
    """A dictionary from hash to number, looked up with arrays since a config has a thousand groups."""

    def __init__(self) -> None:
        self._slots = np.zeros(_MIN_SLOTS, dtype=np.uint64)
        self._numbers = np.full(_MIN_SLOTS, UNKNOWN, dtype=np.int64)
        self._count = 0

    def find(self, hashes: U64) -> I64:
        """Returns the number of each hash [k], or `UNKNOWN`."""
        return self._numbers[_find(self._slots, hashes)]

    def add(self, hashes: U64, numbers: I64) -> None:
        """Stores numbers [k] under hashes [k]."""
        self._count += len(hashes)
        if 2 * self._count > len(self._slots):
            is_taken = self._slots > 0
            hashes = np.concatenate([self._slots[is_taken], hashes])
            numbers = np.concatenate([self._numbers[is_taken], numbers])
            size = 1 << int(4 * self._count).bit_length()
            self._slots = np.zeros(size, dtype=np.uint64)
            self._numbers = np.full(size, UNKNOWN, dtype=np.int64)
        _enter(self._slots, self._numbers, hashes, numbers)


class SeenHashes:
    """A set of hashes seen so far.

    Args:
        max_hashes: capacity; once it is exceeded, all hashes are dropped. 0 for no limit.
    """

    def __init__(self, max_hashes: int = 0) -> None:
        self._max_hashes = max_hashes
        self._slots = np.zeros(_MIN_SLOTS, dtype=np.uint64)
        self._count = 0

    def add(self, hashes: U64) -> I64:
        """Adds hashes [k] and returns the indices of those that were new, ascending."""
        if 0 < self._max_hashes < self._count:
            self._slots, self._count = np.zeros(_MIN_SLOTS, dtype=np.uint64), 0
        needed = 2 * (self._count + len(hashes))
        if needed > len(self._slots):
            slots = np.zeros(1 << int(2 * needed - 1).bit_length(), dtype=np.uint64)
            _add_new(slots, self._slots[self._slots > 0])
            self._slots = slots
        new = _add_new(self._slots, hashes)
        self._count += len(new)
        return new


@compiled
def _slot_of(slots: U64, key: np.uint64) -> np.uint64:
    """Returns the slot of a hash in an open-addressing table, or the empty slot (0) where it would go."""
    mask = np.uint64(len(slots) - 1)
    slot = key & mask
    while slots[slot] != 0 and slots[slot] != key:
        slot = (slot + np.uint64(1)) & mask
    return slot


@compiled
def _find(slots: U64, hashes: U64) -> I64:
    """Returns the slot of each hash; 0 marks an empty slot, so 0 and 1 count as one."""
    indices = np.empty(len(hashes), dtype=np.int64)
    for i in range(len(hashes)):
        indices[i] = _slot_of(slots, max(hashes[i], np.uint64(1)))
    return indices


@compiled
def _enter(slots: U64, numbers: I64, hashes: U64, new_numbers: I64) -> None:
    """Stores numbers under hashes in a table that has free slots."""
    for i in range(len(hashes)):
        key = max(hashes[i], np.uint64(1))
        slot = _slot_of(slots, key)
        slots[slot] = key
        numbers[slot] = new_numbers[i]


@compiled
def _add_new(slots: U64, hashes: U64) -> I64:
    """Enters hashes into a table that has free slots; returns the indices of new ones."""
    new = np.empty(len(hashes), dtype=np.int64)
    count = 0
    for i in range(len(hashes)):
        key = max(hashes[i], np.uint64(1))
        slot = _slot_of(slots, key)
        if slots[slot] == 0:
            slots[slot] = key
            new[count] = i
            count += 1
    return new[:count].copy()
