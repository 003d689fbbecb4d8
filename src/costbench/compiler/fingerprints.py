"""Fingerprints of kernels and programs: equal if they differ only in names, numbering or storage order.

The first pass gives every node a digest of its own label (opcode, shape with layout, attributes, fingerprints
of the computations it calls) and of its operands' digests in operand order. The second pass, from users back
to operands, gives it a digest that also covers which nodes read the value and as which operand. The
fingerprint is a digest over the sorted second digests. The first pass covers what a value is computed from,
the second how it is used, so that `f(a, b) + g(a, c)` and `f(a, b) + g(b, c)` differ although a, b and c look
alike. For a graph with one output in which every node is used this separates all graphs that are not
isomorphic: starting from the output, (user, operand number) identifies each node. Graphs with several outputs
can collide only if outputs are symmetric to each other.

With H for BLAKE2b of 128 bits, the fingerprint of a kernel of n nodes takes 2n + 1 calls of it:

- first(v) = H(first(operand 0) .. first(operand m - 1), label(v)) for an instruction, from operands to users;
- second(v) = H(first(v), "out" or "in", sorted second(user) + number for every read of v), from users to
  operands, with the number of the operand as 4 bytes, little-endian;
- the fingerprint = H(sorted second(v) of all nodes).

Not in a label, because they do not change what a kernel costs: names, literals (beyond their element type and
shape), control dependencies, and the numbers of parameters, except in whole computations, where the number
says which argument is meant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from functools import partial
from hashlib import blake2b
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from costbench.arrays import I64, U64, Bool
from costbench.compiler.kernel_arrays import KernelArrays, KernelPositions, kernel_arrays, lists_to_arrays
from costbench.errors import HloError
from costbench.execution.compiled import compiled
from costbench.hashing import DIGEST_WORDS, WORD_BYTES, digest_16, put_word, words_of
from costbench.hlo.instruction import Instruction
from costbench.hlo.memo import Memo
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape

_NOT_IN_LABEL = frozenset(
    {"name", "opcode", "shape", "operands", "called", "parameter_number", "control_predecessors", "literal"}
)
# Derived from the type, so that a new attribute enters every fingerprint without a change here.
_ATTRIBUTES = tuple(f.name for f in dataclasses.fields(Instruction) if f.name not in _NOT_IN_LABEL)
_attributes_of = attrgetter(*_ATTRIBUTES)
_UNSET = _attributes_of(Instruction(name="", opcode=Opcode.UNKNOWN, shape=Shape(ElementType.INVALID)))


def instruction_label(inst: Instruction, callees: Iterable[bytes], *, numbered: bool) -> bytes:
    """Returns the label of an instruction that a kernel holds.

    Args:
        inst: the instruction.
        callees: fingerprints of the computations that it calls.
        numbered: whether the number of a parameter counts.
    """
    parts = [f"{len(inst.operands)} {int(inst.opcode)} {_shape_text(inst.shape)}"]
    attributes = _attributes_of(inst)
    if attributes != _UNSET:
        parts.append(repr(attributes))
    if numbered and inst.opcode is Opcode.PARAMETER:
        parts.append(str(inst.parameter_number))
    parts.extend(callee.hex() for callee in callees)
    return "\n".join(parts).encode()


def input_label(shape: Shape) -> bytes:
    """Returns the label of a value that a kernel reads but does not compute: its shape and layout alone."""
    return b"input " + _shape_text(shape).encode()


def _shape_text(shape: Shape) -> str:
    # `layout` rather than `minor_to_major`: an unset order means row-major, which is then the same shape.
    if shape.is_tuple:
        return f"({','.join(map(_shape_text, shape.tuple_shapes))})"
    return f"{int(shape.element_type)}{shape.dimensions}{shape.layout}"


_DIGEST_BYTES = DIGEST_WORDS * WORD_BYTES
_NO_DIGEST = bytes(_DIGEST_BYTES)


class ModuleFingerprints:
    """Computes fingerprints of parts of one module.

    Use it to fingerprint many kernels of a program; the functions below are for single ones. Labels, and
    fingerprints of called computations, are computed when first needed and cached.
    """

    def __init__(self, module: HloModule) -> None:
        self._module = module
        self._labels: Memo[int, Memo[int, bytes]] = Memo(lambda c: Memo(partial(self._label, c)))
        self._inputs: Memo[int, Memo[int, bytes]] = Memo(lambda c: Memo(partial(self._input, c)))
        self._bodies: Memo[int, LabelledBody] = Memo(self._body)
        self._called: Memo[int, bytes] = Memo(self._whole)

    def kernels(self, computation: int, kernels: KernelArrays) -> list[bytes]:
        """Returns the fingerprints of kernels of one computation, 16 bytes each, equal to `subgraph`'s."""
        return _as_bytes(kernels, self._bodies[computation])

    def subgraph(
        self, computation: int, inputs: Sequence[int], instructions: Sequence[int], outputs: Sequence[int]
    ) -> str:
        """Returns what `subgraph_fingerprint` does: 32 hexadecimal digits."""
        inside = set(instructions)
        read = [position for position in dict.fromkeys(inputs) if position not in inside]
        return self._digest(computation, read, sorted(inside), outputs, self._labels[computation]).hex()

    def label_digests(self, computation: int) -> tuple[list[bytes], list[bytes]]:
        """Returns for every instruction digests of its label and of its label as an input; 16 bytes each."""
        positions = range(len(self._instructions(computation)))
        labels, inputs = self._labels[computation], self._inputs[computation]
        return [_blake2b(labels[p]) for p in positions], [inputs[p] for p in positions]

    def called(self, computation: int) -> bytes:
        """Returns the fingerprint of a whole computation, including parameter numbers; 16 bytes."""
        return self._called[computation]

    def _whole(self, computation: int) -> bytes:
        labels = Memo(partial(self._label, computation, numbered=True))
        body = self._module.computations[computation]
        return self._digest(computation, (), range(len(body.instructions)), (body.root,), labels)

    def _instructions(self, computation: int) -> Sequence[Instruction]:
        return self._module.computations[computation].instructions

    def _label(self, computation: int, position: int, *, numbered: bool = False) -> bytes:
        inst = self._instructions(computation)[position]
        return instruction_label(inst, [self.called(callee) for callee in inst.called], numbered=numbered)

    def _input(self, computation: int, position: int) -> bytes:
        return _blake2b(input_label(self._instructions(computation)[position].shape))

    def _body(self, computation: int) -> LabelledBody:
        """Returns all instructions of a computation, numbered by position."""
        instructions = self._instructions(computation)
        labels, inputs = self._labels[computation], self._inputs[computation]
        positions = range(len(instructions))
        return labelled_body(
            [inst.operands for inst in instructions],
            [labels[p] for p in positions],
            [inputs[p] for p in positions],
        )

    def _digest(
        self,
        computation: int,
        read: Sequence[int],
        inside: Sequence[int],
        outputs: Sequence[int],
        labels: Memo[int, bytes],
    ) -> bytes:
        """Returns the fingerprint of one part and labels only its nodes: inputs first, then instructions."""
        instructions, inputs = self._instructions(computation), self._inputs[computation]
        numbers = {position: number for number, position in enumerate((*read, *inside))}
        missing = sorted(set(outputs) - numbers.keys())
        if missing:
            raise HloError(f"outputs {missing} are not part of the subgraph", where=self._module.name)
        operands: list[list[int]] = [[] for _ in read]
        for position in inside:
            try:
                operands.append([numbers[operand] for operand in instructions[position].operands])
            except KeyError as error:
                raise HloError(
                    f"operand at {error.args[0]} is neither an input nor among the instructions",
                    where=self._module.name,
                    field=instructions[position].name,
                ) from None
        body = labelled_body(
            operands,
            [b""] * len(read) + [labels[position] for position in inside],
            [inputs[position] for position in read] + [_NO_DIGEST] * len(inside),
        )
        part = KernelPositions(
            instructions=tuple(range(len(read), len(numbers))),
            inputs=tuple(range(len(read))),
            outputs=tuple({numbers[position] for position in outputs}),
        )
        return _as_bytes(kernel_arrays([part]), body)[0]


def subgraph_fingerprint(
    module: HloModule,
    computation: int,
    inputs: Sequence[int],
    instructions: Sequence[int],
    outputs: Sequence[int],
) -> str:
    """Returns the fingerprint of a part of a computation, such as a kernel.

    Args:
        module: the program.
        computation: position of the computation.
        inputs: positions of values read but not computed by the part; only their shapes count.
        instructions: positions of the part's instructions.
        outputs: positions whose values leave the part.

    Returns:
        32 hexadecimal digits (BLAKE2b, 128 bits).

    Raises:
        HloError: if an operand is neither an input nor among the instructions, or an output neither.
    """
    return ModuleFingerprints(module).subgraph(computation, inputs, instructions, outputs)


def module_fingerprint(module: HloModule) -> str:
    """Returns the fingerprint of a whole program, callees included; 32 hexadecimal digits."""
    return ModuleFingerprints(module).called(module.entry).hex()


def _as_bytes(kernels: KernelArrays, body: LabelledBody) -> list[bytes]:
    data = subgraph_digests(kernels, body).astype("<u8").tobytes()
    return [data[i : i + _DIGEST_BYTES] for i in range(0, len(data), _DIGEST_BYTES)]


def _blake2b(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


# ---- digests of many kernels of one computation, compiled ------------------------------------------------


_OPERAND_NUMBER_BYTES = 4
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
        entries: [reads, 3], reads of values: second digest of the user, and number of the operand, words with
            their bytes swapped.
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
        # Word by word: assigning a slice compiles forty functions for an error of its shape.
        for word in range(DIGEST_WORDS):
            result[k, word] = s.hash_state[word]
    return result


@compiled
def _first_pass(inputs: I64, inside: I64, body: LabelledBody, s: _Scratch) -> None:
    """Computes the first digest of each value, and counts its reads on the way."""
    for position in inputs:
        for word in range(DIGEST_WORDS):
            s.first[position, word] = body.inputs[position, word]
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
        for word in range(DIGEST_WORDS):
            s.first[position, word] = s.hash_state[word]


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
        num_bytes += _DIGEST_BYTES + _OPERAND_NUMBER_BYTES
    digest_16(s.message, num_bytes, s.hash_state)


@compiled
def _add_read(position: int, high: np.uint64, low: np.uint64, number: np.uint64, s: _Scratch) -> None:
    """Inserts a read of a value into the sorted list of its reads."""
    entry = s.reads_stop[position]
    s.reads_stop[position] += 1
    while entry > s.reads_start[position] and _precedes(high, low, number, s.entries[entry - 1]):
        for word in range(DIGEST_WORDS + 1):
            s.entries[entry, word] = s.entries[entry - 1, word]
        entry -= 1
    s.entries[entry, 0], s.entries[entry, 1], s.entries[entry, 2] = high, low, number


@compiled
def _precedes(high: np.uint64, low: np.uint64, number: np.uint64, entry: U64) -> bool:
    if high != entry[0]:
        return bool(high < entry[0])
    if low != entry[1]:
        return bool(low < entry[1])
    return bool(number < entry[2])


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
