"""Reads and writes TpuGraphs' `.npz` files: graphs with the features and runtimes of their configurations.

One file is one graph. Both kinds share the node arrays; a tile file has configurations of the whole kernel,
a layout file configurations of single nodes. Published files differ from the documented types, so reading
accepts any integer type for integers and any real type for features, and raises one clear error for an array
that is missing, of the wrong shape or impossible; writing uses the documented types. Pickled arrays are
refused. Source: tpugraphs2023, sections 3 and 4.1, and the formats that the data set documents.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from costbench import artifacts
from costbench.datasets.tpugraphs import checks as npz_checks
from costbench.datasets.tpugraphs.checks import Key
from costbench.errors import DataError

_NODE_KEYS = (
    Key("node_feat", ("n", 140), "real", np.float32),
    Key("node_opcode", ("n",), "integer", np.int32),
    Key("edge_index", ("m", 2), "integer", np.int32),
)
_TILE_KEYS = (
    *_NODE_KEYS,
    Key("config_feat", ("c", 24), "real", np.float32),
    Key("config_runtime", ("c",), "integer", np.int64),
    Key("config_runtime_normalizers", ("c",), "integer", np.int64),
)
_LAYOUT_KEYS = (
    *_NODE_KEYS,
    Key("node_config_ids", ("nc",), "integer", np.int32),
    Key("node_config_feat", ("c", "nc", 18), "real", np.float32),
    Key("config_runtime", ("c",), "integer", np.int32),
    # Some files store it as (s,), others as (1, s).
    Key("node_splits", None, "integer", np.int64),
)


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

    node_feat: npt.NDArray[np.float32]
    node_opcode: npt.NDArray[np.int64]
    edge_index: npt.NDArray[np.int64]
    config_feat: npt.NDArray[np.float32]
    config_runtime: npt.NDArray[np.int64]
    config_runtime_normalizers: npt.NDArray[np.int64]

    @property
    def is_labelled(self) -> bool:
        """Whether runtimes are given; the public test split withholds them."""
        return bool(self.config_runtime.any())


@dataclass(frozen=True, eq=False)
class LayoutGraph:
    """A program as TpuGraphs stores it: n nodes, m edges, c configurations. Fields as in the file.

    Attributes:
        node_feat: float32 [n, 140].
        node_opcode: int64 [n], TpuGraphs' codes (0: unknown).
        edge_index: int64 [m, 2], rows (consumer, producer).
        node_config_ids: int64 [nc], configurable nodes, ascending.
        node_config_feat: float32 [c, nc, 18].
        config_runtime: int64 [c], nanoseconds; all 0 where labels are withheld.
        node_splits: int64 [s], where the major computations start, ascending, in nodes.
    """

    node_feat: npt.NDArray[np.float32]
    node_opcode: npt.NDArray[np.int64]
    edge_index: npt.NDArray[np.int64]
    node_config_ids: npt.NDArray[np.int64]
    node_config_feat: npt.NDArray[np.float32]
    config_runtime: npt.NDArray[np.int64]
    node_splits: npt.NDArray[np.int64]

    @property
    def is_labelled(self) -> bool:
        """Whether runtimes are given; the public test split withholds them."""
        return bool(self.config_runtime.any())


def program_of(graph_id: str) -> str:
    """Returns the program of a tile graph: its id (file name without suffix) up to the last underscore."""
    return graph_id.rpartition("_")[0] or graph_id


def read_tile_npz(path: str | PathLike[str]) -> TileGraph:
    """Reads one kernel.

    Raises:
        DataError: naming the file, the key and what was expected, if the file is missing or truncated, a key
            is missing, a shape or type is wrong, or a value cannot be (NaN, an edge to a node that does not
            exist, a negative runtime).
    """
    arrays = _load(path, _TILE_KEYS)
    _check_tile(arrays, path)
    return TileGraph(**arrays)


def read_layout_npz(path: str | PathLike[str]) -> LayoutGraph:
    """Reads one program. Raises: DataError as `read_tile_npz` does."""
    arrays = _load(path, _LAYOUT_KEYS)
    _check_layout(arrays, path)
    return LayoutGraph(**arrays)


def write_tile_npz(path: str | PathLike[str], graph: TileGraph) -> None:
    """Writes one kernel in the documented types; equal graphs give equal bytes.

    Raises:
        DataError: if the graph is not one that `read_tile_npz` would accept, or `path` cannot be written.
    """
    arrays = npz_checks.conform(vars(graph), _TILE_KEYS, path)
    _check_tile(arrays, path)
    _save(path, arrays, _TILE_KEYS)


def write_layout_npz(path: str | PathLike[str], graph: LayoutGraph) -> None:
    """Writes one program in the documented types; runtimes of more than 2.1 s make that array int64.

    Raises:
        DataError: if the graph is not one that `read_layout_npz` would accept, or `path` cannot be written.
    """
    arrays = npz_checks.conform(vars(graph), _LAYOUT_KEYS, path)
    _check_layout(arrays, path)
    _save(path, arrays, _LAYOUT_KEYS)


def _check_tile(arrays: Mapping[str, npt.NDArray[Any]], path: str | PathLike[str]) -> None:
    npz_checks.require_graph(arrays["node_opcode"], arrays["edge_index"], path)
    npz_checks.require_runtimes(arrays, "config_runtime", path)
    npz_checks.require_runtimes(arrays, "config_runtime_normalizers", path)
    if arrays["config_runtime"].any() and not arrays["config_runtime_normalizers"].any():
        field = "config_runtime_normalizers"
        raise DataError("0 everywhere beside runtimes", where=path, field=field, expected="1 ns or more")


def _check_layout(arrays: Mapping[str, npt.NDArray[Any]], path: str | PathLike[str]) -> None:
    npz_checks.require_graph(arrays["node_opcode"], arrays["edge_index"], path)
    npz_checks.require_runtimes(arrays, "config_runtime", path)
    num_nodes = len(arrays["node_opcode"])
    npz_checks.require_ascending(arrays, "node_config_ids", num_nodes - 1, path)
    npz_checks.require_ascending(arrays, "node_splits", num_nodes, path)


def _load(path: str | PathLike[str], keys: tuple[Key, ...]) -> dict[str, npt.NDArray[Any]]:
    source = Path(path)
    if not source.is_file():
        raise DataError("no such file", where=source, expected="an .npz file")
    try:
        # Opened here, as np.load leaves the file open when it is no archive.
        with source.open("rb") as handle:
            archive = np.load(handle, allow_pickle=False)
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise DataError("a single array", where=source, expected="an .npz file")
            stored = {key.name: _entry(archive, key.name, source) for key in keys if key.name in archive}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError("truncated, or no .npz file", where=source, expected="an .npz file") from error
    return npz_checks.conform(stored, keys, path)


def _entry(archive: np.lib.npyio.NpzFile, name: str, source: Path) -> npt.NDArray[Any]:
    try:
        return np.asarray(archive[name])
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        raise DataError(f"cannot be read: {error}", where=source, field=name, expected="an array") from error


def _save(path: str | PathLike[str], arrays: Mapping[str, npt.NDArray[Any]], keys: tuple[Key, ...]) -> None:
    stored = {}
    for key in keys:
        array = arrays[key.name]
        written = array.astype(key.dtype)
        # A layout runtime of more than 2.1 s does not fit the documented int32.
        stored[key.name] = written if np.array_equal(written, array) else array
    with artifacts.atomic_path(path) as temporary, temporary.open("wb") as handle:
        np.savez_compressed(handle, allow_pickle=False, **stored)
