"""Records of measured tuning runs: a kernel with its tile sizes, a program with its layouts.

They are the contents of raw TpuGraphs files (which `tpugraphs` reads and writes): frozen records of arrays
with one row per valid run; of the invalid runs only the number is kept. Source: tpugraphs2023, section 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costbench.arrays import I64, Bool
from costbench.compiler.kernel import Kernel
from costbench.compiler.spaces import TileSizes
from costbench.errors import DataError
from costbench.hlo.module import HloModule

MAX_RANK = 6
"""Axes of a layout in TpuGraphs' features; longer layouts are cut."""
NUM_TENSORS = 3
"""Tensors of a configurable node: output, input, kernel."""
NO_AXIS = -1
"""Value of absent axes of a layout; 0 is a real axis."""


_SPLITTING_NAMES = ("cluster", "while", "cond")


@dataclass(frozen=True, eq=False)
class TuningKernel:
    """A kernel and its `n` measured tile sizes; a tile size may occur more than once.

    Attributes:
        module: the kernel as stored, fusions nested (what TpuGraphs' node features are taken from).
        kernel: the same with fusions flattened (what models and machines take).
        tile_sizes: `n` tile sizes, native tiles.
        input_bounds: int64 [n, rank], or [n, 0] where the compiler derives them (nearly always).
        runtime_ns: int64 [n].
        is_default: bool [n], the compiler's own choice.
        num_failed: runs that do not count: failed, or timed at 1 ns or less.
        fingerprint: the data set's identity of the kernel, 64 bits.
    """

    module: HloModule
    kernel: Kernel
    tile_sizes: TileSizes
    input_bounds: I64
    runtime_ns: I64
    is_default: Bool
    num_failed: int
    fingerprint: int

    @property
    def name(self) -> str:
        """Name of the kernel's module."""
        return self.module.name

    @property
    def normalizer_ns(self) -> int:
        """Runtime of the first default run, by which TpuGraphs divides.

        Raises:
            DataError: if no default run counts.
        """
        return _default_runtime(self.runtime_ns, self.is_default, self.name)


@dataclass(frozen=True, eq=False)
class TuningProgram:
    """A program and its `c` measured layout configurations.

    Attributes:
        module: the program.
        node_config_ids: int64 [nc], the configurable nodes, ascending; all computations numbered end to end.
        minor_to_major: int64 [c, nc, 3, 6]: layouts of output, input and kernel, fastest axis first, absent
            places -1 (convolutions name their two fastest axes only). Six times -1: no such tensor, or the
            compiler's choice.
        runtime_ns: int64 [c].
        is_default: bool [c].
        num_failed: runs that do not count.
        fingerprint: the data set's identity of the program, 64 bits.
    """

    module: HloModule
    node_config_ids: I64
    minor_to_major: I64
    runtime_ns: I64
    is_default: Bool
    num_failed: int
    fingerprint: int

    @property
    def normalizer_ns(self) -> int:
        """Runtime of the first default run. Raises DataError if no default run counts."""
        return _default_runtime(self.runtime_ns, self.is_default, self.module.name)


def _default_runtime(runtime_ns: I64, is_default: Bool, name: str) -> int:
    found = np.flatnonzero(is_default)
    if not len(found):
        raise DataError("no default run", where=name, expected="at least one that did not fail")
    return int(runtime_ns[found[0]])


def node_splits(module: HloModule) -> I64:
    """Returns where the major parts of a program start, in nodes: int64 [s], from 0 to the number of nodes.

    A part ends after each computation whose name contains `cluster`, `while` or `cond`.
    """
    return splits_after([computation.name for computation in module.computations], module.offsets[1:])


def splits_after(names: Sequence[str], ends: Sequence[int]) -> I64:
    """Returns the same from the names of all computations and the numbers of nodes up to their ends."""
    found = [
        end for name, end in zip(names, ends, strict=True) if any(part in name for part in _SPLITTING_NAMES)
    ]
    last = [] if found[-1:] == list(ends[-1:]) else list(ends[-1:])
    return np.array([0, *found, *last], dtype=np.int64)
