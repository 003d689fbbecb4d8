"""Writes the features of measured kernels to shards on disk, once, and reads them by memory map in training.

Reading a kernel takes microseconds; computing its features again would mean parsing its program. The
columns are described in `costbench.datasets.record_types`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from costbench.arrays import F32, F64, I16, I64, AnyArray, Bool
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.kernel import Kernel
from costbench.compiler.spaces import TileSizes
from costbench.datasets.measured_kernels import MeasuredKernel, kernel_view
from costbench.datasets.record_types import ESTIMATES, FEATURES, NODE_EXTRAS, TILE_GRAPHS
from costbench.datasets.recorded_kernels import RECORDED
from costbench.datasets.records import digests_of, equal_rows, number_by_first_use, offsets_of
from costbench.datasets.storage import Shard, write_shard
from costbench.errors import DataError
from costbench.features.decision_features import loop_features, static_performance, tile_features
from costbench.features.graph_tensors import (
    KernelGraph,
    ProgramFeatures,
    input_rows,
    kernel_edges,
    write_boundary_features,
)
from costbench.features.packed_kernels import (
    EXTRA,
    ExtendedColumns,
    ImportedColumns,
    KernelColumns,
    with_unknown_loops,
)
from costbench.features.roofline import Roofline, even_weights, fit_roofline
from costbench.features.schema import NUM_LOOP_FEATURES
from costbench.features.user_features import UserFeatures
from costbench.hlo.opcode import Opcode

_ESTIMATES, _EXTRAS = "estimates", "extras"
"""Folders, inside that of the stage, of estimates of further qualities and of further features of nodes."""
_ESTIMATE = "config_analytical_ns"


def feature_path(folder: Path, task: str, chip: str, program: str) -> Path:
    """Returns the path of a program's feature shard for a chip inside the stage's folder."""
    return folder / task / chip / f"{program}.arrow"


def sample_paths(folder: Path, task: str, chip: str, program: str) -> tuple[Path, ...]:
    """Returns the feature shards of a program for a chip, sorted; empty where it has no samples of the task.

    Args:
        folder: output folder of the stage `features`.
        task: name of the task.
        chip: name of the chip.
        program: name of the program.
    """
    path = feature_path(folder, task, chip, program)
    collections = sorted(path.parent.glob(f"*/{path.name}"))
    return (path, *collections) if path.exists() else tuple(collections)


def paths_of_programs(folder: Path, task: str, chip: str, programs: tuple[str, ...]) -> list[Path]:
    """Returns the feature shards of several programs, in the order of the programs.

    Raises:
        DataError: naming the file, for a program without any.
    """
    shards: list[Path] = []
    for program in programs:
        paths = sample_paths(folder, task, chip, program)
        if not paths:
            missing = feature_path(folder, task, chip, program)
            raise DataError("missing", where=missing, expected=f"{task} samples from the stage `features`")
        shards.extend(paths)
    return shards


def estimates_path(shard: Path, quality: str) -> Path:
    """Returns the path of the estimates of a quality for the kernels of a feature shard."""
    folder, (task, chip, name) = shard.parents[2], shard.parts[-3:]
    return folder / _ESTIMATES / quality / task / chip / name


def extras_path(shard: Path, features: str) -> Path:
    """Returns the path of further features of nodes, by dotted path, for the kernels of a feature shard."""
    folder, (task, chip, name) = shard.parents[2], shard.parts[-3:]
    return folder / _EXTRAS / features.replace(":", "-") / task / chip / name


def read_paths(shards: Sequence[Path], quality: str, features: str = "") -> list[Path]:
    """Returns the files of kernels with estimates of a quality, and further features of nodes.

    Args:
        shards: feature shards.
        quality: quality of the estimates; empty for that of the chip's compiler.
        features: dotted path of the features; empty for none.

    Raises:
        DataError: if there are no such estimates or features.
    """
    estimates = [_estimates_of(shard, quality) for shard in shards if quality]
    return [*shards, *estimates, *(_extras_of(shard, features) for shard in shards if features)]


def _estimates_of(shard: Path, quality: str) -> Path:
    path = estimates_path(shard, quality)
    if not path.exists():
        expected = f"{quality!r} among `features.estimates`"
        raise DataError("no estimates of this quality", where=path, expected=expected)
    return path


def _extras_of(shard: Path, features: str) -> Path:
    path = extras_path(shard, features)
    if not path.exists():
        problem = "no further features of these programs' nodes"
        raise DataError(problem, where=path, expected=f"{features!r} among `features.nodes`")
    return path


def write_extras(
    path: Path,
    kernels: Sequence[Kernel],
    fingerprints: Sequence[str],
    features: UserFeatures,
    metadata: dict[str, object],
) -> None:
    """Writes further features of the nodes of kernels of which there is a feature shard.

    Args:
        path: destination, see `extras_path`.
        kernels: kernels of the feature shard, in its order.
        fingerprints: fingerprint of each.
        features: function that computes them.
        metadata: JSON values, as those of the feature shard.

    Raises:
        ParamsError: naming the function, if it fails or returns anything but its features.
        DataError: if the shard cannot be written.
    """
    rows = [features(kernel) for kernel in kernels]
    width = rows[0].shape[1] if rows else 0
    for kernel, values in zip(kernels, rows, strict=True):
        if values.shape[1] != width:
            name = kernel.instruction(kernel.outputs[0]).name
            problem = f"gives {values.shape[1]} features for the nodes of kernel {name}"
            raise features.part.refuse(problem, f"{width}, as for the first kernel of {path.stem}")
    columns: dict[str, AnyArray] = {
        "kernel_fingerprint": digests_of(fingerprints),
        f"{EXTRA}_offsets": offsets_of(len(values) for values in rows),
        EXTRA: np.concatenate([np.zeros((0, width), np.float32), *rows]),
    }
    write_shard(path, columns, {**metadata, "version": features.version}, NODE_EXTRAS)


def write_estimates(
    path: Path,
    kernels: Sequence[MeasuredKernel],
    analytical: AnalyticalModel,
    metadata: dict[str, object],
) -> None:
    """Writes the predictions of an analytical model for kernels of which there is a feature shard.

    Args:
        path: destination, see `estimates_path`.
        kernels: kernels of the feature shard, in its order.
        analytical: model of the quality.
        metadata: JSON values, as those of the feature shard.

    Raises:
        DataError: if the shard cannot be written.
    """
    estimates = _estimate(kernels, analytical)
    columns: dict[str, AnyArray] = {
        "kernel_fingerprint": digests_of([measured.fingerprint for measured in kernels]),
        f"{_ESTIMATE}_offsets": offsets_of(len(part) for part in estimates),
        _ESTIMATE: np.concatenate([np.zeros(0), *estimates]),
    }
    write_shard(path, columns, metadata, ESTIMATES)


def _estimate(kernels: Sequence[MeasuredKernel], analytical: AnalyticalModel) -> list[F64]:
    return [analytical.predict_nest(m.space.nest, m.tile_sizes) for m in kernels]


def write_features(
    path: Path,
    kernels: Sequence[MeasuredKernel],
    program: ProgramFeatures,
    analytical: AnalyticalModel,
    metadata: dict[str, object],
) -> None:
    """Writes one feature shard.

    Args:
        path: destination, overwritten if it exists.
        kernels: kernels of one program with their measured tile sizes.
        program: features of their program.
        analytical: analytical model, whose predictions are stored beside the measurements.
        metadata: JSON values, among them `program` and `application`.

    Raises:
        DataError: for a kernel that reads a value from nowhere, or if the shard cannot be written.
        UnsupportedKernelError: for an opcode without a cost rule.
    """
    sizes = [measured.tile_sizes for measured in kernels]
    bounds = [np.concatenate([s.kernel_bounds, s.output_bounds], axis=1) for s in sizes]
    ranks = [(s.kernel_bounds.shape[1], s.output_bounds.shape[1]) for s in sizes]
    runtimes = [measured.runtime_ns for measured in kernels]
    columns = _graph_columns([measured.kernel for measured in kernels], program) | {
        "kernel_fingerprint": digests_of([measured.fingerprint for measured in kernels]),
        "kernel_runs": np.array([measured.runs for measured in kernels], np.int64),
        "kernel_space_size": np.array([measured.space.size for measured in kernels], np.int64),
        "kernel_ranks": np.array(ranks, np.int32).reshape(-1, 2),
        "tile_bounds_offsets": offsets_of(part.size for part in bounds),
        "tile_bounds": np.concatenate([np.zeros(0, np.int32), *(part.ravel() for part in bounds)]).astype(
            np.int32
        ),
        "config_runtime_ns_offsets": offsets_of(len(part) for part in runtimes),
        "config_runtime_ns": np.concatenate([np.zeros(0, np.int64), *runtimes]).astype(np.int64),
        _ESTIMATE: np.concatenate([np.zeros(0), *_estimate(kernels, analytical)]),
        "config_loops": np.concatenate(
            [
                np.zeros((0, NUM_LOOP_FEATURES), np.float32),
                *(loop_features(m.space.nest, m.tile_sizes) for m in kernels),
            ]
        ),
    }
    write_shard(path, columns, metadata, FEATURES)


def write_recorded_features(
    path: Path, shard: Shard, program: ProgramFeatures, metadata: dict[str, object]
) -> None:
    """Writes the feature shard of kernels that a real machine ran.

    They have no tile size, and so no features of one, and no estimate: 1 ns stands in its place until a
    formula is fitted to training programs (`roofline`).

    Args:
        path: destination, overwritten if it exists.
        shard: recorded fusion samples (`datasets.recorded_kernels`).
        program: features of their program.
        metadata: JSON values, among them `program` and `application`.

    Raises:
        DataError: for a kernel that reads a value from nowhere, or if the shard cannot be written.
        UnsupportedKernelError: for an opcode without a cost rule.
    """
    count = shard.num_kernels
    one_each = np.arange(count + 1, dtype=np.int64)
    views = [kernel_view(shard, index, program.module) for index in range(count)]
    columns = _graph_columns(views, program) | {
        "kernel_fingerprint": np.asarray(shard["kernel_fingerprint"]),
        "kernel_runs": np.asarray(shard["kernel_default_runs"]),
        "kernel_space_size": np.asarray(shard["kernel_space_size"]),
        "kernel_ranks": np.zeros((count, 2), np.int32),
        "tile_bounds_offsets": np.zeros(count + 1, np.int64),
        "tile_bounds": np.zeros(0, np.int32),
        "config_runtime_ns_offsets": one_each,
        "config_runtime_ns": np.asarray(shard["kernel_runtime_ns"]),
        _ESTIMATE: np.ones(count),
        "config_loops": np.ones((count, NUM_LOOP_FEATURES), np.float32),
    }
    write_shard(path, columns, {**metadata, RECORDED: True}, FEATURES)


def _graph_columns(views: Sequence[Kernel], program: ProgramFeatures) -> dict[str, AnyArray]:
    """Returns the columns with the graphs of kernels and their static performance features."""
    keys = [_row_keys(kernel) for kernel in views]
    rows, node_key = np.unique(np.concatenate([np.zeros(0, np.int64), *keys]), return_inverse=True)
    row_opcode, row_features = _rows(rows, program)
    # Programs repeat their layers, so most rows are equal to others and are stored once.
    first, row_of_key = equal_rows(row_opcode, row_features)
    node_offsets = offsets_of(len(part) for part in keys)
    by_use, row_offsets, node_row = number_by_first_use(row_of_key[node_key], node_offsets)
    first = first[by_use]
    edges = [kernel_edges(kernel).T for kernel in views]
    # Inputs come first among the nodes of a kernel, and none of them is an output.
    is_output: list[bool] = []
    for kernel in views:
        outputs = frozenset(kernel.outputs)
        is_output += [False] * len(kernel.inputs) + [p in outputs for p in kernel.instructions]
    static = [static_performance(kernel, program.cost_analysis) for kernel in views]
    return {
        "row_opcode_offsets": row_offsets,
        "row_opcode": row_opcode[first],
        "row_features": row_features[first],
        "kernel_num_inputs": np.array([len(kernel.inputs) for kernel in views], np.int32),
        "kernel_static": np.array(static, np.float32).reshape(-1, 4),
        "node_row_offsets": node_offsets,
        "node_row": node_row.astype(np.int32),
        "node_is_output": np.array(is_output, np.uint8),
        "edge_nodes_offsets": offsets_of(len(part) for part in edges),
        "edge_nodes": np.concatenate([np.zeros((0, 2), np.int32), *edges]).astype(np.int32),
    }


def _row_keys(kernel: Kernel) -> I64:
    """Returns the key of each node's feature row: twice its index in the program, plus 1 for an input."""
    keys = 2 * (np.array(kernel.nodes, np.int64) + kernel.module.offsets[kernel.computation])
    keys[: len(kernel.inputs)] += 1
    return keys


def _rows(keys: I64, program: ProgramFeatures) -> tuple[I16, F32]:
    indices, is_input = keys // 2, keys % 2 == 1
    opcodes, features = program.opcodes[indices], program.node_features[indices]
    opcodes[is_input] = int(Opcode.PARAMETER)
    features[is_input] = input_rows(features[is_input])
    return opcodes.astype(np.int16), features


class FeatureShard:
    """The kernels of a feature shard, by position.

    Args:
        path: path of the shard, or of one of imported kernels (`costbench.datasets.tpugraphs.folder`), which
            have no tile sizes but only their features.

        estimate: quality of the estimates that are read; empty for that of the chip's compiler.
        features: dotted path of further features of nodes; empty for none.
        roofline: formula of the estimates of kernels that a real machine ran; None for the stored ones.

    Raises:
        DataError: if it is missing or damaged, or there are no such estimates or features for its kernels.
    """

    def __init__(
        self, path: Path, estimate: str = "", features: str = "", roofline: Roofline | None = None
    ) -> None:
        self._shard = Shard.open(path)
        beside: dict[str, Shard | Mapping[str, AnyArray]] = {}
        if roofline is not None:
            static = np.asarray(self._shard["kernel_static"], np.float64)
            beside[_ESTIMATE] = {_ESTIMATE: roofline.estimate(static)}
        elif estimate:
            beside[_ESTIMATE] = _open_estimates(self._shard, estimate)
        if features:
            beside[EXTRA] = _open_extras(self._shard, features)
        self._columns: Shard | _WithBeside = _WithBeside(self._shard, beside) if beside else self._shard
        self._read_of = estimate, features
        self.path = path
        self.program = str(self._shard.metadata["program"])
        self.application = str(self._shard.metadata["application"])
        self._imported = self._shard.record is TILE_GRAPHS

    def __len__(self) -> int:
        return self._shard.num_kernels

    @cached_property
    def columns(self) -> KernelColumns:
        """The columns of the shard, from which many kernels are read at a time."""
        if self._read_of[1]:
            return ExtendedColumns(self._columns)
        return ImportedColumns(self._columns) if self._imported else KernelColumns(self._columns)

    @property
    def is_recorded(self) -> bool:
        """Whether a real machine ran the kernels, so that they have neither tile sizes nor estimates."""
        return bool(self._shard.metadata.get(RECORDED))

    @property
    def comparable(self) -> Bool:
        """Kernels that models are compared on, bool [k]: those with a choice of tile size; all recorded."""
        return np.full(len(self), True) if self.is_recorded else self.space_sizes() > 1

    def with_roofline(self, roofline: Roofline | None) -> FeatureShard:
        """Returns the same kernels with the estimates of a roofline; these ones for None."""
        return self if roofline is None else FeatureShard(self.path, *self._read_of, roofline)

    def with_estimate(self, quality: str, features: str = "") -> FeatureShard:
        """Returns the same kernels with estimates of a quality and further features of nodes.

        Args:
            quality: quality of the estimates; empty for that of the chip's compiler.
            features: dotted path of the features; empty for none.

        Raises:
            DataError: if there are none.
        """
        return FeatureShard(self.path, quality, features) if quality or features else self

    def num_configs(self) -> I64:
        """Returns the number of measured decisions of each kernel, int64 [k]."""
        return np.diff(self._shard["config_runtime_ns_offsets"])

    def num_nodes(self) -> I64:
        """Nodes of each kernel, int64 [k]."""
        return np.diff(self._shard["node_row_offsets"])

    def graph(self, index: int) -> KernelGraph:
        """Returns the graph that `graph_tensors.kernel_graph` returns for the kernel."""
        shard = self._shard
        rows = self._part("node_row", index)
        num_inputs = int(shard["kernel_num_inputs"][index])
        features = shard["row_features"][rows]
        is_output = self._part("node_is_output", index, like="node_row")
        write_boundary_features(features, num_inputs, is_output[num_inputs:])
        if self._read_of[1]:
            features = np.concatenate([features, self._part(EXTRA, index, like="node_row")], axis=1)
        return KernelGraph(
            opcodes=shard["row_opcode"][rows].astype(np.int64),
            node_features=features,
            edges=np.ascontiguousarray(self._part("edge_nodes", index).T, np.int64),
            static_features=np.array(shard["kernel_static"][index]),
        )

    def instruction_opcodes(self, index: int) -> I64:
        """Opcodes of the kernel's instructions, without its inputs."""
        opcodes: I64 = self._shard["row_opcode"][self._part("node_row", index)].astype(np.int64)
        return opcodes[int(self._shard["kernel_num_inputs"][index]) :]

    def tile_sizes(self, index: int) -> TileSizes:
        """Returns the tile sizes that were measured."""
        split, rank = (int(number) for number in np.cumsum(self._shard["kernel_ranks"][index]))
        count = len(self._part("config_runtime_ns", index))
        bounds = self._part("tile_bounds", index).reshape(count, rank).astype(np.int64)
        return TileSizes(bounds[:, :split], bounds[:, split:])

    def config_features(self, index: int) -> F32:
        """Returns all features of the tile sizes that were measured, float32 [n, 28]."""
        if self._imported:
            return with_unknown_loops(self._part("config_features", index, like="config_runtime_ns"))
        loops = self._part("config_loops", index, like="config_runtime_ns")
        return np.concatenate([tile_features(self.tile_sizes(index)), loops], axis=1)

    def runtime_ns(self, index: int) -> I64:
        """Returns the measured runtimes, int64 [n]."""
        return self._part("config_runtime_ns", index)

    def analytical_ns(self, index: int) -> F64:
        """Returns the analytical model's estimates in ns, float64 [n]."""
        return self._part(_ESTIMATE, index, like="config_runtime_ns")

    def runs(self) -> I64:
        """Returns how often a run of the program executes each kernel (fusion: under the default config)."""
        return np.asarray(self._shard["kernel_runs"])

    def space_sizes(self) -> I64:
        """Returns the tile sizes of each kernel, legal or not."""
        return np.asarray(self._shard["kernel_space_size"])

    def fingerprint(self, index: int) -> str:
        """Returns the fingerprint of a kernel, 32 hexadecimal digits."""
        return bytes(self._shard["kernel_fingerprint"][index]).hex()

    def fingerprints(self) -> tuple[str, ...]:
        """Returns the fingerprint of each kernel, 32 hexadecimal digits."""
        return tuple(bytes(row).hex() for row in self._shard["kernel_fingerprint"])

    def _part(self, key: str, index: int, like: str = "") -> AnyArray:
        """Returns a kernel's part of a column; `like` names a column with parts as long, if it has none."""
        first, last = self._shard[f"{like or key}_offsets"][index : index + 2]
        return np.asarray(self._columns[key][int(first) : int(last)])


class _WithBeside:
    """The columns of a feature shard, some of them from shards beside it, by the column's key."""

    def __init__(self, shard: Shard, beside: Mapping[str, Shard | Mapping[str, AnyArray]]) -> None:
        self._shard, self._beside = shard, beside

    def __getitem__(self, key: str) -> AnyArray:
        return self._beside.get(key, self._shard)[key]


def roofline_of(paths: Sequence[Path]) -> Roofline | None:
    """Returns a roofline fitted to all kernels of feature shards; None unless a real machine ran them.

    Args:
        paths: feature shards of training programs.

    Raises:
        DataError: for damaged shards, or shards without a kernel.
    """
    shards = [FeatureShard(path) for path in paths]
    if not any(shard.is_recorded for shard in shards):
        return None
    static = [np.asarray(shard.columns.columns["kernel_static"], np.float64) for shard in shards]
    runtimes = [np.asarray(shard.columns.columns["config_runtime_ns"]).astype(np.float64) for shard in shards]
    applications = [shard.application for shard in shards for _ in range(len(shard))]
    return fit_roofline(np.concatenate(static), np.concatenate(runtimes), even_weights(applications))


def _open_estimates(shard: Shard, quality: str) -> Shard:
    path = _estimates_of(shard.path, quality)
    return _open_beside(path, "estimates", f"{_ESTIMATE}_offsets", shard, "config_runtime_ns_offsets")


def _open_extras(shard: Shard, features: str) -> Shard:
    path = _extras_of(shard.path, features)
    return _open_beside(path, "features", f"{EXTRA}_offsets", shard, "node_row_offsets")


def _open_beside(path: Path, noun: str, key: str, shard: Shard, key_of_shard: str) -> Shard:
    """Returns a shard beside a feature shard, with equally long parts for the same kernels."""
    beside = Shard.open(path)
    is_same = np.array_equal(beside["kernel_fingerprint"], shard["kernel_fingerprint"])
    if not (is_same and np.array_equal(beside[key], shard[key_of_shard])):
        raise DataError(f"{noun} of other kernels", where=path, expected=f"those of {shard.path}")
    return beside
