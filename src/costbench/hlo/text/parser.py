"""Reads HLO text, as XLA prints it (`*.txt` dumps), into modules.

    HloModule name, ...
    %computation (parameter: f32[]) -> f32[] { ... }
    ENTRY %main { %x = f32[8]{0} parameter(0)  ROOT %y = f32[8]{0} negate(%x), metadata={...} }

All variants that XLA prints are accepted: with or without `%`, shapes of operands, layouts, comments and
metadata; and what XLA's parser takes from people: results without a shape where it follows from the operands,
operands that are instructions themselves, modules without `ENTRY`, whose last computation is the entry, and
called computations in place of their names, `to_apply={ ... ROOT ... }`, as XLA's canonical form has them.

XLA's short form of asynchronous instructions is written out (`costbench.hlo.text.asynchronous`).

The text is converted to the message that a binary dump holds and passes the same checks. Contents of
constants are dropped except for integer scalars, which are needed to find how often loops run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

from costbench.errors import HloError
from costbench.hlo.conversion import INTEGER_FIELDS, module_from_proto, shape_to_proto
from costbench.hlo.module import HloModule
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.shape import ElementType, Shape, parse_shape
from costbench.hlo.text.asynchronous import (
    ASYNC_START,
    ASYNC_UPDATE,
    add_wrapped,
    async_opcode,
    async_result,
)
from costbench.hlo.text.attributes import set_attribute
from costbench.hlo.text.shape_inference import infer_shape
from costbench.limits import MAX_INSTRUCTIONS, MAX_NESTING, MIN_SHAPE_PARTS

# Possessive (`*+`): nothing is tried twice and nothing remembered, so time and memory are linear. What is not
# closed matches to the end of the text, where it is refused.
_STRING_OF = r'"[^"\\]*+(?:\\.[^"\\]*+)*+'
_COMMENT = re.compile(_STRING_OF + r'(?:"|\\?\Z)|/\*.*?(?:\*/|\Z)|//[^\n]*', re.DOTALL)
_BEGINS = re.compile(r"(?:\s++|/\*.*?\*/|//[^\n]*+)*+HloModule", re.DOTALL)
_OPERAND = re.compile(r"\s*%?([\w.\-]+)\s*(?=[,)])")
_LISTED = re.compile(r"\s*%?([\w.\-]+)\s*,")
_NAMES = re.compile(r"%?[\w.\-]+")
_INTEGER = re.compile(r"-?[0-9]{1,20}")
# What newer dumps say about source files, between the module's line and its first computation.
_TABLES = re.compile(r"\s*(?:FileNames|FunctionNames|FileLocations|StackFrames)\s*\n(?:[ \t]*+\d[^\n]*+\n)*+")
# In the order in which a message lists them.
_CALLED = (
    "body", "condition", "select", "scatter", "to_apply", "calls", "true_computation", "false_computation",
    "branch_computations", "called_computations",
)  # fmt: skip
_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"%?([\w.\-]+)")
_ARRAY = re.compile(r"(\w+)\[([^\]]*)\](?:\{([^}]*)\})?")
_BUFFER = re.compile(r"b\((?=\w+\[|\()")
_SHAPE_BEGINS = re.compile(r"\w+\[|" + _BUFFER.pattern)
_BRACKET = re.compile(_STRING_OF + r'"|[()\[\]{}]', re.DOTALL)
_STRING = re.compile(_STRING_OF + '"', re.DOTALL)
_BARE = re.compile(r"[^,\s{}()\[\]\"]+")
_CONTINUED = re.compile(r"\s*(?=\{)")
_BODY = re.compile(r"\{\s*(?:ROOT\s+)?%?[\w.\-]+\s*=")
_LITERAL = re.compile(r"[ \t]+-?[\w.]+(?=[ \t]*[,\n}])")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_MAX_DIGITS = 9
"""Most digits of a parameter number, which is an int32."""
_MIN_INSTRUCTION = len("a=b(c)\n")
Proto = hlo_pb2.HloInstructionProto


def looks_like_text(text: str) -> bool:
    """Returns whether a text begins as HLO text does."""
    return _BEGINS.match(text) is not None


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
    return _Parser(_without_comments(text, where), where).module()


def _without_comments(text: str, where: str) -> str:
    """Returns a text with line breaks in place of comments, so that errors name the right line.

    Raises:
        HloError: naming the line, if a comment or a string is not closed.
    """

    def blank(match: re.Match[str]) -> str:
        part = match[0]
        kind = "string" if part.startswith('"') else "comment"
        if match.end() == len(text) and not _is_closed(part):
            line = text.count("\n", 0, match.start()) + 1
            problem = f"a {kind} that is not closed"
            raise HloError(problem, where=where, field=f"line {line}", expected="the whole text")
        return part if kind == "string" else " " + "\n" * part.count("\n")

    return _COMMENT.sub(blank, text)


def _is_closed(part: str) -> bool:
    """Returns whether a string or comment at the end of a text is whole."""
    if part.startswith('"'):
        return _STRING.fullmatch(part) is not None
    return part.startswith("//") or (len(part) > 3 and part.endswith("*/"))


class _Cursor:
    """A position in a text, with a method for each part of the grammar that reads it and moves on.

    Args:
        text: HLO without comments.
        where: file that the text is from, for errors.
    """

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        self._position = 0
        self._arrays: dict[str, Shape] = {}

    def _attributes(self) -> Iterator[tuple[str, str]]:
        """Yields attributes while `, name=value` follows."""
        while self._word(","):
            name = self._name("the name of an attribute")
            self._expect("=")
            value = self._value()
            # A literal is a shape and a value: the value of a scalar stands behind a space.
            if name == "literal" and (scalar := _LITERAL.match(self._text, self._position)):
                self._position = scalar.end()
            yield name, value

    def _value(self) -> str:
        """Reads a value and returns its text.

        A value is a row of strings, brackets with their contents and plain letters without a space between
        them, such as `[2,4]<=[8]` or `f32[2]{0}`; only an opening brace may follow a space, as it does in
        `mesh['x'=8] {'x'}`, for nothing else begins with one.
        """
        self._skip_space()
        start = self._position
        while True:
            if self._text.startswith(("{", "(", "["), self._position):
                self._brackets()
            elif match := _STRING.match(self._text, self._position) or _BARE.match(
                self._text, self._position
            ):
                self._position = match.end()
            elif self._position > start and (brace := _CONTINUED.match(self._text, self._position)):
                self._position = brace.end()
            else:
                break
        if self._position == start:
            raise self._error("nothing behind '='", "a value")
        return self._text[start : self._position]

    def _shape_or_none(self) -> Shape | None:
        """Reads a shape if one comes next."""
        if self._peek("(") or _SHAPE_BEGINS.match(self._text, self._position) is not None:
            return self._shape()
        return None

    def _shape(self, depth: int = 0) -> Shape:
        self._skip_space()
        if depth > MAX_NESTING:
            raise self._error("tuples within tuples", f"at most {MAX_NESTING} levels")
        if self._word("("):
            members: list[Shape] = []
            while not self._word(")"):
                if members:
                    self._expect(",")
                members.append(self._shape(depth + 1))
            return Shape(ElementType.TUPLE, tuple_shapes=tuple(members))
        match = _ARRAY.match(self._text, self._position)
        if match is None:
            if _BUFFER.match(self._text, self._position):
                raise self._error("a buffer, b(...)", "HLO as it is before buffers are assigned")
            raise self._error("no shape", "e.g. f32[32,128]{1,0}")
        shape = self._arrays.get(match[0])
        if shape is None:
            shape = self._arrays[match[0]] = self._array(match)
        self._position = match.end()
        return shape

    def _array(self, match: re.Match[str]) -> Shape:
        if "?" in match[2]:
            raise self._error(f"an extent without a bound in {match[0][:60]}", "a bound, e.g. f32[<=32,128]")
        # Bounds of dynamic sizes count as sizes; of a layout, tiles and memory spaces are left out.
        sizes, order = match[2].replace("<=", ""), (match[3] or "").split(":")[0]
        try:
            return parse_shape(f"{match[1]}[{sizes}]" + (f"{{{order}}}" if order.strip() else ""))
        except HloError as error:
            raise self._error(error.problem, error.expected or "") from None
        except ValueError:
            raise self._error(f"shape {match[0][:60]}", "extents below 2^63") from None

    def _brackets(self) -> str:
        """Reads brackets that open here and returns their contents."""
        self._skip_space()
        start, closing = self._position, []
        for match in _BRACKET.finditer(self._text, self._position):
            bracket = match[0]
            if bracket in _CLOSING:
                closing.append(_CLOSING[bracket])
            elif bracket in ")]}":
                if bracket != closing.pop():
                    break
                if not closing:
                    self._position = match.end()
                    return self._text[start + 1 : match.start()]
        raise self._error("a bracket that is not closed", "the whole text")

    def _name(self, what: str) -> str:
        self._skip_space()
        match = _NAME.match(self._text, self._position)
        if match is None:
            raise self._error(f"{self._text[self._position : self._position + 20]!r}", what)
        self._position = match.end()
        return match[1]

    def _natural_number(self, text: str) -> int:
        digits = text.strip()
        if not digits.isdecimal() or len(digits) > _MAX_DIGITS:
            raise self._error(f"{text[:60]!r}", f"a number of at most {_MAX_DIGITS} digits")
        return int(digits)

    def _skip_space(self) -> None:
        if not self._text[self._position : self._position + 1].isspace():
            return
        match = _SPACE.match(self._text, self._position)
        self._position = match.end() if match else self._position

    def _is_at_end(self) -> bool:
        self._skip_space()
        return self._position == len(self._text)

    def _peek(self, word: str) -> bool:
        self._skip_space()
        return self._text.startswith(word, self._position)

    def _word(self, word: str) -> bool:
        """Consumes a word if it comes next; returns whether it did."""
        if not self._peek(word):
            return False
        end = self._position + len(word)
        if word[-1].isalpha() and _NAME.match(self._text, end):
            return False
        self._position = end
        return True

    def _expect(self, word: str) -> None:
        if not self._word(word):
            raise self._error(f"{self._text[self._position : self._position + 20]!r}", repr(word))

    def _error(self, problem: str, expected: str) -> HloError:
        line = self._text.count("\n", 0, self._position) + 1
        return HloError(problem, where=self._where, field=f"line {line}", expected=expected)


class _Value(NamedTuple):
    """A value that other instructions may read."""

    id: int
    shape: Shape
    is_async: bool


class _Computation(NamedTuple):
    """A computation that is being read: its message so far, and its values by name."""

    proto: hlo_pb2.HloComputationProto
    values: dict[str, _Value]


class _Parser(_Cursor):
    """A recursive-descent parser with a method for each construct of a module."""

    def __init__(self, text: str, where: str) -> None:
        super().__init__(text, where)
        self._module = hlo_pb2.HloModuleProto()
        self._computations: dict[str, int] = {}
        self._results: dict[str, Shape] = {}
        # Instructions with the names of the computations that they call, and their positions in the text.
        self._calls: list[tuple[Proto, Sequence[str], int]] = []
        self._ids = count(1)
        # Computations without a name in the text, and what their names begin with.
        self._nameless: list[tuple[hlo_pb2.HloComputationProto, str]] = []
        self._depth = 0
        self._parts_left = max(MIN_SHAPE_PARTS, len(text) // _MIN_INSTRUCTION)

    def module(self) -> hlo_pb2.HloModuleProto:
        """Reads the whole text."""
        self._expect("HloModule")
        proto = self._module
        proto.name = self._name("the module's name")
        list(self._attributes())
        while (tables := _TABLES.match(self._text, self._position)) is not None:
            self._position = tables.end()
        has_entry = False
        while not self._is_at_end():
            is_entry = self._word("ENTRY")
            has_entry = has_entry or is_entry
            computation = self._computation()
            if is_entry or not has_entry:
                proto.entry_computation_id = computation.id
                proto.entry_computation_name = computation.name
        if not proto.entry_computation_id:
            raise self._error("no entry computation", "one that begins with ENTRY")
        for inst, names, position in self._calls:
            for name in names:
                if name not in self._computations:
                    self._position = position
                    raise self._error(f"no computation {name!r}", "the name of one")
                inst.called_computation_ids.append(self._computations[name])
        self._name_the_nameless()
        return proto

    def _computation(self) -> hlo_pb2.HloComputationProto:
        name = self._name("the name of a computation")
        if name in self._computations:
            raise self._error(f"a second computation {name!r}", "another name")
        proto = self._module.computations.add(name=name, id=len(self._module.computations) + 1)
        self._computations[name] = proto.id
        if self._peek("("):
            self._brackets()
            self._expect("->")
            self._shape()
        self._body(proto, name)
        list(self._attributes())
        return proto

    def _body(self, proto: hlo_pb2.HloComputationProto, name: str) -> None:
        """Reads the instructions of a computation."""
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

    def _instruction(self, computation: _Computation) -> _Value:
        name = self._name("the name of an instruction")
        if name in computation.values:
            raise self._error(f"a second {name!r}", "another name")
        self._expect("=")
        value = self._definition(computation, name, self._shape_or_none())
        computation.values[name] = value
        return value

    def _definition(
        self, computation: _Computation, name: str, shape: Shape | None, depth: int = 0
    ) -> _Value:
        """Reads what defines a value, from its opcode on; of an operand (`depth` above 0) no attributes."""
        start = self._position
        opcode = self._name("an opcode")
        if not self._peek("("):
            raise self._error(f"no operands behind {opcode!r}", "'('")
        is_leaf = opcode in ("parameter", "constant")
        inside = self._brackets() if is_leaf else ""
        operands = [] if is_leaf else self._operands(computation, depth)
        shapes = [operand.shape for operand in operands]
        reads_async = any(operand.is_async for operand in operands)
        outer, inner = async_opcode(opcode, shape, shapes, reads_async=reads_async)
        proto = computation.proto.instructions.add(name=name, opcode=outer, id=next(self._ids))
        if proto.id > MAX_INSTRUCTIONS:
            raise self._error("too many instructions", f"at most {MAX_INSTRUCTIONS}")
        proto.operand_ids.extend(operand.id for operand in operands)
        inst = proto
        if outer == ASYNC_START and inner:
            inst = self._add_wrapped_computation(proto, inner, shape, shapes)
        if inst.opcode in ("convolution", "custom-call"):
            inst.feature_group_count = inst.batch_group_count = 1
        called = () if depth else self._set_attributes(inst, proto, computation)
        self._calls.append((inst, called, start))
        if shape is None:
            shape = self._infer_shape(inst, shapes, called)
        self._set_shape(proto, shape)
        if opcode == "parameter":
            proto.parameter_number = self._natural_number(inside)
        elif opcode == "constant":
            try:
                _set_literal(proto, shape, inside)
            except ValueError:
                raise self._error(f"constant({inside[:60]})", f"a value of {shape}") from None
        return _Value(proto.id, shape, outer in (ASYNC_START, ASYNC_UPDATE))

    def _set_attributes(self, inst: Proto, outer: Proto, computation: _Computation) -> Sequence[str]:
        """Reads attributes and returns the names of called computations.

        Args:
            inst: instruction that they describe: the wrapped one, where `outer` is asynchronous.
            outer: instruction as it is printed.
            computation: computation that `outer` belongs to.
        """
        called: dict[str, Sequence[str]] = {}
        for name, value in self._attributes():
            if name == "control-predecessors":
                predecessors = [self._value_named(other, computation) for other in _names(value)]
                outer.control_predecessor_ids.extend(value.id for value in predecessors)
            elif name in _CALLED:
                called[name] = self._called(value) if "=" in value else _names(value)
            else:
                try:
                    set_attribute(inst, name, value)
                except (HloError, ValueError, IndexError) as error:
                    problem, expected = str(error), "as XLA prints it"
                    if isinstance(error, HloError):
                        problem, expected = error.problem, error.expected or expected
                    raise self._error(f"{name}={value[:60]}: {problem}", expected) from None
        return [callee for name in _CALLED for callee in called.get(name, ())]

    def _called(self, value: str) -> Sequence[str]:
        """Reads the value before this position again, as computations; returns keys to find them by."""
        end, self._position = self._position, self._position - len(value)
        if _BODY.match(value) is not None:
            return [self._nested()]
        keys: list[str] = []
        self._expect("{")
        while not self._word("}"):
            if keys:
                self._expect(",")
            keys.append(self._nested() if self._peek("{") else self._name("a computation"))
        self._position = end
        return keys

    def _nested(self) -> str:
        """Reads the body of a computation without a name, and returns a key that no name is."""
        if self._depth >= MAX_NESTING:
            raise self._error("computations within computations", f"at most {MAX_NESTING} levels")
        proto = self._add_nameless("nested")
        key = f"{{{proto.id}}}"
        self._computations[key] = proto.id
        self._depth += 1
        self._body(proto, key)
        self._depth -= 1
        return key

    def _add_nameless(self, stem: str) -> hlo_pb2.HloComputationProto:
        proto = self._module.computations.add(id=len(self._module.computations) + 1)
        self._nameless.append((proto, stem))
        return proto

    def _name_the_nameless(self) -> None:
        numbers = {stem: count(0) for _, stem in self._nameless}
        for proto, stem in self._nameless:
            names = (f"{stem}.{number}" if number else stem for number in numbers[stem])
            proto.name = next(name for name in names if name not in self._computations)

    def _add_wrapped_computation(
        self, start: Proto, opcode: str, shape: Shape | None, operands: Sequence[Shape]
    ) -> Proto:
        """Adds the computation that an asynchronous start calls; returns its root, without attributes."""
        result = None if shape is None else async_result(shape)
        if result is None:
            expected = f"({', '.join(map(str, operands))}), the shape of the {opcode}, ..."
            raise self._error(f"{shape or 'no shape'} of a {opcode}-start", f"({expected})")
        wrapped = self._add_nameless("async_wrapped")
        start.called_computation_ids.append(wrapped.id)
        return add_wrapped(wrapped, opcode, operands, result, self._ids)

    def _operands(self, computation: _Computation, depth: int) -> list[_Value]:
        """Reads operands: names, with or without shapes in front of them, or instructions."""
        operands: list[_Value] = []
        self._expect("(")
        while not self._word(")"):
            if operands:
                self._expect(",")
            # Almost all lists are of names alone.
            while (match := _LISTED.match(self._text, self._position)) is not None:
                self._position = match.end()
                operands.append(self._value_named(match[1], computation))
            operands.append(self._operand(computation, depth))
        return operands

    def _operand(self, computation: _Computation, depth: int) -> _Value:
        match, shape = _OPERAND.match(self._text, self._position), None
        if match is None:
            shape = self._shape_or_none()
            match = _OPERAND.match(self._text, self._position)
        if match is not None:
            self._position = match.end()
            return self._value_named(match[1], computation)
        if depth >= MAX_NESTING:
            raise self._error("operands within operands", f"at most {MAX_NESTING} levels")
        value = self._definition(computation, "", shape, depth + 1)
        inst = computation.proto.instructions[-1]
        inst.name = f"{inst.opcode}.anon.{inst.id}"
        return value

    def _value_named(self, name: str, computation: _Computation) -> _Value:
        value = computation.values.get(name)
        if value is None:
            raise self._error(f"no value {name!r}", "the name of an instruction above")
        return value

    def _infer_shape(self, inst: Proto, operands: Sequence[Shape], called: Sequence[str]) -> Shape:
        results = [self._results[name] for name in called if name in self._results]
        try:
            shape = infer_shape(inst, operands, results)
        except HloError as error:
            raise self._error(error.problem, error.expected or "") from None
        self._count_parts(shape)
        return shape

    def _count_parts(self, shape: Shape) -> None:
        """Counts the parts of shapes that the text leaves out: a tuple of one tuple, twice, doubles them."""
        parts = [(shape, 0)]
        self._parts_left -= 1
        while parts:
            part, depth = parts.pop()
            self._parts_left -= len(part.tuple_shapes)
            if depth > MAX_NESTING:
                raise self._error("tuples within tuples", f"at most {MAX_NESTING} levels")
            if self._parts_left < 0:
                raise self._error("too many parts of shapes that the text leaves out", "them in the text")
            parts.extend((member, depth + 1) for member in part.tuple_shapes)

    def _set_shape(self, proto: Proto, shape: Shape) -> None:
        try:
            proto.shape.CopyFrom(shape_to_proto(shape))
        except ValueError as error:
            raise self._error(f"{str(shape)[:60]}: {error}", "extents below 2^63") from None


def _names(value: str) -> list[str]:
    return [name.lstrip("%") for name in _NAMES.findall(value)]


def _set_literal(proto: Proto, shape: Shape, inside: str) -> None:
    field = INTEGER_FIELDS.get(shape.element_type)
    if field is None or shape.rank or not _INTEGER.fullmatch(inside.strip()):
        return
    proto.literal.shape.CopyFrom(proto.shape)
    getattr(proto.literal, field).append(int(inside))
