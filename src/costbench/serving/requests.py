"""Parses requests of clients: a kernel as HLO, and its tile sizes; errors say what was expected.

A kernel is a module of its own whose entry computation is the kernel: base64 of a serialised `HloModuleProto`
or `HloProto` (plain or zstd-compressed), or HLO text. A tile size counts native tiles, as
`costbench.compiler.spaces` explains.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from costbench.compiler.kernel import Kernel, kernel_from_module
from costbench.compiler.lowering.loop_nest import LoopNest
from costbench.compiler.spaces import TileSizes
from costbench.errors import DataError
from costbench.hlo.reader import module_from_bytes
from costbench.hlo.text.parser import looks_like_text, module_from_text

_KERNEL = "base64 of a serialised HloModuleProto or HloProto, or HLO text that begins with 'HloModule'"
_BOUNDS = ("output_bounds", "kernel_bounds")


def read_kernel(value: object, where: str) -> Kernel:
    """Returns the kernel of a request.

    Raises:
        DataError: if it is no text, or neither base64 nor HLO text.
        HloError: if it is no HLO module.
        UnsupportedKernelError: if it holds nothing but parameters.
    """
    place = f"{where}.kernel"
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"is {_short(value)}", where=place, expected=_KERNEL)
    if looks_like_text(value):
        return kernel_from_module(module_from_text(value, where=place))
    try:
        data = base64.b64decode("".join(value.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise DataError(f"{_short(value)} is no base64: {error}", where=place, expected=_KERNEL) from None
    return kernel_from_module(module_from_bytes(data, where=place))


def read_tiles(value: object, nest: LoopNest, where: str) -> TileSizes:
    """Returns the tile sizes of a request for a kernel.

    Args:
        value: a list of mappings with `output_bounds` and, for a kernel with a contraction, `kernel_bounds`.
        nest: the lowered kernel.
        where: of the request, for errors.

    Raises:
        DataError: naming the tile and the list, if one is missing, of another rank than the kernel, or holds
            what is no whole number from 1 to the extent of its loop.
    """
    place = f"{where}.tiles"
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise DataError(f"is {_short(value)}", where=place, expected="a list of one or more tile sizes")
    whole = nest.tile_sizes(nest.units[None])
    largest = {name: getattr(whole, name)[0].tolist() for name in _BOUNDS}
    columns: dict[str, list[list[int]]] = {name: [] for name in _BOUNDS}
    for number, tile in enumerate(value):
        given = _mapping(tile, f"{place}[{number}]")
        for name in _BOUNDS:
            columns[name].append(_bounds(given.get(name), largest[name], f"{place}[{number}].{name}"))
    arrays = {name: np.array(rows, dtype=np.int64).reshape(len(value), -1) for name, rows in columns.items()}
    return _of_kernel(TileSizes(**arrays), nest, place)


def _of_kernel(tiles: TileSizes, nest: LoopNest, place: str) -> TileSizes:
    """Returns `tiles` after checking bounds that count the same loop in different units."""
    again = nest.tile_sizes(nest.extents(tiles))
    for name in _BOUNDS:
        given, wanted = getattr(tiles, name), getattr(again, name)
        for number in np.flatnonzero((given != wanted).any(axis=1))[:1]:
            expected = f"{wanted[number].tolist()}, as the other bounds have it"
            found = given[number].tolist()
            raise DataError(f"is {found}", where=f"{place}[{number}].{name}", expected=expected)
    return tiles


def _mapping(tile: object, place: str) -> Mapping[str, Any]:
    if not isinstance(tile, Mapping):
        expected = "{'output_bounds': [...], 'kernel_bounds': [...]}"
        raise DataError(f"is {_short(tile)}", where=place, expected=expected)
    for name in tile:
        if name not in _BOUNDS:
            raise DataError(f"unknown key {name!r}", where=place, expected=" and ".join(_BOUNDS))
    return tile


def _bounds(value: object, largest: Sequence[int], place: str) -> list[int]:
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if value is None:
        value = []
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise DataError(f"is {_short(value)}", where=place, expected="a list of numbers")
    if len(value) != len(largest):
        expected = f"{len(largest)}, up to {list(largest)}" if largest else "none: leave it out"
        raise DataError(f"{len(value)} numbers", where=place, expected=expected)
    return [_bound(one, limit, place) for one, limit in zip(value, largest, strict=True)]


def _bound(value: object, limit: int, place: str) -> int:
    # A client may write 4 as 4.0; JSON's true, false and NaN are no numbers here.
    if isinstance(value, int | float) and not isinstance(value, bool) and 1 <= value <= limit:
        whole = int(value)
        if whole == value:
            return whole
    raise DataError(_short(value), where=place, expected=f"a whole number from 1 to {limit}")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
