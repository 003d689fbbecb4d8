"""Compiled implementation of kernel fingerprints, for many kernels of one computation in one call.

`costbench.compiler.identity.fingerprints` explains the two passes. The fingerprint of a kernel of n nodes
takes 2n + 1 calls of BLAKE2b:

- first(v) = H(first(operand 0) .. first(operand m - 1), label(v)) for an instruction, from operands to users;
- second(v) = H(first(v), "out" or "in", sorted second(user) + place for every read of v), from users to
  operands, with the place of the operand as 4 bytes, little-endian;
- the fingerprint = H(sorted second(v) of all nodes).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from costbench.arrays import I64, U64, Bool
from costbench.compiler.kernel_arrays import KernelArrays, lists_to_arrays
from costbench.execution.compiled import compiled
from costbench.hashing import DIGEST_WORDS, WORD_BYTES, digest_16, put_word, words_of

_DIGEST_BYTES = DIGEST_WORDS * WORD_BYTES
_PLACE_BYTES = 4
_LEAVES, _STAYS = (np.uint64(int.from_bytes(word, "little")) for word in (b"out", b"in"))
_LEAVES_BYTES, _STAYS_BYTES = len(b"out"), len(b"in")
_SPARE_WORDS = 4


class LabelledBody(NamedTuple):
    """Operands and labels of n instructions of a computation, from which digests are computed.

    Attributes:
        operands_offsets: [n + 1], where the operands of each begin.
        operands: their numbers among the n.
        labels_offsets: [n + 1], where the label of each begins.
        labels: words, little-endian; a label's last word is padded with zeros.
        label_bytes: [n], lengths of the labels.
        inputs: [n, 2], first digests of the instructions where a kernel reads but does not compute them.
    """

    operands_offsets: I64
    operands: I64
    labels_offsets: I64
    labels: U64
    label_bytes: I64
    inputs: U64


class _Scratch(NamedTuple):
    """Buffers for one kernel; `n` as in `LabelledBody`.

    Attributes:
        first: [n, 2], first digests.
        leaves: [n], whether a value leaves the kernel; false between kernels.
        reads_start: [n], where a value's entries begin.
        reads_stop: [n], where they end so far; before the second pass, how many there will be.
        entries: [reads, 3], reads of values: second digest of the user, and place, words with their bytes
            swapped.
        message: bytes to be digested next, as words.
        hash_state: for `digest_16`, which leaves its result in the first two words.
    """

    first: U64
    leaves: Bool
    reads_start: I64
    reads_stop: I64
    entries: U64
    message: U64
    hash_state: U64


def labelled_body(
    operands: Sequence[Iterable[int]], labels: Sequence[bytes], inputs: Sequence[bytes]
) -> LabelledBody:
    """Packs operands, labels and first digests as inputs (16 bytes each) of n instructions into arrays."""
    label_bytes = np.array([len(label) for label in labels], dtype=np.int64)
    labels_offsets = np.zeros(len(labels) + 1, dtype=np.int64)
    np.cumsum(-(-label_bytes // WORD_BYTES), out=labels_offsets[1:])
    return LabelledBody(
        *lists_to_arrays(operands),
        labels_offsets,
        words_of(b"".join(label + bytes(-len(label) % WORD_BYTES) for label in labels)),
        label_bytes,
        words_of(b"".join(inputs)).reshape(-1, DIGEST_WORDS),
    )


@compiled
def subgraph_digests(kernels: KernelArrays, body: LabelledBody) -> U64:
    """Returns the fingerprints of k kernels of a computation as little-endian words, [k, 2].

    Each kernel's instructions are in ascending order of position, which puts operands before users; none of
    its inputs is one of its instructions.
    """
    count, num_nodes = len(kernels.instructions_offsets) - 1, len(body.label_bytes)
    num_words = len(body.labels) + 3 * len(body.operands) + DIGEST_WORDS * num_nodes + _SPARE_WORDS
    s = _Scratch(
        np.empty((num_nodes, DIGEST_WORDS), dtype=np.uint64),
        np.zeros(num_nodes, dtype=np.bool_),
        np.empty(num_nodes, dtype=np.int64),
        np.empty(num_nodes, dtype=np.int64),
        np.empty((len(body.operands), DIGEST_WORDS + 1), dtype=np.uint64),
        np.empty(num_words, dtype=np.uint64),
        np.empty(24, dtype=np.uint64),
    )
    result = np.empty((count, DIGEST_WORDS), dtype=np.uint64)
    for k in range(count):
        inputs = kernels.inputs[kernels.inputs_offsets[k] : kernels.inputs_offsets[k + 1]]
        inside = kernels.instructions[kernels.instructions_offsets[k] : kernels.instructions_offsets[k + 1]]
        outputs = kernels.outputs[kernels.outputs_offsets[k] : kernels.outputs_offsets[k + 1]]
        _first_pass(inputs, inside, body, s)
        for position in outputs:
            s.leaves[position] = True
        second = _second_pass(inputs, inside, body, s)
        for position in outputs:
            s.leaves[position] = False
        for i in range(len(second)):
            for word in range(DIGEST_WORDS):
                s.message[DIGEST_WORDS * i + word] = _swapped(second[i, word])
        digest_16(s.message, _DIGEST_BYTES * len(second), s.hash_state)
        result[k] = s.hash_state[:DIGEST_WORDS]
    return result


@compiled
def _first_pass(inputs: I64, inside: I64, body: LabelledBody, s: _Scratch) -> None:
    """Computes the first digest of each value, and counts its reads on the way."""
    for position in inputs:
        s.first[position] = body.inputs[position]
        s.reads_stop[position] = 0
    for position in inside:
        s.reads_stop[position] = 0
        length = 0
        for i in range(body.operands_offsets[position], body.operands_offsets[position + 1]):
            operand = body.operands[i]
            s.reads_stop[operand] += 1
            for word in range(DIGEST_WORDS):
                s.message[length] = s.first[operand, word]
                length += 1
        num_bytes = WORD_BYTES * length + body.label_bytes[position]
        for i in range(body.labels_offsets[position], body.labels_offsets[position + 1]):
            s.message[length] = body.labels[i]
            length += 1
        digest_16(s.message, num_bytes, s.hash_state)
        s.first[position] = s.hash_state[:DIGEST_WORDS]


@compiled
def _second_pass(inputs: I64, inside: I64, body: LabelledBody, s: _Scratch) -> U64:
    """Returns the sorted second digests, [inputs and instructions, 2], words with swapped bytes."""
    total = 0
    for positions in (inputs, inside):
        for position in positions:
            num_reads = s.reads_stop[position]
            s.reads_start[position], s.reads_stop[position] = total, total
            total += num_reads
    second = np.empty((len(inputs) + len(inside), DIGEST_WORDS), dtype=np.uint64)
    number = 0
    for position in inside[::-1]:
        _digest_uses(position, s)
        high, low = _swapped(s.hash_state[0]), _swapped(s.hash_state[1])
        second[number, 0], second[number, 1] = high, low
        number += 1
        start = body.operands_offsets[position]
        for i in range(start, body.operands_offsets[position + 1]):
            _add_read(body.operands[i], high, low, _swapped(np.uint64(i - start)), s)
    for position in inputs:
        _digest_uses(position, s)
        second[number, 0], second[number, 1] = _swapped(s.hash_state[0]), _swapped(s.hash_state[1])
        number += 1
    return second[_ascending(second)]


@compiled
def _digest_uses(position: int, s: _Scratch) -> None:
    """Computes the second digest of a value all of whose reads have been inserted."""
    for word in range(DIGEST_WORDS):
        s.message[word] = s.first[position, word]
    leaves = s.leaves[position]
    put_word(s.message, _DIGEST_BYTES, _LEAVES if leaves else _STAYS)
    num_bytes = _DIGEST_BYTES + (_LEAVES_BYTES if leaves else _STAYS_BYTES)
    for entry in range(s.reads_start[position], s.reads_stop[position]):
        for word in range(DIGEST_WORDS + 1):
            put_word(s.message, num_bytes + WORD_BYTES * word, _swapped(s.entries[entry, word]))
        num_bytes += _DIGEST_BYTES + _PLACE_BYTES
    digest_16(s.message, num_bytes, s.hash_state)


@compiled
def _add_read(position: int, high: np.uint64, low: np.uint64, place: np.uint64, s: _Scratch) -> None:
    """Inserts a read of a value into the sorted list of its reads."""
    entry = s.reads_stop[position]
    s.reads_stop[position] += 1
    while entry > s.reads_start[position] and _precedes(high, low, place, s.entries[entry - 1]):
        s.entries[entry] = s.entries[entry - 1]
        entry -= 1
    s.entries[entry, 0], s.entries[entry, 1], s.entries[entry, 2] = high, low, place


@compiled
def _precedes(high: np.uint64, low: np.uint64, place: np.uint64, entry: U64) -> bool:
    if high != entry[0]:
        return bool(high < entry[0])
    if low != entry[1]:
        return bool(low < entry[1])
    return bool(place < entry[2])


@compiled
def _swapped(word: np.uint64) -> np.uint64:
    """Returns the word with its bytes reversed: its value then sorts as its little-endian bytes do."""
    result = np.uint64(0)
    for _ in range(WORD_BYTES):
        result = (result << np.uint64(8)) | (word & np.uint64(255))
        word = word >> np.uint64(8)
    return result


@compiled
def _ascending(digests: U64) -> I64:
    """Returns the permutation that sorts [n, 2] by the first word, then by the second."""
    order = np.argsort(digests[:, 0])
    for i in range(1, len(order)):
        j = i
        while (
            j > 0
            and digests[order[j], 0] == digests[order[j - 1], 0]
            and digests[order[j], 1] < digests[order[j - 1], 1]
        ):
            order[j], order[j - 1] = order[j - 1], order[j]
            j -= 1
    return order
