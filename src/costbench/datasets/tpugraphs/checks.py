"""Checks key, shape, type and range of the arrays in TpuGraphs' `.npz` files; errors name the key.

Shapes are written with letters (n nodes, m edges, c configurations, nc configurable nodes); the first array
with a letter sets its size, and the others have to agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal, Protocol

import numpy as np

from costbench.arrays import I64, AnyArray
from costbench.errors import DataError

_MAX_OPCODE = 120
# Whole numbers that float64 holds exactly.
_WHOLE = 1 << 53


@dataclass(frozen=True)
class Key:
    """One array of a file.

    Attributes:
        name: key in the file.
        shape: letters and numbers; None for a list of integers of any shape, which is flattened.
        kind: `integer` arrays become int64, `real` ones float32.
        dtype: type in which it is written.
        optional: whether the key may be missing, or its array empty.
    """

    name: str
    shape: tuple[str | int, ...] | None
    kind: Literal["integer", "real"]
    dtype: type[np.generic]
    optional: bool = False


class Stored(Protocol):
    """An array, or the header of one."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of its values."""


def require_keys(
    stored: Mapping[str, Stored], keys: tuple[Key, ...], path: str | PathLike[str]
) -> dict[str, int]:
    """Checks that arrays exist, that their types are those of numbers, and that their shapes agree.

    Returns:
        The size of each letter.

    Raises:
        DataError: naming `path`, the key and what was expected.
    """
    sizes: dict[str, int] = {}
    for key in keys:
        if key.name in stored:
            found = stored[key.name]
            if key.shape is not None and not (key.optional and found.shape == (0,)):
                _require_shape(found, key, sizes, path)
            if found.dtype.kind not in "fiu":
                wanted = "integers" if key.kind == "integer" else "real numbers"
                raise DataError(f"type {found.dtype}", where=path, field=key.name, expected=wanted)
        elif not key.optional:
            wanted = "an array" if key.shape is None else f"an array of shape {_written(key.shape, sizes)}"
            raise DataError("missing key", where=path, field=key.name, expected=wanted)
    return sizes


def conform(
    stored: Mapping[str, AnyArray], keys: tuple[Key, ...], path: str | PathLike[str]
) -> dict[str, AnyArray]:
    """Returns the arrays of `keys` as int64 and float32 after checking shapes and values.

    Raises:
        DataError: naming `path`, the key and what was expected.
    """
    require_keys(stored, keys, path)
    return {key.name: converted(stored[key.name], key, path) for key in keys if key.name in stored}


def _written(shape: tuple[str | int, ...], sizes: Mapping[str, int]) -> str:
    parts = [str(sizes.get(part, part) if isinstance(part, str) else part) for part in shape]
    return "(" + ", ".join(parts) + (",)" if len(parts) == 1 else ")")


def _require_shape(found: Stored, key: Key, sizes: dict[str, int], path: str | PathLike[str]) -> None:
    shape = key.shape or ()
    known = [sizes.get(part) if isinstance(part, str) else part for part in shape]
    fits = len(known) == len(found.shape) and all(
        want is None or want == size for want, size in zip(known, found.shape, strict=True)
    )
    if not fits:
        wanted = _written(shape, sizes)
        raise DataError(f"shape {found.shape}", where=path, field=key.name, expected=f"shape {wanted}")
    sizes.update({part: size for part, size in zip(shape, found.shape, strict=True) if isinstance(part, str)})


def converted(array: AnyArray, key: Key, path: str | PathLike[str]) -> AnyArray:
    """Returns an array of numbers as int64 or float32; flat if the key has no shape.

    Raises:
        DataError: naming `path`, the key and the first value that is not finite, not whole where integers
            belong, or of more than 63 bits.
    """
    if key.shape is None:
        array = array.reshape(-1)
    if key.kind == "integer":
        return _whole(array, key, path)
    with np.errstate(over="ignore"):
        found = array.astype(np.float32)
    if not np.isfinite(found).all():
        place = tuple(np.argwhere(~np.isfinite(found))[0].tolist())
        problem = f"value {array[place]} at {place}"
        raise DataError(problem, where=path, field=key.name, expected="finite 32-bit numbers")
    return found


def _whole(array: AnyArray, key: Key, path: str | PathLike[str]) -> I64:
    if array.dtype.kind == "f":
        wide = array.astype(np.float64)
        # NaN and infinities fail the comparison.
        bad = ~((np.abs(wide) <= _WHOLE) & (np.rint(wide) == wide))
        if bad.any():
            raise DataError(f"value {array[bad][0]}", where=path, field=key.name, expected="integers")
    elif array.dtype.kind == "u" and array.size and array.max() > np.iinfo(np.int64).max:
        raise DataError(f"value {array.max()}", where=path, field=key.name, expected="63 bits")
    return array.astype(np.int64)


def require_graph(opcodes: I64, edges: I64, path: str | PathLike[str]) -> None:
    """Checks opcodes, and that every edge runs from a node to one that comes before it.

    Raises:
        DataError: naming `path`, the key and the first offending value.
    """
    if not len(opcodes):
        raise DataError("no nodes", where=path, field="node_opcode", expected="at least one")
    bad = (opcodes < 0) | (opcodes > _MAX_OPCODE)
    if bad.any():
        code = opcodes[bad][0]
        raise DataError(f"opcode {code}", where=path, field="node_opcode", expected=f"0 to {_MAX_OPCODE}")
    consumers, producers = edges[:, 0], edges[:, 1]
    bad = (producers < 0) | (producers >= consumers) | (consumers >= len(opcodes))
    if bad.any():
        edge = edges[bad][0].tolist()
        expected = f"[consumer, producer] with 0 <= producer < consumer < {len(opcodes)}"
        raise DataError(f"edge {edge}", where=path, field="edge_index", expected=expected)


def require_runtimes(arrays: Mapping[str, AnyArray], name: str, path: str | PathLike[str]) -> None:
    """Checks that times are positive, or all 0, which marks withheld labels.

    Raises:
        DataError: naming `path`, the key and the smallest value.
    """
    runtimes = arrays[name]
    if runtimes.any() and runtimes.min() < 1:
        problem = f"time {runtimes.min()} ns at {int(runtimes.argmin())}"
        raise DataError(problem, where=path, field=name, expected="1 ns or more, or 0 everywhere")


def require_ascending(
    arrays: Mapping[str, AnyArray], name: str, last: int, path: str | PathLike[str]
) -> None:
    """Checks that values ascend strictly within 0 ... `last`.

    Raises:
        DataError: naming `path`, the key and what was expected.
    """
    values = arrays[name]
    inside = not values.size or (values.min() >= 0 and values.max() <= last)
    if not inside or (np.diff(values) <= 0).any():
        raise DataError(
            "values out of order or range", where=path, field=name, expected=f"ascending in 0 to {last}"
        )
