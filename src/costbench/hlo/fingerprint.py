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
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from operator import attrgetter

from costbench.errors import HloError
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape

_DIGEST_BYTES = 16
_NOT_IN_LABEL = frozenset(
    {"name", "opcode", "shape", "operands", "called", "parameter_number", "control_predecessors", "literal"}
)
# Taken from the type, so that a new attribute is part of every fingerprint without a change here.
_ATTRIBUTES = tuple(f.name for f in dataclasses.fields(Instruction) if f.name not in _NOT_IN_LABEL)
_attributes_of = attrgetter(*_ATTRIBUTES)
_NEUTRAL = _attributes_of(Instruction(name="", opcode=Opcode.UNKNOWN, shape=Shape(ElementType.INVALID)))


class ModuleFingerprints:
    """Fingerprints of parts of one module; called computations are digested once.

    Use it where many kernels of a program are fingerprinted; the functions below are for single ones.
    """

    def __init__(self, module: HloModule) -> None:
        self._module = module
        self._called: dict[int, bytes] = {}

    def subgraph(
        self, computation: int, inputs: Sequence[int], instructions: Sequence[int], outputs: Sequence[int]
    ) -> str:
        """As `subgraph_fingerprint`, 32 hexadecimal digits."""
        body = self._module.computations[computation].instructions
        first = {p: _digest(b"input " + _shape_text(body[p].shape).encode()) for p in inputs}
        labels = {p: self._label(body[p]) for p in sorted(instructions)}
        return self._combine(body, labels, first, outputs).hex()

    def label_digests(self, computation: int) -> tuple[list[bytes], list[bytes]]:
        """For every instruction, digests of its own label and of what counts of it as an input; 16 bytes."""
        body = self._module.computations[computation].instructions
        return (
            [_digest(self._label(inst)) for inst in body],
            [_digest(b"input " + _shape_text(inst.shape).encode()) for inst in body],
        )

    def called(self, computation: int) -> bytes:
        """Digest of a whole computation, parameters told apart by their numbers; 16 bytes."""
        known = self._called.get(computation)
        if known is None:
            body = self._module.computations[computation]
            labels = {p: self._label(inst, numbered=True) for p, inst in enumerate(body.instructions)}
            known = self._combine(body.instructions, labels, {}, (body.root,))
            self._called[computation] = known
        return known

    def _label(self, inst: Instruction, *, numbered: bool = False) -> bytes:
        parts = [f"{len(inst.operands)} {int(inst.opcode)} {_shape_text(inst.shape)}"]
        attributes = _attributes_of(inst)
        if attributes != _NEUTRAL:
            parts.append(repr(attributes))
        if numbered and inst.opcode is Opcode.PARAMETER:
            parts.append(str(inst.parameter_number))
        parts.extend(self.called(callee).hex() for callee in inst.called)
        return "\n".join(parts).encode()

    def _combine(
        self,
        body: Sequence[Instruction],
        labels: dict[int, bytes],
        first: dict[int, bytes],
        outputs: Iterable[int],
    ) -> bytes:
        """Both passes over nodes in `first` (already digested inputs) and `labels` (ascending positions)."""
        for position, label in labels.items():
            operands = body[position].operands
            try:
                first[position] = _digest(b"".join([first[o] for o in operands]) + label)
            except KeyError as error:
                raise HloError(
                    f"operand at {error.args[0]} is neither an input nor among the instructions",
                    where=self._module.name,
                    field=body[position].name,
                ) from None
        leaving = set(outputs)
        if not leaving <= first.keys():
            raise HloError(f"outputs {sorted(leaving - first.keys())} are not part of the subgraph")
        readers: dict[int, list[bytes]] = {position: [] for position in first}
        second = []
        for position in sorted(first, reverse=True):
            seen = first[position] + (b"out" if position in leaving else b"in")
            digest = _digest(seen + b"".join(sorted(readers[position])))
            second.append(digest)
            if position in labels:
                for place, operand in enumerate(body[position].operands):
                    readers[operand].append(digest + place.to_bytes(4, "little"))
        return _digest(b"".join(sorted(second)))


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
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


def _shape_text(shape: Shape) -> str:
    # `layout` rather than `minor_to_major`: an unset order means row-major, which is then the same shape.
    if shape.is_tuple:
        return f"({','.join(map(_shape_text, shape.tuple_shapes))})"
    return f"{int(shape.element_type)}{shape.dimensions}{shape.layout}"
