"""Fingerprints of many kernels of one computation in one call: those of `ModuleFingerprints.subgraph`.

What a value is made of is digested once for all kernels that make it alike; a 64-bit hash tells what is
alike, as in `costbench.compiler.identity.hashes`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from costbench.compiler.fusion.views import BodyArrays
from costbench.compiler.identity.hashes import Labels, made_of
from costbench.compiler.kernel_arrays import KernelArrays
from costbench.execution.compiled import compiled
from costbench.hlo.blake2 import DIGEST_WORDS, digest_16, put_word, words_of
from costbench.hlo.fingerprint import ModuleFingerprints

IntArray = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.uint8]
WordArray = npt.NDArray[np.uint64]
_SLOTS_PER_INSTRUCTION = 16
_FEWEST_SLOTS = 1024
_WORD_BYTES = 8
_DIGEST_BYTES = 16
_ENTRY_BYTES = 20
"""A reader of a value: its digest, and the operand place as 4 bytes."""
_LEAVES, _STAYS = (np.array(list(word), dtype=np.uint8) for word in (b"out", b"in"))


class _Texts(NamedTuple):
    """What is digested of the n instructions of a computation.

    Attributes:
        labels_offsets: [n + 1], where the label of each begins.
        labels: bytes.
        inputs: [n, 2], digests of the instructions as inputs.
    """

    labels_offsets: IntArray
    labels: ByteArray
    inputs: WordArray


class _Table(NamedTuple):
    """First digests by the hash of what they are made of: an open table, in which 0 is an empty slot.

    Attributes:
        keys: hashes.
        digests: [slots, 2].
        num_keys: [1], keys in the table.
    """

    keys: WordArray
    digests: WordArray
    num_keys: IntArray


class _Room(NamedTuple):
    """Room for one kernel.

    Attributes:
        made: [n], hashes of what values are made of.
        first: [n, 2], first digests.
        leaves: [n], whether a value leaves the kernel.
        readers_start: [n], where the entries of a value's readers begin.
        readers_end: [n], where they end so far; before, how many there will be.
        entries: [most reads, 3], readers: both words of the digest and the place, as they are sorted.
        message: bytes to digest.
        words: for `digest_16`.
    """

    made: WordArray
    first: WordArray
    leaves: npt.NDArray[np.bool_]
    readers_start: IntArray
    readers_end: IntArray
    entries: WordArray
    message: ByteArray
    words: WordArray


class KernelFingerprints:
    """Fingerprints of the kernels of one computation.

    Args:
        fingerprints: of the program.
        computation: its position.
        body: its instructions.
        labels: their hashes.
    """

    def __init__(
        self, fingerprints: ModuleFingerprints, computation: int, body: BodyArrays, labels: Labels
    ) -> None:
        texts, inputs = fingerprints.labels(computation)
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int64)
        self._texts = _Texts(ends, np.frombuffer(b"".join(texts), dtype=np.uint8), words_of(inputs))
        self._body, self._labels = body, labels
        slots = 1 << max(_FEWEST_SLOTS, _SLOTS_PER_INSTRUCTION * len(texts)).bit_length()
        self._table = _Table(
            np.zeros(slots, dtype=np.uint64),
            np.zeros((slots, DIGEST_WORDS), dtype=np.uint64),
            np.zeros(1, dtype=np.int64),
        )
        count, reads = len(texts), len(body.operands)
        longest = int(np.diff(ends).max(initial=0))
        self._room = _Room(
            np.zeros(count, dtype=np.uint64),
            np.zeros((count, DIGEST_WORDS), dtype=np.uint64),
            np.zeros(count, dtype=bool),
            np.zeros(count, dtype=np.int64),
            np.zeros(count, dtype=np.int64),
            np.zeros((reads, 3), dtype=np.uint64),
            np.zeros(longest + _ENTRY_BYTES * (reads + count) + 64, dtype=np.uint8),
            np.zeros(24, dtype=np.uint64),
        )

    def of(self, kernels: KernelArrays) -> list[bytes]:
        """The fingerprints of kernels, 16 bytes each."""
        found = _fingerprints(kernels, self._body, self._labels, self._texts, self._table, self._room)
        data = found.astype("<u8").tobytes()
        return [data[i : i + _DIGEST_BYTES] for i in range(0, len(data), _DIGEST_BYTES)]


@compiled
def _swapped(word: np.uint64) -> np.uint64:
    """The bytes of a word in opposite order: so its value sorts as its little-endian bytes do."""
    result = np.uint64(0)
    for _ in range(_WORD_BYTES):
        result = (result << np.uint64(8)) | (word & np.uint64(255))
        word = word >> np.uint64(8)
    return result


@compiled
def _fingerprints(
    kernels: KernelArrays, body: BodyArrays, labels: Labels, texts: _Texts, table: _Table, r: _Room
) -> WordArray:
    count = len(kernels.instructions_offsets) - 1
    result = np.empty((count, DIGEST_WORDS), dtype=np.uint64)
    for k in range(count):
        inputs = kernels.inputs[kernels.inputs_offsets[k] : kernels.inputs_offsets[k + 1]]
        inside = kernels.instructions[kernels.instructions_offsets[k] : kernels.instructions_offsets[k + 1]]
        outputs = kernels.outputs[kernels.outputs_offsets[k] : kernels.outputs_offsets[k + 1]]
        _first_digests((inputs, inside), body, labels, texts, table, r)
        for position in outputs:
            r.leaves[position] = True
        second = _second_digests(inputs, inside, body, r)
        for position in outputs:
            r.leaves[position] = False
        for i in range(len(second)):
            put_word(r.message, _DIGEST_BYTES * i, _swapped(second[i, 0]))
            put_word(r.message, _DIGEST_BYTES * i + _WORD_BYTES, _swapped(second[i, 1]))
        digest_16(r.message, _DIGEST_BYTES * len(second), r.words)
        result[k, 0], result[k, 1] = r.words[0], r.words[1]
    return result


@compiled
def _first_digests(
    nodes: tuple[IntArray, IntArray], body: BodyArrays, labels: Labels, texts: _Texts, table: _Table, r: _Room
) -> None:
    """What inputs and instructions are made of; counts the readers of each on the way."""
    inputs, inside = nodes
    for position in inputs:
        r.made[position] = made_of(body, labels, r.made, position, True)
        r.first[position, 0], r.first[position, 1] = texts.inputs[position, 0], texts.inputs[position, 1]
        r.readers_end[position] = 0
    for position in inside:
        r.readers_end[position] = 0
        made = made_of(body, labels, r.made, position, False)
        r.made[position] = made
        slot = _slot(table, made)
        if table.keys[slot] == 0:
            slot = _add(position, made, body, texts, table, r)
        r.first[position, 0], r.first[position, 1] = table.digests[slot, 0], table.digests[slot, 1]
        for i in range(body.operands_offsets[position], body.operands_offsets[position + 1]):
            r.readers_end[body.operands[i]] += 1


@compiled
def _slot(table: _Table, key: np.uint64) -> int:
    mask = np.uint64(len(table.keys) - 1)
    slot = key & mask
    while table.keys[slot] not in (np.uint64(0), key):
        slot = (slot + np.uint64(1)) & mask
    return int(slot)


@compiled
def _add(position: int, made: np.uint64, body: BodyArrays, texts: _Texts, table: _Table, r: _Room) -> int:
    """Digests what a value is made of, and keeps it; all others are forgotten once there are many."""
    if 2 * table.num_keys[0] > len(table.keys):
        table.keys[:] = 0
        table.num_keys[0] = 0
    length = 0
    for i in range(body.operands_offsets[position], body.operands_offsets[position + 1]):
        for word in range(DIGEST_WORDS):
            put_word(r.message, length, r.first[body.operands[i], word])
            length += _WORD_BYTES
    for i in range(texts.labels_offsets[position], texts.labels_offsets[position + 1]):
        r.message[length] = texts.labels[i]
        length += 1
    digest_16(r.message, length, r.words)
    slot = _slot(table, made)
    table.keys[slot] = made
    table.digests[slot, 0], table.digests[slot, 1] = r.words[0], r.words[1]
    table.num_keys[0] += 1
    return slot


@compiled
def _second_digests(inputs: IntArray, inside: IntArray, body: BodyArrays, r: _Room) -> WordArray:
    """What becomes of values, sorted, [inputs and instructions, 2], words in the order they sort in."""
    total = 0
    for positions in (inputs, inside):
        for position in positions:
            readers = r.readers_end[position]
            r.readers_start[position], r.readers_end[position] = total, total
            total += readers
    found = np.empty((len(inputs) + len(inside), DIGEST_WORDS), dtype=np.uint64)
    number = 0
    for position in inside[::-1]:
        _digest_use(position, r)
        own, other = _swapped(r.words[0]), _swapped(r.words[1])
        found[number, 0], found[number, 1] = own, other
        number += 1
        first = body.operands_offsets[position]
        for i in range(first, body.operands_offsets[position + 1]):
            # 4 bytes, little-endian, sorted as bytes.
            _enter(body.operands[i], own, other, _swapped(np.uint64(i - first)), r)
    for position in inputs:
        _digest_use(position, r)
        found[number, 0], found[number, 1] = _swapped(r.words[0]), _swapped(r.words[1])
        number += 1
    return found[_sorted(found)]


@compiled
def _digest_use(position: int, r: _Room) -> None:
    put_word(r.message, 0, r.first[position, 0])
    put_word(r.message, _WORD_BYTES, r.first[position, 1])
    length = 2 * _WORD_BYTES
    for letter in _LEAVES if r.leaves[position] else _STAYS:
        r.message[length] = letter
        length += 1
    for entry in range(r.readers_start[position], r.readers_end[position]):
        for word in range(3):
            put_word(r.message, length, _swapped(r.entries[entry, word]))
            length += _WORD_BYTES
        length += _ENTRY_BYTES - 3 * _WORD_BYTES
    digest_16(r.message, length, r.words)


@compiled
def _enter(position: int, own: np.uint64, other: np.uint64, place: np.uint64, r: _Room) -> None:
    """Adds a reader to those of a value, which stay sorted."""
    entry = r.readers_end[position]
    r.readers_end[position] += 1
    while entry > r.readers_start[position] and _is_before(own, other, place, r.entries[entry - 1]):
        for word in range(3):
            r.entries[entry, word] = r.entries[entry - 1, word]
        entry -= 1
    r.entries[entry, 0], r.entries[entry, 1], r.entries[entry, 2] = own, other, place


@compiled
def _is_before(own: np.uint64, other: np.uint64, place: np.uint64, entry: WordArray) -> bool:
    if own != entry[0]:
        return bool(own < entry[0])
    if other != entry[1]:
        return bool(other < entry[1])
    return bool(place < entry[2])


@compiled
def _sorted(found: WordArray) -> IntArray:
    """Places of [n, 2] in ascending order."""
    order = np.argsort(found[:, 0])
    for i in range(1, len(order)):
        j = i
        while (
            j > 0
            and found[order[j], 0] == found[order[j - 1], 0]
            and found[order[j], 1] < found[order[j - 1], 1]
        ):
            order[j], order[j - 1] = order[j - 1], order[j]
            j -= 1
    return order
