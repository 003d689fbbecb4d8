"""A position in an HLO text, and the smallest parts of its grammar: names, values, shapes and brackets."""

from __future__ import annotations

import re
from collections.abc import Iterator

from costbench.errors import HloError
from costbench.hlo.shape import ElementType, Shape
from costbench.hlo.text.notation import parse_shape

_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"%?([\w.\-]+)")
_ARRAY = re.compile(r"(\w+)\[([^\]]*)\](?:\{([^}]*)\})?")
_ARRAY_BEGINS = re.compile(r"\w+\[")
_BRACKET = re.compile(r'"(?:\\.|[^"\\])*"|[()\[\]{}]', re.DOTALL)
_STRING = re.compile(r'"(?:\\.|[^"\\])*"', re.DOTALL)
_BARE = re.compile(r"[^,\s{}()\[\]\"]+")
_CONTINUED = re.compile(r"\s*(?=\{)")
_LITERAL = re.compile(r"[ \t]+-?[\w.]+(?=[ \t]*[,\n}])")
_CLOSING = {"(": ")", "[": "]", "{": "}"}
_MAX_DEPTH = 64
"""Tuples within tuples; protocol buffers end at 100 levels of messages."""
_MAX_DIGITS = 9
"""Of a parameter number, which is an int32."""


class Cursor:
    """A position in a text, with a method for each part of the grammar that reads it and moves on.

    Args:
        text: HLO without comments.
        where: file that the text is from, for errors.
    """

    def __init__(self, text: str, where: str) -> None:
        self._text = text
        self._where = where
        self._place = 0

    def _attributes(self) -> Iterator[tuple[str, str]]:
        """Yields attributes while `, name=value` follows."""
        while self._word(","):
            name = self._name("the name of an attribute")
            self._expect("=")
            value = self._value()
            # A literal is a shape and a value: the value of a scalar stands behind a space.
            if name == "literal" and (scalar := _LITERAL.match(self._text, self._place)):
                self._place = scalar.end()
            yield name, value

    def _value(self) -> str:
        """Reads a value and returns its text.

        A value is a row of strings, brackets with their contents and plain letters without a space between
        them, such as `[2,4]<=[8]` or `f32[2]{0}`; only an opening brace may follow a space, as it does in
        `mesh['x'=8] {'x'}`, for nothing else begins with one.
        """
        self._skip_space()
        start = self._place
        while True:
            if self._text.startswith(("{", "(", "["), self._place):
                self._balanced()
            elif match := _STRING.match(self._text, self._place) or _BARE.match(self._text, self._place):
                self._place = match.end()
            elif self._place > start and (brace := _CONTINUED.match(self._text, self._place)):
                self._place = brace.end()
            else:
                break
        if self._place == start:
            raise self._error("nothing behind '='", "a value")
        return self._text[start : self._place]

    def _shape_or_none(self) -> Shape | None:
        """Reads a shape if one comes next."""
        if self._peek("(") or _ARRAY_BEGINS.match(self._text, self._place) is not None:
            return self._shape()
        return None

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
        if "?" in match[2]:
            raise self._error(f"an extent without a bound in {match[0][:60]}", "a bound, e.g. f32[<=32,128]")
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
