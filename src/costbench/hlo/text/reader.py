"""Reads HLO text, as XLA prints it (`*.txt` dumps), into modules.

    HloModule name, ...
    %computation (parameter: f32[]) -> f32[] { ... }
    ENTRY %main { %x = f32[8]{0} parameter(0)  ROOT %y = f32[8]{0} negate(%x), metadata={...} }

All variants that XLA prints are accepted: with or without `%`, shapes of operands, layouts, comments and
metadata. The text is converted to the message that a binary dump holds and passes the same checks. Contents
of constants are dropped except for integer scalars, which are needed to find how often loops run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from costbench.errors import HloError
from costbench.hlo.module import HloModule
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.reader import module_from_proto
from costbench.hlo.shape import ElementType, Shape
from costbench.hlo.text.attributes import set_attribute, split_list
from costbench.hlo.text.notation import parse_shape
from costbench.hlo.writer import shape_to_proto

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"%?([\w.\-]+)")
_ARRAY = re.compile(r"(\w+)\[([^\]]*)\](?:\{([^}]*)\})?")
_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|/\*.*?\*/|//[^\n]*', re.DOTALL)
_BRACKET = re.compile(r'"(?:\\.|[^"\\])*"|[()\[\]{}]')
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_NAMES = re.compile(r"%?[\w.\-]+")
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_BARE = re.compile(r"[^,\s{}()\[\]\"]*")
# What newer dumps say about source files, between the module's line and its first computation.
_TABLES = re.compile(r"\s*(?:FileNames|FunctionNames|FileLocations|StackFrames)\s*\n(?:[ \t]*\d[^\n]*\n)*")
_MAX_DEPTH = 64
"""Tuples within tuples; protocol buffers end at 100 levels of messages."""
_MAX_DIGITS = 9
"""Of a parameter number, which is an int32."""
_CLOSING = {"(": ")", "[": "]", "{": "}"}
# In the order in which a message lists them.
_CALLED = (
    "body", "condition", "select", "scatter", "to_apply", "calls", "true_computation", "false_computation",
    "branch_computations", "called_computations",
)  # fmt: skip
_WHOLE = {ElementType.S32: 4, ElementType.S64: 5, ElementType.U32: 6, ElementType.U64: 7}
"""Fields of XLA's LiteralProto that hold integers."""


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


class _Reader:
    """A recursive-descent parser: a position in a text, with a method for each construct."""

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        self._place = 0
        self._computations: dict[str, int] = {}
        self._calls: list[tuple[hlo_pb2.HloInstructionProto, Sequence[str], int]] = []
        self._next_id = 1

    def module(self) -> hlo_pb2.HloModuleProto:
        self._expect("HloModule")
        proto = hlo_pb2.HloModuleProto(name=self._name("the module's name"))
        list(self._attributes())
        while (tables := _TABLES.match(self._text, self._place)) is not None:
            self._place = tables.end()
        while not self._at_end():
            is_entry = self._word("ENTRY")
            computation = self._computation(proto)
            if is_entry:
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

    def _computation(self, module: hlo_pb2.HloModuleProto) -> hlo_pb2.HloComputationProto:
        name = self._name("the name of a computation")
        if name in self._computations:
            raise self._error(f"a second computation {name!r}", "another name")
        proto = module.computations.add(name=name, id=len(module.computations) + 1)
        self._computations[name] = proto.id
        if self._peek("("):
            self._balanced()
            self._expect("->")
            self._shape()
        self._expect("{")
        known: dict[str, int] = {}
        root = 0
        while not self._word("}"):
            is_root = self._word("ROOT")
            self._instruction(proto.instructions.add(id=self._next_id), known)
            root = self._next_id if is_root else root
            self._next_id += 1
        proto.root_id = root or self._next_id - 1
        list(self._attributes())
        return proto

    def _instruction(self, proto: hlo_pb2.HloInstructionProto, known: dict[str, int]) -> None:
        place = self._place
        proto.name = self._name("the name of an instruction")
        if proto.name in known:
            raise self._error(f"a second {proto.name!r}", "another name")
        self._expect("=")
        shape = self._shape()
        try:
            proto.shape.CopyFrom(shape_to_proto(shape))
        except ValueError as error:
            raise self._error(f"{str(shape)[:60]}: {error}", "extents below 2^63") from None
        proto.opcode = self._name("an opcode")
        if not self._peek("("):
            raise self._error(f"no operands behind {proto.opcode!r}", "'('")
        inside = self._balanced()
        if proto.opcode == "parameter":
            proto.parameter_number = self._whole(inside)
        elif proto.opcode == "constant":
            _set_literal(proto, shape, inside)
        else:
            proto.operand_ids.extend(self._known(inside, known))
        if proto.opcode == "convolution":
            proto.feature_group_count = proto.batch_group_count = 1
        called: dict[str, Sequence[str]] = {}
        for name, value in self._attributes():
            if name == "control-predecessors":
                proto.control_predecessor_ids.extend(self._known(value[1:-1], known))
            elif name in _CALLED:
                called[name] = [one.lstrip("%") for one in _NAMES.findall(value)]
            else:
                try:
                    set_attribute(proto, name, value)
                except (HloError, ValueError, IndexError) as error:
                    problem = error.problem if isinstance(error, HloError) else str(error)
                    raise self._error(f"{name}={value[:60]}: {problem}", "as XLA prints it") from None
        self._calls.append((proto, [one for name in _CALLED for one in called.get(name, ())], place))
        known[proto.name] = proto.id

    def _known(self, operands: str, known: dict[str, int]) -> Iterator[int]:
        """Yields the ids of operands given by name, with or without shapes in front of the names."""
        for operand in split_list(operands):
            name = operand.split()[-1].lstrip("%") if operand else ""
            if name not in known:
                raise self._error(f"no value {name!r}", "the name of an instruction above")
            yield known[name]

    def _attributes(self) -> Iterator[tuple[str, str]]:
        """Yields attributes while `, name=value` follows."""
        while self._word(","):
            name = self._name("the name of an attribute")
            self._expect("=")
            yield name, self._value()

    def _value(self) -> str:
        """Reads a value: brackets with their contents, a string, or text up to the next comma or space."""
        self._skip_space()
        if self._peek("{") or self._peek("(") or self._peek("["):
            start = self._place
            self._balanced()
            return self._text[start : self._place]
        match = _STRING.match(self._text, self._place) or _BARE.match(self._text, self._place)
        if match is None or not match[0]:
            raise self._error("nothing behind '='", "a value")
        self._place = match.end()
        return match[0]

    def _shape(self, depth: int = 0) -> Shape:
        self._skip_space()
        if depth > _MAX_DEPTH:
            raise self._error("tuples within tuples", f"at most {_MAX_DEPTH} levels")
        if self._word("("):
            members: list[Shape] = []
            while not self._word(")"):
                if members:
                    self._expect(",")
                members.append(self._shape(depth + 1))
            return Shape(ElementType.TUPLE, tuple_shapes=tuple(members))
        match = _ARRAY.match(self._text, self._place)
        if match is None:
            raise self._error("no shape", "e.g. f32[32,128]{1,0}")
        self._place = match.end()
        # Bounds of dynamic sizes count as sizes; of a layout, tiles and memory spaces are left out.
        sizes, order = match[2].replace("<=", ""), (match[3] or "").split(":")[0]
        try:
            return parse_shape(f"{match[1]}[{sizes}]" + (f"{{{order}}}" if order.strip() else ""))
        except HloError as error:
            raise self._error(error.problem, error.expected or "") from None
        except ValueError:
            raise self._error(f"shape {match[0][:60]}", "extents below 2^63") from None

    def _balanced(self) -> str:
        """Reads brackets that open here and returns their contents."""
        self._skip_space()
        start, open_ones = self._place, []
        for match in _BRACKET.finditer(self._text, self._place):
            found = match[0]
            if found in _CLOSING:
                open_ones.append(_CLOSING[found])
            elif found in ")]}":
                if found != open_ones.pop():
                    break
                if not open_ones:
                    self._place = match.end()
                    return self._text[start + 1 : match.start()]
        raise self._error("a bracket that is not closed", "the whole text")

    def _name(self, what: str) -> str:
        self._skip_space()
        match = _NAME.match(self._text, self._place)
        if match is None:
            raise self._error(f"{self._text[self._place : self._place + 20]!r}", what)
        self._place = match.end()
        return match[1]

    def _whole(self, text: str) -> int:
        digits = text.strip()
        if not digits.isdecimal() or len(digits) > _MAX_DIGITS:
            raise self._error(f"{text[:60]!r}", f"a number of at most {_MAX_DIGITS} digits")
        return int(digits)

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._place)
        self._place = match.end() if match else self._place

    def _at_end(self) -> bool:
        self._skip_space()
        return self._place == len(self._text)

    def _peek(self, word: str) -> bool:
        self._skip_space()
        return self._text.startswith(word, self._place)

    def _word(self, word: str) -> bool:
        """Consumes a word if it comes next; returns whether it did."""
        if not self._peek(word):
            return False
        end = self._place + len(word)
        if word[-1].isalpha() and _NAME.match(self._text, end):
            return False
        self._place = end
        return True

    def _expect(self, word: str) -> None:
        if not self._word(word):
            raise self._error(f"{self._text[self._place : self._place + 20]!r}", repr(word))

    def _error(self, problem: str, expected: str) -> HloError:
        line = self._text.count("\n", 0, self._place) + 1
        return HloError(problem, where=self._where, field=f"line {line}", expected=expected)


def _set_literal(proto: hlo_pb2.HloInstructionProto, shape: Shape, inside: str) -> None:
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
