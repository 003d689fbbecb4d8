"""The error tree. Every error a user can cause names the file, the field and what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from os import PathLike
from typing import TypeVar

from costbench.limits import MAX_MESSAGE_LENGTH

Error = TypeVar("Error", bound="CostbenchError")


class CostbenchError(Exception):
    """A problem with what came in; the command line prints it as one line and exits with 1.

    Args:
        problem: description of what is wrong, with the offending value.
        where: file (or program, kernel, section) that has the problem.
        field: field or key inside `where`.
        expected: description of what would have been accepted.
    """

    def __init__(
        self,
        problem: str,
        *,
        where: str | PathLike[str] | None = None,
        field: str | None = None,
        expected: str | None = None,
    ) -> None:
        self.problem = problem
        self.where = None if where is None else str(where)
        self.field = field
        self.expected = expected
        super().__init__(self.message())

    def message(self) -> str:
        """Returns `where: field: problem (expected ...)` in one line, leaving out what is not known.

        Spaces and line ends are collapsed, unprintable letters are escaped, and the middle of the longest
        parts is left out where the line would have 500 letters or more.
        """
        parts = [_printable(part or "") for part in (self.where, self.field, self.problem, self.expected)]
        words = MAX_MESSAGE_LENGTH - len(_joined(*"wfpe")) + len(parts)
        longest = max(map(len, parts))
        while sum(min(len(part), longest) for part in parts) > words:
            longest -= 1
        return _joined(*(_shortened(part, longest) for part in parts))

    def recast(
        self, kind: type[Error], *, where: str | PathLike[str] | None = None, field: str | None = None
    ) -> Error:
        """Returns the problem as an error of another kind, or of another file or field.

        Args:
            kind: class of the new error.
            where: file that has the problem; None for the one of this error.
            field: field inside `where`; None for the one of this error.
        """
        return kind(
            self.problem, where=where or self.where, field=field or self.field, expected=self.expected
        )

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only fields do not survive the default pickling between worker processes.
        return (_rebuild, (type(self), self.problem, self.where, self.field, self.expected))


def _rebuild(
    kind: type[CostbenchError], problem: str, where: str | None, field: str | None, expected: str | None
) -> CostbenchError:
    return kind(problem, where=where, field=field, expected=expected)


class ParamsError(CostbenchError):
    """An unknown key, a wrong type or an impossible value in a parameter file."""


class HloError(CostbenchError):
    """Bytes that are no HLO module, or a module that breaks an invariant."""


class TargetError(CostbenchError):
    """An unknown chip, or a chip file with a missing or impossible field."""


class UnsupportedKernelError(CostbenchError):
    """A kernel that the compiler or the machine cannot lower; never priced as zero."""


class SpaceTooLargeError(UnsupportedKernelError):
    """A decision space with more decisions than can be numbered or listed."""


class DataError(CostbenchError):
    """A missing, corrupt or half-written data file, or values such as NaN that cannot be data."""


class DivergedError(DataError):
    """A training whose loss is no longer finite."""


class ChoiceError(CostbenchError):
    """A name that is not among the choices."""


def _joined(where: str, field: str, problem: str, expected: str) -> str:
    head = ": ".join(part for part in (where, field, problem) if part)
    return f"{head} (expected {expected})" if expected else head


def _printable(text: str) -> str:
    """Returns a text in one line; what no terminal should get, such as its control sequences, is escaped."""
    # Of a value of megabytes only the ends are looked at.
    line = " ".join(_shortened(text, 4 * MAX_MESSAGE_LENGTH).split())
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)


def _shortened(text: str, length: int) -> str:
    """Returns a text with its middle left out if it is longer than `length`."""
    if len(text) <= length:
        return text
    end = (length - 3) // 3
    return f"{text[: length - 3 - end]}...{text[len(text) - end :]}"


def one_line(error: BaseException) -> str:
    """Returns the message of an error, often a library's, in one line; the kind of error if it has none."""
    return _printable(str(error)) or type(error).__name__


def nearest(name: object, known: Iterable[str]) -> str:
    """Returns `, did you mean 'tile'?` for the known name that is most like `name`; nothing if none is."""
    close = difflib.get_close_matches(str(name), list(known), n=1)
    return f", did you mean {close[0]!r}?" if close else ""


_T = TypeVar("_T")


def choose(table: Mapping[str, _T], name: str, kind: str) -> _T:
    """Returns the entry of `table` called `name`.

    Raises:
        ChoiceError: naming `kind` and the choices, if there is none.
    """
    if name not in table:
        problem = f"unknown {kind} {name!r}{nearest(name, table)}"
        raise ChoiceError(problem, expected="one of " + ", ".join(sorted(table)))
    return table[name]
