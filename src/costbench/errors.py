"""The error tree. Every error a user can cause names the file, the field and what was expected."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import TypeVar

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
        """Returns `where: field: problem (expected ...)`, leaving out what is not known."""
        head = ": ".join(part for part in (self.where, self.field) if part)
        tail = f" (expected {self.expected})" if self.expected else ""
        return f"{head}: {self.problem}{tail}" if head else f"{self.problem}{tail}"

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


def one_line(error: BaseException) -> str:
    """Returns the message of an error, often a library's, in one line; the kind of error if it has none."""
    return " ".join(str(error).split()) or type(error).__name__


_T = TypeVar("_T")


def choose(table: Mapping[str, _T], name: str, kind: str) -> _T:
    """Returns the entry of `table` called `name`.

    Raises:
        ChoiceError: naming `kind` and the choices, if there is none.
    """
    if name not in table:
        raise ChoiceError(f"unknown {kind} {name!r}", expected="one of " + ", ".join(sorted(table)))
    return table[name]
