"""Tables that compute a value when its key is looked up for the first time, and keep it."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Memo(dict[Key, Value], Generic[Key, Value]):
    """A dict in which a missing key gets the value that `make` gives it.

    Looking up a known key costs no more than in a plain dict. A memo belongs to the object that created it
    and lives as long; `get` and `in` do not compute values.
    """

    __slots__ = ("_make",)

    def __init__(self, make: Callable[[Key], Value]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: Key) -> Value:
        value = self[key] = self._make(key)
        return value
