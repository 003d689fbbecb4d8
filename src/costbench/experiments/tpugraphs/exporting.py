"""Exports measured tile sizes and layouts as TpuGraphs publishes them, so that its own baselines read them.

Graphs go to `npz/<collection>/<split>/<id>.npz` and `pb/<collection>/<split>/<id>.pb`, in the keys, shapes
and types of the data set. Only what was measured is exported: a tile kernel's default is the first measured
tile size with the runtime of the compiler's default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from costbench.arrays import I64
from costbench.compiler.kernel import kernel_module
from costbench.datasets.layout_shards import SEARCHES, open_layout_shard, read_layout_program
from costbench.datasets.measured_kernels import CompiledPrograms, MeasuredKernel, MeasuredKernels
from costbench.datasets.splits import read_split
from costbench.datasets.storage import Shard, list_shards
from costbench.datasets.tpugraphs.folder import COLLECTIONS, TILE_COLLECTION
from costbench.datasets.tpugraphs.npz import write_graph_npz, write_layout_npz, write_tile_npz
from costbench.datasets.tpugraphs.raw import (
    TuningKernel,
    TuningProgram,
    write_layout_tuning,
    write_tile_tuning,
)
from costbench.errors import DataError, HloError
from costbench.experiments.parameter_file import load_params
from costbench.experiments.workspace import load_workspace
from costbench.features.tpugraphs_graphs import layout_graph_of, proto_graph, tile_graph_of
from costbench.hlo.opcode import Opcode
from costbench.hlo.reader import read_proto
from costbench.target import load_target

Progress = Callable[[str], None]
_ID_DIGITS = 16


@dataclass(frozen=True)
class ExportOptions:
    """What is exported.

    Attributes:
        params: parameter file of the profile whose stages `generate` and `split` have run.
        chip: name of the chip whose measurements are exported.
        split: `random` or `manual`.
        npz: whether `.npz` files are written.
        raw: whether raw files (`.pb`) are written.

    Raises:
        DataError: if neither are.
    """

    params: Path
    chip: str
    split: str
    npz: bool = True
    raw: bool = True

    def __post_init__(self) -> None:
        if not (self.npz or self.raw):
            raise DataError("nothing to write", field="--no-npz --no-raw", expected="one of them at most")


def export_folder(options: ExportOptions, out: Path, progress: Progress) -> dict[str, dict[str, int]]:
    """Writes the samples of a profile as a folder of TpuGraphs.

    Kernels with a single measured tile size are left out, as in the data set, and so are programs that the
    split drops.

    Args:
        options: choice of the samples.
        out: folder of the data set.
        progress: called with a line for every program.

    Returns:
        Number of graphs by collection and split.

    Raises:
        CostbenchError: if `out` holds graphs already, a stage has not run, or a shard is damaged.
    """
    for kind, is_written in (("npz", options.npz), ("pb", options.raw)):
        if is_written and any((out / kind).rglob(f"*.{kind}")):
            raise DataError("holds graphs already", where=out / kind, expected="a folder without any")
    workspace = load_workspace(load_params(options.params))
    data = workspace.stage("generate")
    split = read_split(workspace.stage("split") / f"{options.split}.json")
    sets = {"train": split.train, "valid": split.validation, "test": split.test}
    part_of = {program: part for part, programs in sets.items() for program in programs}
    counts: dict[str, dict[str, int]] = {}
    for program, graphs in (*_tiles(options, data, part_of), *_layouts(options, data, part_of)):
        for collection, number in graphs(out).items():
            of_split = counts.setdefault(collection, {})
            of_split[part_of[program]] = of_split.get(part_of[program], 0) + number
        progress(program)
    if not counts:
        raise DataError(
            f"no samples on {options.chip}", where=data, expected="what `costbench generate` makes"
        )
    return counts


_Write = Callable[[Path], dict[str, int]]
"""Writes the graphs of one program into a folder; returns their number by collection."""


def _tiles(options: ExportOptions, data: Path, part_of: Mapping[str, str]) -> Iterator[tuple[str, _Write]]:
    folder = data / "tile" / options.chip
    architecture = load_target(options.chip).architecture
    modules = CompiledPrograms(data, 1)
    for path in list_shards(folder) if folder.is_dir() else ():
        shard = MeasuredKernels((Shard.open(path),), modules, architecture)
        if shard.program in part_of:
            yield shard.program, _tile_writer(options, shard, part_of[shard.program])


def _tile_writer(options: ExportOptions, shard: MeasuredKernels, part: str) -> _Write:
    def write(out: Path) -> dict[str, int]:
        number = 0
        for index in range(len(shard)):
            measured = shard.kernel(index)
            if len(measured.runtime_ns) > 1:
                name = f"{shard.program}_{measured.fingerprint[:_ID_DIGITS]}"
                tuning = tuning_kernel(measured, name)
                if options.npz:
                    write_tile_npz(_path(out, "npz", TILE_COLLECTION, part, name), tile_graph_of(tuning))
                if options.raw:
                    write_tile_tuning(_path(out, "pb", TILE_COLLECTION, part, name), [tuning])
                number += 1
        return {TILE_COLLECTION: number}

    return write


def tuning_kernel(measured: MeasuredKernel, name: str) -> TuningKernel:
    """Returns a measured kernel as a module of its own with its runs.

    Raises:
        DataError: if no measured tile size has the runtime of the default.
    """
    at_default = np.flatnonzero(measured.runtime_ns == measured.default_ns)
    if not len(at_default):
        raise DataError("no default run", where=name, expected=f"one of {measured.default_ns} ns")
    is_default = np.zeros(len(measured.runtime_ns), np.bool_)
    is_default[at_default[0]] = True
    return TuningKernel(
        module=kernel_module(measured.kernel, name),
        kernel=measured.kernel,
        tile_sizes=measured.tile_sizes,
        input_bounds=np.zeros((len(measured.runtime_ns), 0), np.int64),
        runtime_ns=measured.runtime_ns,
        is_default=is_default,
        num_failed=0,
        fingerprint=int(measured.fingerprint[:_ID_DIGITS], 16),
    )


def _layouts(options: ExportOptions, data: Path, part_of: Mapping[str, str]) -> Iterator[tuple[str, _Write]]:
    folder = data / "layout" / options.chip
    for path in list_shards(folder) if folder.is_dir() else ():
        program = str(open_layout_shard(path).metadata["program"])
        if program in part_of:
            yield program, _layout_writer(options, path, program, part_of[program])


def _layout_writer(options: ExportOptions, path: Path, program: str, part: str) -> _Write:
    def write(out: Path) -> dict[str, int]:
        counts = {}
        shard, tuning = open_layout_shard(path), read_layout_program(path)
        family = shard.metadata.get("family", "xla")
        for search, sources in SEARCHES.items():
            rows = np.flatnonzero(np.isin(shard["config_source"], sources))
            if len(rows) < 2:
                continue
            collection = f"layout:{family}:{search}"
            chosen = _rows(tuning, rows)
            if options.npz:
                graph = layout_graph_of(chosen, program, collection)
                write_layout_npz(_path(out, "npz", collection, part, program), graph)
            if options.raw:
                write_layout_tuning(_path(out, "pb", collection, part, program), chosen)
            counts[collection] = 1
        return counts

    return write


def _rows(tuning: TuningProgram, rows: I64) -> TuningProgram:
    return replace(
        tuning,
        minor_to_major=tuning.minor_to_major[rows],
        runtime_ns=tuning.runtime_ns[rows],
        is_default=tuning.is_default[rows],
    )


def _path(out: Path, kind: str, collection: str, part: str, name: str) -> Path:
    return out / kind / COLLECTIONS[collection] / part / f"{name}.{kind}"


def featurize_file(path: Path, destination: Path) -> tuple[int, int]:
    """Writes the graph of the program in a file; returns its numbers of nodes and edges.

    Args:
        path: an HLO file of any form, see `costbench.hlo.reader.read_proto`.
        destination: the `.npz` file.

    Raises:
        HloError: if there is no program in the file, or it has an opcode that XLA does not.
        DataError: if `destination` is the HLO file itself, or cannot be written.
    """
    proto = read_proto(path)
    if destination.exists() and destination.samefile(path):
        raise DataError("is the HLO file itself", where=destination, field="--out", expected="another file")
    for inst in (inst for body in proto.computations for inst in body.instructions):
        try:
            Opcode.from_name(inst.opcode)
        except HloError as error:
            raise error.recast(HloError, where=path, field=inst.name) from error
    graph = proto_graph(proto, where=str(path))
    write_graph_npz(destination, graph)
    return len(graph.opcodes), len(graph.edges)
