"""Reads HLO text, as XLA prints it (`*.txt` dumps), into modules.

    HloModule name, ...
    %computation (parameter: f32[]) -> f32[] { ... }
    ENTRY %main { %x = f32[8]{0} parameter(0)  ROOT %y = f32[8]{0} negate(%x), metadata={...} }

All variants that XLA prints are accepted: with or without `%`, shapes of operands, layouts, comments and
metadata; and what XLA's parser takes from people: results without a shape where it follows from the operands,
operands that are instructions themselves, and modules without `ENTRY`, whose last computation is the entry.
`slice-start` and the like, short for an asynchronous start of a computation with one slice, are written out.

The text is converted to the message that a binary dump holds and passes the same checks. Contents of
constants are dropped except for integer scalars, which are needed to find how often loops run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

from costbench.errors import HloError
from costbench.hlo.module import HloModule
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.reader import module_from_proto
from costbench.hlo.shape import ElementType, Shape
from costbench.hlo.text.asynchronous import (
    ASYNC_START,
    ASYNC_UPDATE,
    add_wrapped,
    async_opcode,
    async_result,
    unused_name,
)
from costbench.hlo.text.attributes import set_attribute
from costbench.hlo.text.cursor import Cursor
from costbench.hlo.text.inference import inferred_shape
from costbench.hlo.writer import shape_to_proto

_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|/\*.*?\*/|//[^\n]*', re.DOTALL)
_OPERAND = re.compile(r"\s*%?([\w.\-]+)\s*(?=[,)])")
_NAMES = re.compile(r"%?[\w.\-]+")
_INTEGER = re.compile(r"-?[0-9]{1,20}")
# What newer dumps say about source files, between the module's line and its first computation.
_TABLES = re.compile(r"\s*(?:FileNames|FunctionNames|FileLocations|StackFrames)\s*\n(?:[ \t]*\d[^\n]*\n)*")
_MAX_NESTED = 64
"""Levels of instructions that are operands of instructions."""
# In the order in which a message lists them.
_CALLED = (
    "body", "condition", "select", "scatter", "to_apply", "calls", "true_computation", "false_computation",
    "branch_computations", "called_computations",
)  # fmt: skip
_WHOLE = {ElementType.S32: 4, ElementType.S64: 5, ElementType.U32: 6, ElementType.U64: 7}
"""Fields of XLA's LiteralProto that hold integers."""
Proto = hlo_pb2.HloInstructionProto


def looks_like_text(text: str) -> bool:
    """Returns whether a text begins as HLO text does."""
    return _COMMENT.sub(_kept, text[:4096]).lstrip().startswith("HloModule")


def module_from_text(text: str, *, where: str) -> HloModule:
    """Returns the verified module that a text describes.

    Raises:
        HloError: naming the line, if the text is truncated or not HLO; or broken invariants, as
            `module_from_proto` does.
    """
    return module_from_proto(proto_from_text(text, where=where), where=where)


def proto_from_text(text: str, *, where: str) -> hlo_pb2.HloModuleProto:
    """Returns the message of the module that a text describes, with ids in order of the text.

    Raises:
        HloError: naming the line, if the text is truncated or not HLO.
    """
    return _Reader(_COMMENT.sub(_kept, text), where).module()


def _kept(match: re.Match[str]) -> str:
    """Keeps a string, and replaces a comment by its line breaks so that errors name the right line."""
    found = match[0]
    return found if found.startswith('"') else " " + "\n" * found.count("\n")


class _Value(NamedTuple):
    """A value that other instructions may read."""

    id: int
    shape: Shape
    is_async: bool


class _Computation(NamedTuple):
    """A computation that is being read: its message so far, and its values by name."""

    proto: hlo_pb2.HloComputationProto
    values: dict[str, _Value]


class _Reader(Cursor):
    """A recursive-descent parser with a method for each construct of a module."""

    def __init__(self, text: str, where: str) -> None:
        super().__init__(text, where)
        self._module = hlo_pb2.HloModuleProto()
        self._computations: dict[str, int] = {}
        self._results: dict[str, Shape] = {}
        self._calls: list[tuple[Proto, Sequence[str], int]] = []
        self._ids = count(1)

    def module(self) -> hlo_pb2.HloModuleProto:
        """Reads the whole text."""
        self._expect("HloModule")
        proto = self._module
        proto.name = self._name("the module's name")
        list(self._attributes())
        while (tables := _TABLES.match(self._text, self._place)) is not None:
            self._place = tables.end()
        has_entry = False
        while not self._at_end():
            is_entry = self._word("ENTRY")
            has_entry = has_entry or is_entry
            computation = self._computation()
            if is_entry or not has_entry:
                proto.entry_computation_id = computation.id
                proto.entry_computation_name = computation.name
        if not proto.entry_computation_id:
            raise self._error("no entry computation", "one that begins with ENTRY")
        for inst, names, place in self._calls:
            for name in names:
                if name not in self._computations:
                    self._place = place
                    raise self._error(f"no computation {name!r}", "the name of one")
                inst.called_computation_ids.append(self._computations[name])
        return proto

    def _computation(self) -> hlo_pb2.HloComputationProto:
        name = self._name("the name of a computation")
        if name in self._computations:
            raise self._error(f"a second computation {name!r}", "another name")
        proto = self._module.computations.add(name=name, id=len(self._module.computations) + 1)
        self._computations[name] = proto.id
        if self._peek("("):
            self._balanced()
            self._expect("->")
            self._shape()
        self._expect("{")
        computation = _Computation(proto, {})
        root = last = None
        while not self._word("}"):
            is_root = self._word("ROOT")
            last = self._instruction(computation)
            root = last if is_root else root
        returned = root or last
        if returned is not None:
            proto.root_id = returned.id
            self._results[name] = returned.shape
        list(self._attributes())
        return proto

    def _instruction(self, computation: _Computation) -> _Value:
        name = self._name("the name of an instruction")
        if name in computation.values:
            raise self._error(f"a second {name!r}", "another name")
        self._expect("=")
        value = self._defined(computation, name, self._shape_or_none())
        computation.values[name] = value
        return value

    def _defined(self, computation: _Computation, name: str, shape: Shape | None, depth: int = 0) -> _Value:
        """Reads what defines a value, from its opcode on; of an operand (`depth` above 0) no attributes."""
        place = self._place
        opcode = self._name("an opcode")
        if not self._peek("("):
            raise self._error(f"no operands behind {opcode!r}", "'('")
        is_leaf = opcode in ("parameter", "constant")
        inside = self._balanced() if is_leaf else ""
        operands = [] if is_leaf else self._operands(computation, depth)
        shapes = [operand.shape for operand in operands]
        reads_async = any(operand.is_async for operand in operands)
        outer, inner = async_opcode(opcode, shape, shapes, reads_async=reads_async)
        proto = computation.proto.instructions.add(name=name, opcode=outer, id=next(self._ids))
        proto.operand_ids.extend(operand.id for operand in operands)
        inst = proto
        if outer == ASYNC_START and inner:
            inst = self._wrapped(proto, inner, shape, shapes)
        if inst.opcode in ("convolution", "custom-call"):
            inst.feature_group_count = inst.batch_group_count = 1
        called = () if depth else self._set_attributes(inst, proto, computation)
        self._calls.append((inst, called, place))
        if shape is None:
            shape = self._inferred(inst, shapes, called)
        self._set_shape(proto, shape)
        if opcode == "parameter":
            proto.parameter_number = self._whole(inside)
        elif opcode == "constant":
            _set_literal(proto, shape, inside)
        return _Value(proto.id, shape, outer in (ASYNC_START, ASYNC_UPDATE))

    def _set_attributes(self, inst: Proto, outer: Proto, computation: _Computation) -> Sequence[str]:
        """Reads attributes and returns the names of called computations.

        Args:
            inst: what they describe: the wrapped instruction, where `outer` is asynchronous.
            outer: the instruction as it is printed.
            computation: that `outer` belongs to.
        """
        called: dict[str, Sequence[str]] = {}
        for name, value in self._attributes():
            if name == "control-predecessors":
                names = [one.lstrip("%") for one in _NAMES.findall(value)]
                outer.control_predecessor_ids.extend(self._known(one, computation).id for one in names)
            elif name in _CALLED:
                called[name] = [one.lstrip("%") for one in _NAMES.findall(value)]
            else:
                try:
                    set_attribute(inst, name, value)
                except (HloError, ValueError, IndexError) as error:
                    problem = error.problem if isinstance(error, HloError) else str(error)
                    raise self._error(f"{name}={value[:60]}: {problem}", "as XLA prints it") from None
        return [one for name in _CALLED for one in called.get(name, ())]

    def _wrapped(self, start: Proto, opcode: str, shape: Shape | None, operands: Sequence[Shape]) -> Proto:
        """Adds the computation that an asynchronous start calls; returns its root, without attributes."""
        result = None if shape is None else async_result(shape)
        if result is None:
            expected = f"({', '.join(map(str, operands))}), the shape of the {opcode}, ..."
            raise self._error(f"{shape or 'no shape'} of a {opcode}-start", f"({expected})")
        computations = self._module.computations
        name = unused_name("async_wrapped", self._computations)
        wrapped = computations.add(name=name, id=len(computations) + 1)
        self._computations[name] = wrapped.id
        start.called_computation_ids.append(wrapped.id)
        return add_wrapped(wrapped, opcode, operands, result, self._ids)

    def _operands(self, computation: _Computation, depth: int) -> list[_Value]:
        """Reads operands: names, with or without shapes in front of them, or instructions."""
        found: list[_Value] = []
        self._expect("(")
        while not self._word(")"):
            if found:
                self._expect(",")
            found.append(self._operand(computation, depth))
        return found

    def _operand(self, computation: _Computation, depth: int) -> _Value:
        match, shape = _OPERAND.match(self._text, self._place), None
        if match is None:
            shape = self._shape_or_none()
            match = _OPERAND.match(self._text, self._place)
        if match is not None:
            self._place = match.end()
            return self._known(match[1], computation)
        if depth >= _MAX_NESTED:
            raise self._error("operands within operands", f"at most {_MAX_NESTED} levels")
        value = self._defined(computation, "", shape, depth + 1)
        inst = computation.proto.instructions[-1]
        inst.name = f"{inst.opcode}.anon.{inst.id}"
        return value

    def _known(self, name: str, computation: _Computation) -> _Value:
        value = computation.values.get(name)
        if value is None:
            raise self._error(f"no value {name!r}", "the name of an instruction above")
        return value

    def _inferred(self, inst: Proto, operands: Sequence[Shape], called: Sequence[str]) -> Shape:
        results = [self._results[name] for name in called if name in self._results]
        try:
            return inferred_shape(inst, operands, results)
        except HloError as error:
            raise self._error(error.problem, error.expected or "") from None

    def _set_shape(self, proto: Proto, shape: Shape) -> None:
        try:
            proto.shape.CopyFrom(shape_to_proto(shape))
        except ValueError as error:
            raise self._error(f"{str(shape)[:60]}: {error}", "extents below 2^63") from None


def _set_literal(proto: Proto, shape: Shape, inside: str) -> None:
    field = _WHOLE.get(shape.element_type)
    if field is None or shape.rank or not _INTEGER.fullmatch(inside.strip()):
        return
    value = int(inside) % (1 << 64)
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    proto.literal.shape.CopyFrom(proto.shape)
    proto.literal.MergeFromString(bytes([field << 3 | 2, len(digits)]) + bytes(digits))
