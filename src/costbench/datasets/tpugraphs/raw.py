"""Records of measured tuning runs: a kernel with its tile sizes, a program with its layouts.

They are the contents of raw TpuGraphs files (which `tpugraphs` reads and writes): frozen records of arrays
with one row per valid run; of the invalid runs only the number is kept. Source: tpugraphs2023, section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from costbench import artifacts
from costbench.arrays import I64, Bool
from costbench.compiler.kernel import Kernel, kernel_from_module
from costbench.compiler.spaces import TileSizes
from costbench.datasets.tpugraphs.proto import tuning_pb2
from costbench.errors import CostbenchError, DataError
from costbench.hlo.conversion import module_from_proto, module_to_proto
from costbench.hlo.module import HloModule
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.reader import decompress
from costbench.hlo.wire import parse_message
from costbench.limits import MAX_MESSAGES

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
        module: kernel as stored, fusions nested (what TpuGraphs' node features are taken from).
        kernel: the same kernel with fusions inlined (what models and machines take).
        tile_sizes: `n` tile sizes, native tiles.
        input_bounds: int64 [n, rank], or [n, 0] where the compiler derives them (nearly always).
        runtime_ns: measured runtimes, int64 [n].
        is_default: whether the run is of the compiler's own choice, bool [n].
        num_failed: number of runs that do not count: failed, or timed at 1 ns or less.
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
        module: program that layouts are assigned to.
        node_config_ids: int64 [nc], the configurable nodes, ascending; all computations numbered end to end.
        minor_to_major: int64 [c, nc, 3, 6]: layouts of output, input and kernel, fastest axis first, absent
            places -1 (convolutions name their two fastest axes only). Six times -1: no such tensor, or the
            compiler's choice.
        runtime_ns: measured runtimes, int64 [c].
        is_default: whether the run is of the compiler's own choice, bool [c].
        num_failed: number of runs that do not count.
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
    defaults = np.flatnonzero(is_default)
    if not len(defaults):
        raise DataError("no default run", where=name, expected="at least one that did not fail")
    return int(runtime_ns[defaults[0]])


def node_splits(module: HloModule) -> I64:
    """Returns where the major parts of a program start, in nodes: int64 [s], from 0 to the number of nodes.

    A part ends after each computation whose name contains `cluster`, `while` or `cond`.
    """
    ends = module.offsets[1:]
    splits = [
        end
        for computation, end in zip(module.computations, ends, strict=True)
        if any(part in computation.name for part in _SPLITTING_NAMES)
    ]
    last = [] if splits[-1:] == list(ends[-1:]) else list(ends[-1:])
    return np.array([0, *splits, *last], dtype=np.int64)


_TOO_FAST_NS = 1
_TILE_KIND = "a TuningData message (tile sizes)"
_LAYOUT_KIND = "a ModuleTuningData message (layouts)"
_BYTES_OF_MESSAGE = 3
"""Bytes that a message has at least, on average, where a file has more messages than a program."""
_M = TypeVar("_M", bound=Message)


def read_tile_tuning(path: str | PathLike[str]) -> tuple[TuningKernel, ...]:
    """Returns the kernels of a raw tile file (binary `TuningData`, plain or `.zst`), in stored order.

    A run counts when it is not marked as an error and took more than 1 ns. A kernel without any such run
    is kept, with no rows.

    Raises:
        DataError: naming the file, the kernel and the field, if the file is missing, truncated or of another
            kind, if a module is broken, or if the tile sizes of one kernel have different ranks.
    """
    data = _parse(path, tuning_pb2.TuningData(), _TILE_KIND)
    if not data.modules:
        raise DataError("holds no kernels" + _other_kind(path), where=path, expected=_TILE_KIND)
    return tuple(_tuning_kernel(module, path, f"modules[{i}]") for i, module in enumerate(data.modules))


def read_layout_tuning(path: str | PathLike[str]) -> TuningProgram:
    """Returns the program of a raw layout file (binary `ModuleTuningData`, plain or `.zst`).

    A run counts when it has a layout configuration, is not marked as an error and took more than 1 ns.
    Without a default run among them no run counts, as in the data set itself.

    Raises:
        DataError: naming the file and the field, if the file is missing, truncated or of another kind, if the
            module is broken, or if a configuration does not fit it.
    """
    data = _parse(path, tuning_pb2.ModuleTuningData(), _LAYOUT_KIND)
    if not data.module.computations:
        raise DataError("holds no program" + _other_kind(path), where=path, expected=_LAYOUT_KIND)
    module = _module(data.module, path, "module")
    if [c.name for c in module.computations] != [c.name for c in data.module.computations]:
        # Configurable nodes are numbered in stored order, which would not be the module's.
        raise DataError("computations out of order", where=path, field="module", expected="callees first")
    order, node_config_ids = _config_nodes(data, module, path)
    runs = [run for run in data.runs if _counts(run) and run.HasField("module_config")]
    if not any(run.is_default for run in runs):
        runs = []
    layouts = np.full((len(runs), len(order), NUM_TENSORS, MAX_RANK), NO_AXIS, dtype=np.int64)
    for row, run in enumerate(runs):
        nodes = run.module_config.layout_config.nodes
        if len(nodes) != len(order):
            problem = f"{len(nodes)} nodes in a configuration"
            raise DataError(problem, where=path, field="runs", expected=f"{len(order)} as configurable nodes")
        for index, source in enumerate(order):
            _fill_layouts(layouts[row, index], nodes[source], path)
    return TuningProgram(
        module=module,
        node_config_ids=node_config_ids,
        minor_to_major=layouts,
        runtime_ns=np.array([run.profile.compute_time_ns for run in runs], dtype=np.int64),
        is_default=np.array([run.is_default for run in runs], dtype=np.bool_),
        num_failed=len(data.runs) - len(runs),
        fingerprint=data.fingerprint,
    )


def _parse(path: str | PathLike[str], message: _M, kind: str) -> _M:
    try:
        _decode(path, message)
    except (DecodeError, CostbenchError) as error:
        if isinstance(error, DataError):
            raise
        problem = "truncated, or not this kind of file" + _other_kind(path)
        raise DataError(problem, where=path, expected=kind) from error
    return message


def _decode(path: str | PathLike[str], message: Message) -> None:
    """Parses a file. A run of layouts is several small messages a configurable node."""
    data = decompress(artifacts.read_bytes(path), where=str(path))
    most = max(MAX_MESSAGES, len(data) // _BYTES_OF_MESSAGE)
    parse_message(message, data, where=str(path), max_messages=most)


def _other_kind(path: str | PathLike[str]) -> str:
    """Returns a hint for errors if the file is of another kind."""
    candidates: dict[str, Message] = {
        _TILE_KIND: tuning_pb2.TuningData(),
        _LAYOUT_KIND: tuning_pb2.ModuleTuningData(),
        "an HloModuleProto": hlo_pb2.HloModuleProto(),
    }
    for kind, message in candidates.items():
        try:
            _decode(path, message)
        except (DecodeError, CostbenchError):
            continue
        if any(field.name in ("modules", "module", "computations") for field, _ in message.ListFields()):
            return f"; it reads as {kind}"
    return ""


def _module(proto: hlo_pb2.HloModuleProto, path: str | PathLike[str], field: str) -> HloModule:
    try:
        return module_from_proto(proto, where=str(path))
    except CostbenchError as error:
        inner = f"{field}/{error.field}" if error.field else field
        raise error.recast(DataError, where=path, field=inner) from error


def _counts(run: tuning_pb2.ConfigProfile) -> bool:
    return not run.error and run.profile.compute_time_ns > _TOO_FAST_NS


def _tuning_kernel(data: tuning_pb2.ModuleTuningData, path: str | PathLike[str], field: str) -> TuningKernel:
    module = _module(data.module, path, field)
    field = f"{field} ({module.name})"
    try:
        kernel = kernel_from_module(module)
    except CostbenchError as error:
        raise DataError(error.problem, where=path, field=field) from error
    runs = [run for run in data.runs if _counts(run)]
    for run in runs:
        if not run.op_config.HasField("tile_size_config"):
            raise DataError("a run without tile sizes", where=path, field=field, expected=_TILE_KIND)
    tiles = [run.op_config.tile_size_config for run in runs]
    return TuningKernel(
        module=module,
        kernel=kernel,
        tile_sizes=TileSizes(
            kernel_bounds=_bounds([t.kernel_bounds for t in tiles], path, f"{field}/kernel_bounds"),
            output_bounds=_bounds([t.output_bounds for t in tiles], path, f"{field}/output_bounds"),
        ),
        input_bounds=_bounds([t.input_bounds for t in tiles], path, f"{field}/input_bounds"),
        runtime_ns=np.array([run.profile.compute_time_ns for run in runs], dtype=np.int64),
        is_default=np.array([run.is_default for run in runs], dtype=np.bool_),
        num_failed=len(data.runs) - len(runs),
        fingerprint=data.fingerprint,
    )


def _bounds(rows: Sequence[Sequence[int]], path: str | PathLike[str], field: str) -> I64:
    """Returns rows of equal length as int64 [n, length]."""
    lengths = sorted({len(row) for row in rows})
    if len(lengths) > 1:
        problem = f"lists of {' and '.join(map(str, lengths))} bounds in one kernel"
        raise DataError(problem, where=path, field=field, expected="one rank")
    table = np.array([list(row) for row in rows], dtype=np.int64).reshape(len(rows), sum(lengths))
    if table.size and table.min() < 1:
        raise DataError(f"bound {table.min()}", where=path, field=field, expected="1 or more native tiles")
    return table


def _config_nodes(
    data: tuning_pb2.ModuleTuningData, module: HloModule, path: str | PathLike[str]
) -> tuple[list[int], I64]:
    """Returns the stored positions of the configurable nodes in ascending order of node, and the nodes."""
    stored = list(data.config_index_to_node)
    if len(set(stored)) != len(stored):
        raise DataError("a node occurs twice", where=path, field="config_index_to_node")
    if any(node >= module.num_instructions for node in stored):
        problem = f"node {max(stored)} does not exist"
        expected = f"nodes below {module.num_instructions}"
        raise DataError(problem, where=path, field="config_index_to_node", expected=expected)
    order = sorted(range(len(stored)), key=lambda index: stored[index])
    return order, np.array([stored[index] for index in order], dtype=np.int64)


def _fill_layouts(
    target: I64,
    node: tuning_pb2.LayoutConfig.NodeLayoutConfig,
    path: str | PathLike[str],
) -> None:
    if len(node.tensors) > NUM_TENSORS:
        problem = f"{len(node.tensors)} tensors of one node"
        raise DataError(problem, where=path, field="runs", expected=f"at most {NUM_TENSORS}")
    for index, tensor in enumerate(node.tensors):
        axes = list(tensor.dims)
        # Axes need not be a full permutation: convolutions name their two fastest axes only.
        if len(set(axes)) != len(axes) or min(axes, default=0) < 0:
            raise DataError(f"layout {axes}", where=path, field="runs", expected="axes, each once")
        target[index, : min(len(axes), MAX_RANK)] = axes[:MAX_RANK]


def write_tile_tuning(path: str | PathLike[str], kernels: Iterable[TuningKernel]) -> None:
    """Writes kernels as a raw tile file; reading it gives equal records.

    Runs that failed are written as errors without tile sizes, as many as there were.

    Raises:
        DataError: if `path` cannot be written.
    """
    data = tuning_pb2.TuningData()
    for kernel in kernels:
        entry = data.modules.add(module=module_to_proto(kernel.module), fingerprint=kernel.fingerprint)
        for row in range(len(kernel.runtime_ns)):
            run = entry.runs.add(is_default=bool(kernel.is_default[row]))
            run.profile.compute_time_ns = int(kernel.runtime_ns[row])
            tile = run.op_config.tile_size_config
            tile.SetInParent()  # a tile message without bounds is still a tile message
            tile.kernel_bounds.extend(kernel.tile_sizes.kernel_bounds[row].tolist())
            tile.output_bounds.extend(kernel.tile_sizes.output_bounds[row].tolist())
            tile.input_bounds.extend(kernel.input_bounds[row].tolist())
        for _ in range(kernel.num_failed):
            entry.runs.add(error=True).op_config.tile_size_config.SetInParent()
    artifacts.write_bytes(path, data.SerializeToString(deterministic=True))


def write_layout_tuning(path: str | PathLike[str], program: TuningProgram) -> None:
    """Writes a program as a raw layout file; reading it gives an equal record.

    Raises:
        DataError: if `path` cannot be written.
    """
    data = tuning_pb2.ModuleTuningData(
        module=module_to_proto(program.module),
        fingerprint=program.fingerprint,
        config_index_to_node=program.node_config_ids.tolist(),
    )
    for row in range(len(program.runtime_ns)):
        run = data.runs.add(is_default=bool(program.is_default[row]))
        run.profile.compute_time_ns = int(program.runtime_ns[row])
        run.module_config.layout_config.SetInParent()
        for tensors in program.minor_to_major[row].tolist():
            node = run.module_config.layout_config.nodes.add()
            for axes in tensors:
                node.tensors.add(dims=[axis for axis in axes if axis != NO_AXIS])
    for _ in range(program.num_failed):
        data.runs.add(error=True).module_config.SetInParent()
    artifacts.write_bytes(path, data.SerializeToString(deterministic=True))
