"""Features of a program that no processor enters (crop2024, section 3).

They are graphlets, counts of edges and the reuse profile.

They are arrays, so that a compiled simulation reads them and a file holds them. Values are numbered through
the whole program; an instruction lists the values that it reads, which is its graphlet, and a phi lists them
by predecessor, which joins blocks to superblocks. Accesses that may meet in memory share a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from io import BytesIO
from os import PathLike

import numpy as np

from costbench.arrays import I64
from costbench.artifacts import atomic_path, read_bytes
from costbench.datasets.tpugraphs.archive import DAMAGE
from costbench.errors import DataError
from costbench.limits import max_expanded_bytes
from costbench_schedules.llvm.instrumentation import memory_sites
from costbench_schedules.llvm.operations import KINDS, Access, FunctionOperations
from costbench_schedules.llvm.program import ENTRY_EDGE, Instruction, Program

NONE = -1
_OCTAVE = 4
_NEAR = 6
"""Bins of first accesses (distance -1) and of the distances 0 to 4; farther ones have four bins an octave."""
_FIRST = 9
"""Quarters of an octave at which these begin: 2 ** (9 / 4) = 4.76."""
BIN_DISTANCES = np.array(
    [*range(-1, _NEAR - 1), *(2.0 ** (quarter / _OCTAVE) for quarter in range(_FIRST, 40 * _OCTAVE))]
)
"""Reuse distance that each bin of a profile stands for, in lines."""
FORMAT = 1
_EXPECTED = "a file of ProgramFeatures.save"


@dataclass(frozen=True, eq=False)
class StaticFeatures:
    """What the text of a program says. Arrays are int64; `NONE` stands for nothing.

    Attributes:
        kinds: position in `operations.KINDS` of each instruction, [n].
        shapes: lanes, bits per lane, constant bytes of a bulk access, whether floating, [n, 4].
        results: value that each makes, [n].
        starts: offsets of each instruction in `operands`, [n + 1].
        operands: values that are read.
        sources: block from which each operand of a phi comes; `NONE` for other instructions.
        keys: group of accesses that meet, value of their base, whether it writes, [n, 3].
        sites: number of an instruction that touches memory, [n].
        blocks: offsets of blocks in instructions, [b + 1].
        functions: function of each block, [b].
        edges: source block (`NONE` at the entry of a function) and block, [e, 2].
        num_values: number of values in all.
    """

    kinds: I64
    shapes: I64
    results: I64
    starts: I64
    operands: I64
    sources: I64
    keys: I64
    sites: I64
    blocks: I64
    functions: I64
    edges: I64
    num_values: int


@dataclass(frozen=True, eq=False)
class ProgramFeatures:
    """What is known of a program on every processor.

    Attributes:
        static: static features, which its text says.
        threads: numbers of threads that counts were taken for, ascending, int64 [t].
        counts: effective executions of each edge, int64 [t, 2, e] (serial ones and the most of any
            task), and those of all threads together.
        profile: site, position in `BIN_DISTANCES`, number of samples, int64 [p, 3].
        touched: number of lines touched in one run.
        footprint: bytes of arguments and workspaces.
        names: names of the blocks, `function:block`.
        subject: description of what program it is, where a file says so.
    """

    static: StaticFeatures
    threads: I64
    counts: I64
    profile: I64
    touched: int
    footprint: int
    names: tuple[str, ...]
    subject: str = ""

    def effective_counts(self, threads: int) -> I64:
        """Returns the effective executions of each edge (equation 3 by the task that does most).

        Raises:
            DataError: if counts were not taken for this number of threads.
        """
        return np.asarray(self.counts[self._index_of(threads), 0], dtype=np.int64)

    def total_counts(self, threads: int) -> I64:
        """Returns the executions of each edge by all threads together."""
        return np.asarray(self.counts[self._index_of(threads), 1], dtype=np.int64)

    def _index_of(self, threads: int) -> int:
        indices = np.flatnonzero(self.threads == threads)
        if not len(indices):
            taken = ", ".join(map(str, self.threads.tolist()))
            raise DataError(
                f"no counts for {threads} threads", expected=f"one of {taken}, or features taken again"
            )
        return int(indices[0])

    def block_counts(self, threads: int) -> I64:
        """Returns the effective executions of each block."""
        blocks = len(self.static.blocks) - 1
        return np.bincount(
            self.static.edges[:, 1], weights=self.effective_counts(threads), minlength=blocks
        ).astype(np.int64)

    def to_bytes(self) -> bytes:
        """Returns the features as a compressed npz file."""
        arrays = {f"static.{f.name}": np.asarray(getattr(self.static, f.name)) for f in fields(self.static)}
        left_out = {"static"} if self.subject else {"static", "subject"}
        arrays |= {f.name: np.asarray(getattr(self, f.name)) for f in fields(self) if f.name not in left_out}
        out = BytesIO()
        np.savez_compressed(out, allow_pickle=False, format=np.array(FORMAT), **arrays)
        return out.getvalue()

    def save(self, path: str | PathLike[str]) -> None:
        """Writes `to_bytes` to a file."""
        with atomic_path(path) as temporary:
            temporary.write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> ProgramFeatures:
        """Reads features that `save` wrote.

        Raises:
            DataError: if the file is no such file.
        """
        return cls.from_bytes(read_bytes(path), path)

    @classmethod
    def from_bytes(cls, content: bytes, where: str | PathLike[str]) -> ProgramFeatures:
        """Inverts `to_bytes`; `where` is what errors name.

        Raises:
            DataError: if these are no features.
        """
        try:
            with np.load(BytesIO(content), allow_pickle=False) as archive:
                expanded = sum(member.file_size for member in archive.zip.infolist())
                if expanded > max_expanded_bytes(len(content)):
                    raise ValueError(f"{len(content)} bytes that expand to {expanded}")
                arrays = {name: archive[name] for name in archive.files}
            if int(arrays.pop("format")) != FORMAT:
                raise DataError("features of another version", where=where, expected=f"format {FORMAT}")
            static_arrays = {name.partition(".")[2]: arrays.pop(name) for name in list(arrays) if "." in name}
            static = StaticFeatures(**{**static_arrays, "num_values": int(static_arrays["num_values"])})
            names = tuple(str(name) for name in arrays.pop("names"))
            subject = str(arrays.pop("subject", ""))
            touched, footprint = int(arrays.pop("touched")), int(arrays.pop("footprint"))
            return cls(
                static=static, names=names, subject=subject, touched=touched, footprint=footprint, **arrays
            )
        except DAMAGE as error:
            raise DataError("cannot be read as features", where=where, expected=_EXPECTED) from error


def static_features(program: Program) -> tuple[StaticFeatures, tuple[str, ...]]:
    """Returns the static features of a program and the names of its blocks.

    Raises:
        DataError: for an unknown instruction.
    """
    builder = _Builder(program)
    for function, graph in enumerate(builder.graphs):
        builder.add(function, graph)
    return builder.build(), tuple(builder.names)


class _Builder:
    """Collects the arrays of `StaticFeatures`."""

    def __init__(self, program: Program) -> None:
        self.graphs = [FunctionOperations(function) for function in program.functions]
        self.values: dict[tuple[int, str], int] = {}
        self.block_numbers: dict[tuple[int, str], int] = {}
        for index, function in enumerate(program.functions):
            for _, name in function.parameters:
                self.values[index, name] = len(self.values)
            for block in function.blocks:
                self.block_numbers[index, block.name] = len(self.block_numbers)
                for instruction in block.instructions:
                    if instruction.result:
                        self.values[index, instruction.result] = len(self.values)
        self.sites = {
            (site.function, site.block, site.position): number
            for number, site in enumerate(memory_sites(program))
        }
        self.rows: dict[str, list[list[int]]] = {name: [] for name in ("kinds", "shapes", "keys")}
        self.flat: dict[str, list[int]] = {
            name: [] for name in ("results", "starts", "operands", "sources", "sites", "blocks", "functions")
        }
        self.edges: list[tuple[int, int]] = []
        self.names: list[str] = []
        self.num_keys = 0

    def add(self, index: int, graph: FunctionOperations) -> None:
        """Adds a function."""
        function = graph.function
        groups = self._groups(graph)
        for block in function.blocks:
            self.flat["blocks"].append(len(self.flat["results"]))
            self.flat["functions"].append(index)
            self.names.append(f"{function.name}:{block.name}")
            rows = zip(
                block.instructions, graph.operations[block.name], graph.accesses[block.name], strict=True
            )
            for position, (instruction, operation, access) in enumerate(rows):
                self.rows["kinds"].append([KINDS.index(operation.kind)])
                shape = [operation.lanes, operation.bits, operation.length, int(operation.floating)]
                self.rows["shapes"].append(shape)
                self.rows["keys"].append(self._key(index, access, groups))
                self.flat["sites"].append(self.sites.get((function.name, block.name, position), NONE))
                self.flat["results"].append(self.values.get((index, instruction.result), NONE))
                self.flat["starts"].append(len(self.flat["operands"]))
                for number, origin in self._reads(index, instruction):
                    self.flat["operands"].append(number)
                    self.flat["sources"].append(origin)
        for source, target in function.edges:
            start = NONE if source == ENTRY_EDGE else self.block_numbers[index, source]
            self.edges.append((start, self.block_numbers[index, target]))

    def _reads(self, function: int, instruction: Instruction) -> Iterator[tuple[int, int]]:
        if instruction.opcode == "phi":
            for name, source in instruction.incoming:
                if name:
                    yield self.values[function, name], self.block_numbers[function, source]
            return
        for name in instruction.operands:
            yield self.values[function, name], NONE

    def _groups(self, graph: FunctionOperations) -> dict[tuple[str, int], int]:
        """Returns a key for each base and offset: overlapping accesses of one base share it."""
        by_base: dict[str, list[Access]] = {}
        for block_accesses in graph.accesses.values():
            for access in block_accesses:
                if access is not None and access.base:
                    by_base.setdefault(access.base, []).append(access)
        keys: dict[tuple[str, int], int] = {}
        for base, accesses in by_base.items():
            end = None
            for access in sorted(accesses, key=lambda item: item.offset):
                if end is None or access.offset >= end:
                    self.num_keys += 1
                    end = access.offset
                keys[base, access.offset] = self.num_keys - 1
                end = max(end, access.offset + access.num_bytes)
        return keys

    def _key(self, function: int, access: Access | None, groups: Mapping[tuple[str, int], int]) -> list[int]:
        if access is None or not access.base:
            return [NONE, NONE, int(access is not None and access.writes)]
        base = self.values[function, access.base]
        return [groups[access.base, access.offset], base, int(access.writes)]

    def build(self) -> StaticFeatures:
        """Returns the arrays."""
        flat = {name: np.array(values, dtype=np.int64) for name, values in self.flat.items()}
        flat["starts"] = np.append(flat["starts"], len(flat["operands"]))
        flat["blocks"] = np.append(flat["blocks"], len(flat["results"]))
        rows = {name: np.array(values, dtype=np.int64) for name, values in self.rows.items()}
        kinds, shapes, keys = rows["kinds"][:, 0], rows["shapes"], rows["keys"]
        edges = np.array(self.edges, dtype=np.int64).reshape(-1, 2)
        return StaticFeatures(
            kinds=kinds, shapes=shapes, keys=keys, edges=edges, num_values=len(self.values), **flat
        )


def bins_of(distances: I64) -> I64:
    """Returns the positions in `BIN_DISTANCES` of reuse distances in lines."""
    quarters = np.round(np.log2(np.maximum(distances, 1)) * _OCTAVE).astype(np.int64)
    return np.where(distances < _NEAR - 1, distances + 1, quarters - _FIRST + _NEAR)


def profile_of(samples: I64) -> I64:
    """Returns samples [n, 2] of site and reuse distance as rows of site, bin and number, sorted."""
    pairs = np.column_stack([samples[:, 0], bins_of(samples[:, 1])])
    unique, numbers = np.unique(pairs, axis=0, return_counts=True)
    return np.column_stack([unique, numbers])


def effective_counts(counts: Iterable[I64]) -> tuple[I64, I64]:
    """Returns the counts of a run's edges, by the thread that does most and by all together.

    Args:
        counts: rows of one run: of serial code, then of each task.
    """
    rows = np.array(list(counts), dtype=np.int64)
    tasks = rows[1:] if len(rows) > 1 else np.zeros((1, rows.shape[1]), dtype=np.int64)
    return rows[0] + tasks.max(axis=0), rows.sum(axis=0)
