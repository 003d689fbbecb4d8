"""Fingerprints: equal for computations that differ only in names, numbering or storage order.

The idea: every node gets a digest of its own label (opcode, shape with layout, attributes, fingerprints of
the computations it calls) and of its operands' digests in operand order; then, from users back to operands,
a second digest that also covers who reads the value and at which operand place. The fingerprint is a digest
over the second digests, sorted. The first pass sees what a value is made of, the second what becomes of it,
so that `f(a, b) + g(a, c)` and `f(a, b) + g(b, c)` differ although a, b and c look alike. For a graph with
one output in which every node is used this separates all graphs that are not isomorphic: walking from the
output, (user, place) names each node. Graphs with several outputs can collide only if outputs are symmetric
to each other.

Left out, because they do not change what a kernel costs: names, literals (beyond their element type and
shape), control dependencies, and the numbers of parameters, except in whole computations, where the number
says which argument is meant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial
from hashlib import blake2b
from operator import attrgetter
from typing import NamedTuple

from costbench.errors import HloError
from costbench.hlo.instruction import Instruction
from costbench.hlo.memo import Memo
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape

_DIGEST_BYTES = 16
_EMPTY = blake2b(digest_size=_DIGEST_BYTES)
_MADE_PER_INSTRUCTION = 16
"""First digests kept per instruction of a module."""
_NOT_IN_LABEL = frozenset(
    {"name", "opcode", "shape", "operands", "called", "parameter_number", "control_predecessors", "literal"}
)
# Taken from the type, so that a new attribute is part of every fingerprint without a change here.
_ATTRIBUTES = tuple(f.name for f in dataclasses.fields(Instruction) if f.name not in _NOT_IN_LABEL)
_attributes_of = attrgetter(*_ATTRIBUTES)
_NEUTRAL = _attributes_of(Instruction(name="", opcode=Opcode.UNKNOWN, shape=Shape(ElementType.INVALID)))


class _Node(NamedTuple):
    """What the two passes need of an instruction.

    Attributes:
        name: for messages.
        label: everything that counts of it on its own.
        operands: their positions.
        places: operands with the place they stand at, as bytes.
        made: first digests of instructions of this label, by the joined first digests of their operands.
    """

    name: str
    label: bytes
    operands: tuple[int, ...]
    places: tuple[tuple[int, bytes], ...]
    made: dict[bytes, bytes]


class ModuleFingerprints:
    """Fingerprints of parts of one module.

    Use it where many kernels of a program are fingerprinted; the functions below are for single ones. Called
    computations and labels are worked out once, and so is the first pass over what several kernels share:
    what is kept grows with the module, not with the number of kernels.
    """

    def __init__(self, module: HloModule) -> None:
        self._module = module
        self._called: dict[int, bytes] = {}
        self._made: dict[bytes, dict[bytes, bytes]] = {}
        self._num_made = 0
        self._most_made = _MADE_PER_INSTRUCTION * module.num_instructions
        self._nodes: Memo[int, Memo[int, _Node]] = Memo(lambda c: Memo(partial(self._node, c)))
        self._inputs: Memo[int, Memo[int, bytes]] = Memo(lambda c: Memo(partial(self._input, c)))

    def subgraph(
        self, computation: int, inputs: Sequence[int], instructions: Sequence[int], outputs: Sequence[int]
    ) -> str:
        """As `subgraph_fingerprint`, 32 hexadecimal digits."""
        inside, digests = set(instructions), self._inputs[computation]
        first = {position: digests[position] for position in inputs if position not in inside}
        return self._combine(self._nodes[computation], sorted(inside), first, set(outputs)).hex()

    def label_digests(self, computation: int) -> tuple[list[bytes], list[bytes]]:
        """For every instruction, digests of its own label and of what counts of it as an input; 16 bytes."""
        body = self._module.computations[computation].instructions
        nodes, inputs = self._nodes[computation], self._inputs[computation]
        return [_digest(nodes[p].label) for p in range(len(body))], [inputs[p] for p in range(len(body))]

    def labels(self, computation: int) -> tuple[list[bytes], list[bytes]]:
        """For every instruction, its own label, and the digest of what counts of it as an input."""
        nodes, inputs = self._nodes[computation], self._inputs[computation]
        positions = range(len(self._module.computations[computation].instructions))
        return [nodes[p].label for p in positions], [inputs[p] for p in positions]

    def called(self, computation: int) -> bytes:
        """Digest of a whole computation, parameters told apart by their numbers; 16 bytes."""
        known = self._called.get(computation)
        if known is None:
            body = self._module.computations[computation]
            nodes = Memo(partial(self._node, computation, numbered=True))
            known = self._combine(nodes, range(len(body.instructions)), {}, {body.root})
            self._called[computation] = known
        return known

    def _input(self, computation: int, position: int) -> bytes:
        shape = self._module.computations[computation].instructions[position].shape
        return _digest(b"input " + _shape_text(shape).encode())

    def _node(self, computation: int, position: int, *, numbered: bool = False) -> _Node:
        inst = self._module.computations[computation].instructions[position]
        label = self._label(inst, numbered=numbered)
        places = tuple((operand, place.to_bytes(4, "little")) for place, operand in enumerate(inst.operands))
        return _Node(inst.name, label, inst.operands, places, self._made.setdefault(label, {}))

    def _label(self, inst: Instruction, *, numbered: bool) -> bytes:
        parts = [f"{len(inst.operands)} {int(inst.opcode)} {_shape_text(inst.shape)}"]
        attributes = _attributes_of(inst)
        if attributes != _NEUTRAL:
            parts.append(repr(attributes))
        if numbered and inst.opcode is Opcode.PARAMETER:
            parts.append(str(inst.parameter_number))
        parts.extend(self.called(callee).hex() for callee in inst.called)
        return "\n".join(parts).encode()

    def _combine(
        self, nodes: Memo[int, _Node], order: Sequence[int], first: dict[int, bytes], leaving: set[int]
    ) -> bytes:
        """Both passes over inputs, whose digests `first` holds, and the ascending positions of `order`."""
        readers: dict[int, list[bytes]] = {position: [] for position in first}
        walk: list[tuple[int, tuple[tuple[int, bytes], ...]]] = [(position, ()) for position in first]
        for position in order:
            name, label, operands, places, made = nodes[position]
            try:
                key = b"".join([first[operand] for operand in operands])
            except KeyError as error:
                raise HloError(
                    f"operand at {error.args[0]} is neither an input nor among the instructions",
                    where=self._module.name,
                    field=name,
                ) from None
            first[position] = made.get(key) or self._make(made, key, label)
            readers[position] = []
            walk.append((position, places))
        if not leaving <= first.keys():
            raise HloError(f"outputs {sorted(leaving - first.keys())} are not part of the subgraph")
        second = []
        walk.reverse()
        for position, places in walk:
            read_by = readers[position]
            read_by.sort()
            # A copy of an empty state is cheaper than a new one.
            state = _EMPTY.copy()
            state.update(first[position] + (b"out" if position in leaving else b"in") + b"".join(read_by))
            digest = state.digest()
            second.append(digest)
            for operand, place in places:
                readers[operand].append(digest + place)
        second.sort()
        return _digest(b"".join(second))

    def _make(self, made: dict[bytes, bytes], key: bytes, label: bytes) -> bytes:
        """The first digest of an instruction that is not kept yet."""
        if self._num_made >= self._most_made:
            self._num_made = 0
            for others in self._made.values():
                others.clear()
        self._num_made += 1
        digest = made[key] = _digest(key + label)
        return digest


def subgraph_fingerprint(
    module: HloModule,
    computation: int,
    inputs: Sequence[int],
    instructions: Sequence[int],
    outputs: Sequence[int],
) -> str:
    """Fingerprint of a part of a computation, such as a kernel.

    Args:
        module: the program.
        computation: position of the computation.
        inputs: positions of values read but not made by the part; only their shapes count.
        instructions: positions of the part's instructions.
        outputs: positions whose values leave the part.

    Returns:
        32 hexadecimal digits (BLAKE2b, 128 bits).

    Raises:
        HloError: if an operand is neither an input nor among the instructions.
    """
    return ModuleFingerprints(module).subgraph(computation, inputs, instructions, outputs)


def module_fingerprint(module: HloModule) -> str:
    """Fingerprint of a whole program: its entry computation and all that it calls; 32 hexadecimal digits."""
    return ModuleFingerprints(module).called(module.entry).hex()


def _digest(data: bytes) -> bytes:
    state = _EMPTY.copy()
    state.update(data)
    return state.digest()


def _shape_text(shape: Shape) -> str:
    # `layout` rather than `minor_to_major`: an unset order means row-major, which is then the same shape.
    if shape.is_tuple:
        return f"({','.join(map(_shape_text, shape.tuple_shapes))})"
    return f"{int(shape.element_type)}{shape.dimensions}{shape.layout}"
