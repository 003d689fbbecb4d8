"""Encodes configurations of nodes as numbers of options: every distinct feature vector of a node once.

An array of c configurations of nc nodes is read in blocks. Memory does not depend on c: numbers go to a
temporary file, and what is kept in memory is at most 2^18 vectors. Vectors beyond them are stored as often as
they occur, so that data without repetitions cost disk space and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import IO

import numpy as np
import pyarrow as pa

from costbench.arrays import F32, I64, AnyArray
from costbench.errors import DataError

WIDTH = 18
"""Features of a configurable node."""
_KNOWN_VECTORS = 1 << 18
_CHUNK_ROWS = 1 << 18
_KEY_BYTES = 4 * (1 + WIDTH)


@dataclass(frozen=True, eq=False)
class Options:
    """Configurations as numbers of options; fields as in `costbench.datasets.layout_graphs.LayoutGraph`.

    Attributes:
        option_offsets: where the options of each node begin and end, int64 [nc + 1].
        option_features: features of all options, float32 [o, 18].
        config_options: option of each node in each configuration, int16 or int32 [c, nc].
    """

    option_offsets: I64
    option_features: F32
    config_options: AnyArray


class OptionEncoder:
    """Encodes blocks of configurations one after another; a context that closes its temporary files.

    Options of a node are numbered in the order in which configurations have them first.

    Args:
        num_nodes: number nc of configurable nodes.
        folder: folder of the temporary files.
    """

    def __init__(self, num_nodes: int, folder: Path | None = None) -> None:
        self._num_nodes = num_nodes
        self._folder = folder
        self._known: dict[bytes, int] = {}
        self._counts = np.zeros(num_nodes, np.int64)
        self._num_configs = 0
        self._dtype: type[np.int16] | type[np.int32] = np.int16
        self._files = ExitStack()
        self._numbers, self._vectors = self._temporary(), self._temporary()

    def __enter__(self) -> OptionEncoder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()

    def _temporary(self) -> IO[bytes]:
        return self._files.enter_context(TemporaryFile(dir=self._folder))

    def add(self, features: AnyArray) -> None:
        """Encodes the next configurations.

        Args:
            features: [r, nc, 18] of any real type; converted to float32.

        Raises:
            DataError: saying where, if a feature is not finite.
        """
        keys = np.empty((len(features), self._num_nodes, 1 + WIDTH), np.float32)
        keys.view(np.uint32)[..., 0] = np.arange(self._num_nodes, dtype=np.uint32)
        with np.errstate(over="ignore"):
            # Adding 0 turns -0 into 0, which would be another option.
            np.add(features, np.float32(0.0), out=keys[..., 1:], casting="unsafe")
        if keys.size:
            self._encode(keys)
        self._num_configs += len(features)

    def _encode(self, keys: F32) -> None:
        buffer = pa.py_buffer(keys)
        rows = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(_KEY_BYTES), len(keys) * self._num_nodes, [None, buffer]
        )
        encoded = rows.dictionary_encode()
        distinct = encoded.dictionary.buffers()[1].to_pybytes()
        numbers = self._numbers_of(distinct, keys)
        if self._dtype is np.int16 and int(self._counts.max()) > np.iinfo(np.int16).max + 1:
            self._widen()
        self._numbers.write(numbers[encoded.indices.to_numpy()].astype(self._dtype).tobytes())

    def _numbers_of(self, distinct: bytes, keys: F32) -> I64:
        """Returns the number of each distinct (node, vector), and stores those that are new."""
        parts = [distinct[start : start + _KEY_BYTES] for start in range(0, len(distinct), _KEY_BYTES)]
        numbers = np.array([self._known.get(part, -1) for part in parts], np.int64)
        new = np.flatnonzero(numbers < 0)
        if len(new):
            rows = np.frombuffer(distinct, np.float32).reshape(-1, 1 + WIDTH)[new]
            nodes = rows.view(np.uint32)[:, 0].astype(np.int64)
            if not np.isfinite(rows[:, 1:]).all():
                self._refuse(keys)
            numbers[new] = self._counts[nodes] + _ranks(nodes)
            self._counts += np.bincount(nodes, minlength=self._num_nodes)
            self._vectors.write(rows.tobytes())
            indices = new[: max(0, _KNOWN_VECTORS - len(self._known))].tolist()
            self._known.update((parts[index], int(numbers[index])) for index in indices)
        return numbers

    def _refuse(self, keys: F32) -> None:
        config, node, feature = np.argwhere(~np.isfinite(keys[..., 1:]))[0].tolist()
        position = (self._num_configs + config, node, feature)
        value = keys[config, node, 1 + feature]
        raise DataError(f"value {value} at {position}", expected="finite 32-bit numbers")

    def _widen(self) -> None:
        """Stores the numbers so far in 32 bits, as a node has more options than 16 bits can number."""
        wide = self._temporary()
        for chunk in _chunks(self._numbers, np.int16, 1):
            wide.write(chunk.astype(np.int32).tobytes())
        self._numbers, self._dtype = wide, np.int32

    def finish(self) -> Options:
        """Returns what was encoded; its large arrays are maps of temporary files."""
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(self._counts)])
        features = np.zeros((0, WIDTH), np.float32)
        if offsets[-1]:
            by_node = self._temporary()
            by_node.truncate(int(offsets[-1]) * WIDTH * 4)
            features = np.memmap(by_node, np.float32, "r+", 0, (int(offsets[-1]), WIDTH))
            starts = offsets[:-1].copy()
            for chunk in _chunks(self._vectors, np.float32, 1 + WIDTH):
                nodes = chunk.view(np.uint32)[:, 0].astype(np.int64)
                features[starts[nodes] + _ranks(nodes)] = chunk[:, 1:]
                starts += np.bincount(nodes, minlength=self._num_nodes)
        shape = (self._num_configs, self._num_nodes)
        if 0 in shape:
            return Options(offsets, features, np.zeros(shape, self._dtype))
        self._numbers.flush()
        return Options(offsets, features, np.memmap(self._numbers, self._dtype, "r", 0, shape))


def encode_options(features: AnyArray) -> Options:
    """Returns configurations [c, nc, 18] that are in memory as numbers of options, in memory.

    Raises:
        DataError: saying where, if a feature is not finite.
    """
    with OptionEncoder(features.shape[1]) as encoder:
        encoder.add(features)
        options = encoder.finish()
        return Options(
            options.option_offsets, np.array(options.option_features), np.array(options.config_options)
        )


def _ranks(nodes: I64) -> I64:
    """Returns how many equal entries precede each entry."""
    order = np.argsort(nodes, kind="stable")
    ordered = nodes[order]
    first = np.searchsorted(ordered, ordered, side="left")
    ranks = np.empty(len(nodes), np.int64)
    ranks[order] = np.arange(len(nodes)) - first
    return ranks


def _chunks(file: IO[bytes], dtype: type[np.generic], width: int) -> Iterable[AnyArray]:
    """Yields the rows of a file from its start, [., width]."""
    file.flush()
    file.seek(0)
    size = _CHUNK_ROWS * width * np.dtype(dtype).itemsize
    while content := file.read(size):
        yield np.frombuffer(content, dtype).reshape(-1, width)
