"""Reads and writes TpuGraphs' `.npz` files: graphs with the features and runtimes of their configurations.

One file is one graph. Both kinds share the node arrays; a tile file has configurations of the whole kernel,
a layout file configurations of single nodes. Published files differ from the documented types, so reading
accepts any integer or float type, and raises one clear error for an array that is missing, of the wrong
shape or impossible; writing uses the documented types. Tile files are read into memory. Layout files, which
may be larger than memory, are converted to `costbench.datasets.layout_graphs` and written from them in
blocks. Source: tpugraphs2023, sections 3 and 4.1, and the formats that the data set documents.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import IO, Any, Literal, Protocol

import numpy as np

from costbench import artifacts
from costbench.arrays import F32, I64, AnyArray
from costbench.datasets.layout_graphs import LayoutGraph, ProgramGraph, write_layout_graph
from costbench.datasets.tpugraphs.archive import NpzArchive, open_npz
from costbench.datasets.tpugraphs.options import WIDTH, OptionEncoder
from costbench.errors import DataError

_MAX_OPCODE = 120
# Whole numbers that float64 holds exactly.
_WHOLE = 1 << 53


@dataclass(frozen=True)
class Key:
    """One array of a file.

    Attributes:
        name: key in the file.
        shape: sizes as letters and numbers; None for a list of integers of any shape, which is flattened.
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
            array = stored[key.name]
            if key.shape is not None and not (key.optional and array.shape == (0,)):
                _require_shape(array, key, sizes, path)
            if array.dtype.kind not in "fiu":
                expected = "integers" if key.kind == "integer" else "real numbers"
                raise DataError(f"type {array.dtype}", where=path, field=key.name, expected=expected)
        elif not key.optional:
            expected = "an array" if key.shape is None else f"an array of shape {_written(key.shape, sizes)}"
            raise DataError("missing key", where=path, field=key.name, expected=expected)
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


def _require_shape(array: Stored, key: Key, sizes: dict[str, int], path: str | PathLike[str]) -> None:
    shape = key.shape or ()
    sizes_so_far = [sizes.get(part) if isinstance(part, str) else part for part in shape]
    fits = len(sizes_so_far) == len(array.shape) and all(
        want is None or want == size for want, size in zip(sizes_so_far, array.shape, strict=True)
    )
    if not fits:
        expected = _written(shape, sizes)
        raise DataError(f"shape {array.shape}", where=path, field=key.name, expected=f"shape {expected}")
    sizes.update({part: size for part, size in zip(shape, array.shape, strict=True) if isinstance(part, str)})


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
        numbers = array.astype(np.float32)
    if not np.isfinite(numbers).all():
        index = tuple(np.argwhere(~np.isfinite(numbers))[0].tolist())
        problem = f"value {array[index]} at {index}"
        raise DataError(problem, where=path, field=key.name, expected="finite 32-bit numbers")
    return numbers


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


_NODE_KEYS = (
    Key("node_feat", ("n", 140), "real", np.float32),
    Key("node_opcode", ("n",), "integer", np.int32),
    Key("edge_index", ("m", 2), "integer", np.int32),
)
_TILE_KEYS = (
    *_NODE_KEYS,
    Key("config_feat", ("c", 24), "real", np.float32),
    Key("config_runtime", ("c",), "integer", np.int64, optional=True),
    Key("config_runtime_normalizers", ("c",), "integer", np.int64, optional=True),
)
_CONFIGS = "node_config_feat"
_LAYOUT_KEYS = (
    *_NODE_KEYS,
    Key("node_config_ids", ("nc",), "integer", np.int32),
    Key(_CONFIGS, ("c", "nc", WIDTH), "real", np.float32),
    Key("config_runtime", ("c",), "integer", np.int32, optional=True),
    # Some files store it as (s,), others as (1, s).
    Key("node_splits", None, "integer", np.int64, optional=True),
)
# Configurations are read and written in blocks of this many bytes.
_BLOCK_BYTES = 1 << 24


@dataclass(frozen=True, eq=False)
class TileGraph:
    """A kernel as TpuGraphs stores it: n nodes, m edges, c tile sizes. Fields are named as in the file.

    Attributes:
        node_feat: float32 [n, 140].
        node_opcode: int64 [n], TpuGraphs' codes (0: unknown).
        edge_index: int64 [m, 2], rows (consumer, producer); producers come first in the order of nodes.
        config_feat: float32 [c, 24].
        config_runtime: int64 [c], nanoseconds; all 0 where labels are withheld.
        config_runtime_normalizers: int64 [c], nanoseconds of the default tile size in the same session.
    """

    node_feat: F32
    node_opcode: I64
    edge_index: I64
    config_feat: F32
    config_runtime: I64
    config_runtime_normalizers: I64

    @property
    def is_labelled(self) -> bool:
        """Whether runtimes are given; the public test split withholds them."""
        return bool(self.config_runtime.any())


def program_of(graph_id: str) -> str:
    """Returns the program of a tile graph: its id (file name without suffix) up to the last underscore."""
    return graph_id.rpartition("_")[0] or graph_id


def holds_tiles(path: str | PathLike[str]) -> bool:
    """Returns whether the configurations of a file are tile sizes of a kernel, and not layouts, by its keys.

    Raises:
        DataError: naming the file, if it is missing or damaged, or has the keys of neither.
    """
    with open_npz(path, ("config_feat", _CONFIGS)) as archive:
        if len(archive.headers) == 1:
            return _CONFIGS not in archive
    raise DataError("is of neither kind", where=path, expected=f"one of the keys config_feat and {_CONFIGS}")


@dataclass(frozen=True, eq=False)
class Labels:
    """What configurations of a file are compared by.

    Attributes:
        num_configs: number c of configurations.
        runtime: int64 [c], nanoseconds; None where labels are withheld.
        normalizers: int64 [c], nanoseconds, all 0 where withheld; None for layouts.
    """

    num_configs: int
    runtime: I64 | None
    normalizers: I64 | None


def read_labels(path: str | PathLike[str]) -> Labels:
    """Reads the runtimes of a tile or layout file, and no features.

    Raises:
        DataError: as `holds_tiles` and `read_tile_npz`, for headers of all arrays and values of runtimes.
    """
    is_tile = holds_tiles(path)
    keys = _TILE_KEYS if is_tile else _LAYOUT_KEYS
    names = ("config_runtime", *(("config_runtime_normalizers",) if is_tile else ()))
    with open_npz(path, _names(keys)) as archive:
        count = require_keys(archive.headers, keys, path)["c"]
        arrays = _loaded(archive, tuple(key for key in keys if key.name in names), path)
    arrays = {
        name: arrays[name] if len(arrays.get(name, ())) else np.zeros(count, np.int64) for name in names
    }
    _check_runtimes(arrays, path)
    runtime = arrays["config_runtime"] if arrays["config_runtime"].any() else None
    return Labels(count, runtime, arrays.get("config_runtime_normalizers"))


def read_tile_npz(path: str | PathLike[str]) -> TileGraph:
    """Reads one kernel. Runtimes and normalizers may be missing, which withholds labels.

    Raises:
        DataError: naming the file, the key and what was expected, if the file is missing or truncated, a key
            is missing or twice there, a shape or type is wrong, or a value cannot be (NaN, an edge to a node
            that does not exist, a negative runtime).
    """
    with open_npz(path, _names(_TILE_KEYS)) as archive:
        sizes = require_keys(archive.headers, _TILE_KEYS, path)
        arrays = _loaded(archive, _TILE_KEYS, path)
    for name in ("config_runtime", "config_runtime_normalizers"):
        if not arrays.setdefault(name, np.zeros(0, np.int64)).size:
            arrays[name] = np.zeros(sizes["c"], np.int64)
    _check_tile(arrays, path)
    return TileGraph(**arrays)


def convert_layout_npz(source: str | PathLike[str], destination: Path, *, name: str, collection: str) -> None:
    """Writes the program of a layout file as a layout graph, in memory that does not depend on its size.

    Args:
        source: the `.npz` file. Its `config_runtime` may be missing (labels are withheld), and so may its
            `node_splits` (the program is one part).
        destination: the layout graph, written atomically.
        name: id of the graph.
        collection: name of its collection, such as `layout:xla:random`.

    Raises:
        DataError: as `read_tile_npz`.
    """
    with open_npz(source, _names(_LAYOUT_KEYS)) as archive:
        sizes = require_keys(archive.headers, _LAYOUT_KEYS, source)
        small = tuple(key for key in _LAYOUT_KEYS if key.name != _CONFIGS)
        arrays = _loaded(archive, small, source)
        arrays.setdefault("config_runtime", np.zeros(0, np.int64))
        if not arrays.setdefault("node_splits", np.zeros(0, np.int64)).size:
            arrays["node_splits"] = np.array([0, sizes["n"]], np.int64)
        _check_layout(arrays, source)
        destination.parent.mkdir(parents=True, exist_ok=True)
        with OptionEncoder(sizes["nc"], destination.parent) as encoder:
            for block in archive.blocks(_CONFIGS, _BLOCK_BYTES):
                try:
                    encoder.add(block)
                except DataError as error:
                    raise error.recast(DataError, where=source, field=_CONFIGS) from error
            options = encoder.finish()
            graph = LayoutGraph(
                name=name,
                program=name,
                collection=collection,
                node_features=arrays["node_feat"],
                opcodes=arrays["node_opcode"].astype(np.int32),
                edges=arrays["edge_index"].astype(np.int32),
                node_config_ids=arrays["node_config_ids"].astype(np.int32),
                option_offsets=options.option_offsets,
                option_features=options.option_features,
                config_options=options.config_options,
                runtime_ns=arrays["config_runtime"] if arrays["config_runtime"].any() else _NO_RUNTIMES,
                node_splits=arrays["node_splits"],
            )
            write_layout_graph(destination, graph)


_NO_RUNTIMES = np.zeros(0, np.int64)


def write_tile_npz(path: str | PathLike[str], graph: TileGraph) -> None:
    """Writes one kernel in the documented types; equal graphs give equal bytes.

    Raises:
        DataError: if the graph is not one that `read_tile_npz` would accept, or `path` cannot be written.
    """
    arrays = conform(vars(graph), _TILE_KEYS, path)
    _check_tile(arrays, path)
    with artifacts.atomic_path(path) as temporary, _new_archive(temporary) as archive:
        for key in _TILE_KEYS:
            _write_array(archive, key, arrays[key.name])


def write_layout_npz(path: str | PathLike[str], graph: LayoutGraph) -> None:
    """Writes one program in the documented types, configurations in blocks; equal graphs give equal bytes.

    Runtimes of more than 2.1 s make that array int64; where they are withheld, zeros are written.

    Raises:
        DataError: if `convert_layout_npz` would not accept the graph, or `path` cannot be written.
    """
    runtime = graph.runtime_ns if graph.is_labelled else np.zeros(graph.num_configs, np.int64)
    stored = {**_stored(graph), "node_config_ids": graph.node_config_ids, "config_runtime": runtime}
    small = tuple(key for key in _LAYOUT_KEYS if key.name in stored)
    arrays = conform(stored, small, path)
    _check_layout(arrays, path)
    with artifacts.atomic_path(path) as temporary, _new_archive(temporary) as archive:
        for key in _LAYOUT_KEYS:
            if key.name in arrays:
                _write_array(archive, key, arrays[key.name])
            else:
                with archive.open(f"{_CONFIGS}.npy", "w", force_zip64=True) as stream:
                    _write_configs(stream, graph)


def write_graph_npz(path: str | PathLike[str], graph: ProgramGraph) -> None:
    """Writes a program without configurations in the documented types: what both kinds of file share.

    Raises:
        DataError: if the graph is not one that could be read, or `path` cannot be written.
    """
    keys = (*_NODE_KEYS, _LAYOUT_KEYS[-1])
    arrays = conform(_stored(graph), keys, path)
    require_graph(arrays["node_opcode"], arrays["edge_index"], path)
    with artifacts.atomic_path(path) as temporary, _new_archive(temporary) as archive:
        for key in keys:
            _write_array(archive, key, arrays[key.name])


def _stored(graph: ProgramGraph) -> dict[str, AnyArray]:
    """Returns the arrays of a program by their keys in a file."""
    return {
        "node_feat": graph.node_features,
        "node_opcode": graph.opcodes,
        "edge_index": graph.edges,
        "node_splits": graph.node_splits,
    }


def _write_configs(stream: IO[bytes], graph: LayoutGraph) -> None:
    shape = (*graph.config_options.shape, WIDTH)
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    step = max(1, _BLOCK_BYTES // (4 * WIDTH * max(1, shape[1])))
    for start in range(0, shape[0], step):
        stream.write(graph.config_features(slice(start, start + step)).astype("<f4").tobytes())


def _new_archive(path: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, allowZip64=True)


def _write_array(archive: zipfile.ZipFile, key: Key, array: AnyArray) -> None:
    written = array.astype(key.dtype)
    # A layout runtime of more than 2.1 s does not fit the documented int32.
    stored = written if np.array_equal(written, array) else array
    # The name alone, without a time, so that equal graphs are equal bytes.
    with archive.open(f"{key.name}.npy", "w", force_zip64=True) as stream:
        np.lib.format.write_array(stream, np.ascontiguousarray(stored), allow_pickle=False)


def _names(keys: tuple[Key, ...]) -> tuple[str, ...]:
    return tuple(key.name for key in keys)


def _loaded(archive: NpzArchive, keys: tuple[Key, ...], path: str | PathLike[str]) -> dict[str, AnyArray]:
    present = [key for key in keys if key.name in archive]
    return {key.name: converted(archive.array(key.name), key, path) for key in present}


def _check_tile(arrays: Mapping[str, AnyArray], path: str | PathLike[str]) -> None:
    require_graph(arrays["node_opcode"], arrays["edge_index"], path)
    _check_runtimes(arrays, path)


def _check_runtimes(arrays: Mapping[str, AnyArray], path: str | PathLike[str]) -> None:
    for name in ("config_runtime", "config_runtime_normalizers"):
        if name in arrays:
            require_runtimes(arrays, name, path)
    normalizers = arrays.get("config_runtime_normalizers")
    if normalizers is not None and arrays["config_runtime"].any() and not normalizers.any():
        field = "config_runtime_normalizers"
        raise DataError("0 everywhere beside runtimes", where=path, field=field, expected="1 ns or more")


def _check_layout(arrays: Mapping[str, AnyArray], path: str | PathLike[str]) -> None:
    require_graph(arrays["node_opcode"], arrays["edge_index"], path)
    _check_runtimes(arrays, path)
    num_nodes = len(arrays["node_opcode"])
    require_ascending(arrays, "node_config_ids", num_nodes - 1, path)
    require_ascending(arrays, "node_splits", num_nodes, path)
