"""Compiles a program into kernels: layout assignment, then fusion; equal kernels are counted once.

A program's runtime is the sum over its kernels of runtime times `trip_count`; since kernels with equal
fingerprints take equally long, it is also the sum over `unique_kernels` of runtime times `runs_per_program`.

Arguments, constants, tuples, loops and calls become no kernels, nor do reshapes, transposes and copies that
move no data, nor work on scalars alone, which the scalar unit does in parallel with the vector unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from operator import attrgetter

from costbench.compiler.convolution_folding import fold_reversals
from costbench.compiler.fingerprints import ModuleFingerprints
from costbench.compiler.fusion.cutting import body_nodes, cut_out
from costbench.compiler.fusion.facts import body_facts
from costbench.compiler.fusion.groups import KernelGroups
from costbench.compiler.fusion.heuristic import default_groups
from costbench.compiler.fusion.rules import Kind, is_free, kind_of
from costbench.compiler.kernel import Kernel
from costbench.compiler.kernel_arrays import kernel_arrays, unpack_kernels
from costbench.compiler.layout.assign import assign_layouts
from costbench.compiler.lowering.loop_nest import Lowering
from costbench.compiler.trip_counts import DEFAULT_UNKNOWN_TRIP_COUNT, execution_counts
from costbench.errors import HloError
from costbench.hlo.module import HloModule


@dataclass(frozen=True, eq=False)
class CompiledProgram:
    """A program cut into kernels.

    Attributes:
        name: name of the program.
        module: the program, layouts assigned and copies inserted; kernels refer to it.
        kernels: in an order in which they can run, callees before callers.
    """

    name: str
    module: HloModule
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, eq=False)
class UniqueKernel:
    """A kernel that represents all kernels of its program with one fingerprint, which cost the same.

    Attributes:
        kernel: first of them.
        fingerprint: 32 hexadecimal digits.
        runs_per_program: how often all of them together run in one run of the program.
    """

    kernel: Kernel
    fingerprint: str
    runs_per_program: int


class PreparedProgram:
    """A canonical program with its layouts assigned, its default fusions and what derives from them.

    Each property is computed when first used and cached.

    Args:
        module: program without fusions, whose layouts are ignored.
        name: name of the program.
        unknown_trip_count: iterations assumed for a loop about which nothing is known.
        lay_out: function that assigns layouts; that of a TPU by default.

    Attributes:
        module: the program, layouts assigned and copies inserted.
        name: name of the program.
        counts: runs of each computation per run of the program.
    """

    def __init__(
        self,
        module: HloModule,
        name: str,
        *,
        unknown_trip_count: int = DEFAULT_UNKNOWN_TRIP_COUNT,
        lay_out: Callable[[HloModule], HloModule] | None = None,
    ) -> None:
        self.module = (lay_out or lay_out_program)(module)
        self.name = name
        self.counts = tuple(execution_counts(self.module, unknown_trip_count=unknown_trip_count))

    def __repr__(self) -> str:
        """Returns the name and the number of instructions."""
        return f"PreparedProgram({self.name}, {self.module.num_instructions:,} instructions)"

    @cached_property
    def fusions(self) -> dict[int, KernelGroups]:
        """Returns the default heuristic's groups for every computation that runs."""
        return default_fusions(self.module, self.counts)

    @cached_property
    def compiled(self) -> CompiledProgram:
        """Returns the program compiled by the default heuristics."""
        return assemble(self.module, self.name, self.fusions, self.counts)

    @cached_property
    def fingerprints(self) -> ModuleFingerprints:
        """Returns what computes the fingerprints of its kernels."""
        return ModuleFingerprints(self.module)

    @cached_property
    def lowering(self) -> Lowering:
        """Returns what lowers its kernels to loop nests."""
        return Lowering(self.module)

    @cached_property
    def unique_kernels(self) -> tuple[UniqueKernel, ...]:
        """Returns the default's kernels without repetition, in order of first occurrence."""
        return _unique(self.compiled, self.fingerprints)


def compile_program(
    module: HloModule, name: str, *, unknown_trip_count: int = DEFAULT_UNKNOWN_TRIP_COUNT
) -> CompiledProgram:
    """Compiles a canonical program (no fusions, layouts ignored) by the default heuristics.

    Args:
        module: the program.
        name: name of the program.
        unknown_trip_count: iterations assumed for a loop about which nothing is known.
    """
    return PreparedProgram(module, name, unknown_trip_count=unknown_trip_count).compiled


def lay_out_program(module: HloModule) -> HloModule:
    """Returns a canonical program with layouts assigned and copies inserted."""
    return assign_layouts(fold_reversals(module))


def default_fusions(module: HloModule, counts: Sequence[int]) -> dict[int, KernelGroups]:
    """Returns the default heuristic's groups for every computation that runs, that is, `counts` above 0."""
    return {
        index: default_groups(body_facts(module.computations[index]))
        for index, count in enumerate(counts)
        if count
    }


def assemble(
    module: HloModule, name: str, fusions: Mapping[int, KernelGroups], counts: Sequence[int]
) -> CompiledProgram:
    """Returns the compiled program, given the groups of its computations.

    Args:
        module: the program, layouts assigned.
        name: name of the program.
        fusions: groups of the instructions of every computation that runs.
        counts: runs of each computation per run of the program.

    Raises:
        HloError: if no order exists in which the groups could run.
    """
    kernels = [
        kernel
        for index, groups in fusions.items()
        for kernel in kernels_of(module, index, groups, counts[index])
    ]
    verify_order(module, kernels)
    return CompiledProgram(name=name, module=module, kernels=tuple(kernels))


def verify_order(module: HloModule, kernels: Iterable[Kernel]) -> None:
    """Checks that every value a kernel reads is computed by an earlier kernel or needs no kernel.

    Raises:
        HloError: if a kernel reads what a later one computes, as kernels that wait for each other would.
    """
    written: set[tuple[int, int]] = set()
    for kernel in kernels:
        body = kernel.body
        for position in kernel.inputs:
            source = position
            inst = body.instructions[source]
            while inst.operands and is_free(inst, body.instructions[inst.operands[0]].shape):
                source = inst.operands[0]
                inst = body.instructions[source]
            needs_no_kernel = kind_of(inst.opcode) is Kind.CONTROL or inst.shape.num_elements <= 1
            if not needs_no_kernel and (kernel.computation, source) not in written:
                raise HloError(
                    "a kernel reads what no earlier kernel has made",
                    where=module.name,
                    field=f"{body.name}/{inst.name}",
                )
        written.update((kernel.computation, position) for position in kernel.outputs)


def kernels_of(
    module: HloModule, computation: int, groups: KernelGroups, trip_count: int
) -> Iterator[Kernel]:
    """Yields the kernels of one computation, given its groups."""
    arrays = cut_out(groups.groups, groups.reads, body_nodes(groups.body, groups.graph))
    for positions in unpack_kernels(arrays):
        yield Kernel(module, computation, *positions, trip_count=trip_count)


def unique_kernels(compiled: CompiledProgram) -> tuple[UniqueKernel, ...]:
    """Returns kernels without repetition, in order of first occurrence."""
    return _unique(compiled, ModuleFingerprints(compiled.module))


def _unique(compiled: CompiledProgram, fingerprints: ModuleFingerprints) -> tuple[UniqueKernel, ...]:
    first: dict[str, Kernel] = {}
    runs: dict[str, int] = {}
    for computation, group in groupby(compiled.kernels, attrgetter("computation")):
        kernels = list(group)
        arrays = kernel_arrays(kernel.positions for kernel in kernels)
        for kernel, name in zip(kernels, fingerprints.kernels(computation, arrays), strict=True):
            key = name.hex()
            first.setdefault(key, kernel)
            runs[key] = runs.get(key, 0) + kernel.trip_count
    return tuple(UniqueKernel(kernel, key, runs[key]) for key, kernel in first.items())
