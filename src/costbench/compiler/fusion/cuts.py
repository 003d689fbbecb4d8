"""Cuts a program into kernels under many fusion configs; only groups not seen before become new kernels.

A step of a search changes a few groups. The groups of a config have to be computed as a whole, since whether
two may be merged can depend on any other; but a kernel is determined by its group of instructions, so a group
that has been seen is recognised by its hash (`identity.hashes.group_hashes`) and not turned into a kernel
again. Kernels of equal hash cost the same and share a number.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from costbench.arrays import I16, I64, U64, Bool
from costbench.compiler.fusion.space import ComputationEdges, CutKernels, FusionSpace
from costbench.compiler.fusion.views import cut_groups, groups_that_run
from costbench.compiler.kernel import Kernel
from costbench.compiler.kernel_hashes import group_hashes, kernel_hashes
from costbench.execution.compiled import compiled

NO_KERNEL = 0
"""The number of groups for which no kernel is made: arguments, scalars and the like."""
UNKNOWN = -1
"""Of a hash that has no number."""
_REMEMBERED = 256
_FEWEST_SLOTS = 1024


@dataclass(frozen=True, eq=False)
class CutConfig:
    """The kernels that a config gives, by number.

    Attributes:
        kernels: one array per computation that runs, a number for every group, int64 [g].
        trip_counts: how often each computation runs.
    """

    kernels: tuple[I64, ...]
    trip_counts: tuple[int, ...]

    @property
    def key(self) -> bytes:
        """Returns a key that is equal for configs that give the same kernels in the same computations."""
        return b"/".join(np.sort(numbers[numbers != NO_KERNEL]).tobytes() for numbers in self.kernels)


class FusionCuts:
    """Distinct kernels of a program's fusion configs, numbered from 1 in the order in which they first occur.

    Args:
        space: the fusion configs.
    """

    def __init__(self, space: FusionSpace) -> None:
        self.space = space
        self._of_groups = HashNumbers()
        self._number_of_hash: dict[int, int] = {}
        self._hashes: list[int] = [0]
        self._waiting: dict[int, Kernel] = {}
        self._parts: OrderedDict[tuple[int, bytes], I64] = OrderedDict()

    def __len__(self) -> int:
        """Returns the number of distinct kernels so far, plus one for `NO_KERNEL`."""
        return len(self._hashes)

    @property
    def hashes(self) -> U64:
        """Returns the hashes of the kernels by number, [len(self)]; the same in every run."""
        return np.array(self._hashes, dtype=np.uint64)

    def take(self, number: int) -> Kernel:
        """Returns a kernel and drops it from memory, so each can be taken only once.

        Raises:
            KeyError: for a kernel that was taken before.
        """
        return self._waiting.pop(number)

    def cut(self, config: I16) -> CutConfig:
        """Cuts the program under a config [m] and returns the numbers of its kernels."""
        kernels, trip_counts = [], []
        for part, fused in self.space.by_computation(config):
            kernels.append(self._part(part, fused))
            trip_counts.append(part.trip_count)
        return CutConfig(tuple(kernels), tuple(trip_counts))

    def _part(self, part: ComputationEdges, fused: Bool) -> I64:
        key = part.computation, fused.tobytes()
        if key not in self._parts:
            self._parts[key] = self._cut(part, fused)
            if len(self._parts) > _REMEMBERED:
                self._parts.popitem(last=False)
        self._parts.move_to_end(key)
        return self._parts[key]

    def _cut(self, part: ComputationEdges, fused: Bool) -> I64:
        groups = part.cut(fused)
        chosen = groups_that_run(groups.groups, part.body)
        names = group_hashes(groups.groups, chosen, part.computation)
        numbers = self._of_groups.find(names)
        new = np.flatnonzero(numbers == UNKNOWN)
        if len(new):
            arrays = cut_groups(groups.groups, groups.reads, part.body, chosen[new])
            hashes = kernel_hashes(arrays, part.body, part.labels)
            cut = CutKernels(part.computation, part.trip_count, arrays, hashes)
            # A kernel may duplicate instructions of other groups, but its outputs belong to its own group.
            owners = groups.groups.group[arrays.outputs[arrays.outputs_offsets[:-1]]]
            made = {owner: self._number(cut, place) for place, owner in enumerate(owners.tolist())}
            numbers[new] = [made.get(group, NO_KERNEL) for group in chosen[new].tolist()]
            self._of_groups.add(names[new], numbers[new])
        return numbers

    def _number(self, cut: CutKernels, place: int) -> int:
        quick_hash = int(cut.hashes[place])
        number = self._number_of_hash.get(quick_hash)
        if number is None:
            number = self._number_of_hash[quick_hash] = len(self._hashes)
            self._hashes.append(quick_hash)
            self._waiting[number] = self.space.kernel(cut, place)
        return number


class HashNumbers:
    """A dictionary from hash to number, looked up with arrays since a config has a thousand groups."""

    def __init__(self) -> None:
        self._slots = np.zeros(_FEWEST_SLOTS, dtype=np.uint64)
        self._numbers = np.full(_FEWEST_SLOTS, UNKNOWN, dtype=np.int64)
        self._count = 0

    def find(self, hashes: U64) -> I64:
        """Returns the number of each hash [k], or `UNKNOWN`."""
        return self._numbers[_slots_of(self._slots, hashes)]

    def add(self, hashes: U64, numbers: I64) -> None:
        """Stores numbers [k] under hashes [k]."""
        self._count += len(hashes)
        if 2 * self._count > len(self._slots):
            known = self._slots > 0
            hashes = np.concatenate([self._slots[known], hashes])
            numbers = np.concatenate([self._numbers[known], numbers])
            size = 1 << int(4 * self._count).bit_length()
            self._slots = np.zeros(size, dtype=np.uint64)
            self._numbers = np.full(size, UNKNOWN, dtype=np.int64)
        _enter(self._slots, self._numbers, hashes, numbers)


@compiled
def _slot_of(slots: U64, wanted: np.uint64) -> np.uint64:
    """Returns the slot of a hash in an open-addressing table, or the empty slot (0) where it would go."""
    mask = np.uint64(len(slots) - 1)
    slot = wanted & mask
    while slots[slot] != 0 and slots[slot] != wanted:
        slot = (slot + np.uint64(1)) & mask
    return slot


@compiled
def _slots_of(slots: U64, hashes: U64) -> I64:
    found = np.empty(len(hashes), dtype=np.int64)
    for i in range(len(hashes)):
        found[i] = _slot_of(slots, max(hashes[i], np.uint64(1)))
    return found


@compiled
def _enter(slots: U64, numbers: I64, hashes: U64, given: I64) -> None:
    for i in range(len(hashes)):
        value = max(hashes[i], np.uint64(1))
        slot = _slot_of(slots, value)
        slots[slot] = value
        numbers[slot] = given[i]
