"""Programs as XLA's backend for processors sees them: layouts, fusion space, names, and XLA's own fusions.

Layouts are row-major, XLA's choice on processors. XLA's loop emitter fuses elementwise operations, operations
that pick elements, and reductions; all others run alone. So the fusion space is that of `compiler.fusion`
without the edges of contractions, gathers, scatters and the like.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import numpy as np

from costbench.arrays import I16
from costbench.compiler.fusion.rules import Kind, kind_of
from costbench.compiler.fusion.space import FusionSpace
from costbench.compiler.kernel import Kernel
from costbench.compiler.kernel_arrays import kernel_arrays
from costbench.compiler.program import PreparedProgram
from costbench.errors import ChoiceError, DataError, HloError, choose
from costbench.hardware.xla_cpu.fusing import NO_WORK, Membership, running_computations
from costbench.hardware.xla_cpu.transposes import transposes_of
from costbench.hlo.conversion import module_to_proto
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode, opcodes
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.shape import Shape

CHIP = "xla_cpu"
_LOOP_KINDS = frozenset({Kind.ELEMENTWISE, Kind.PICKING, Kind.REDUCE})
_NEVER_FUSED = opcodes("rng map stochastic-convert")
_TOP_K, _LARGEST = b"\x88\x05", b"\xa8\x05\x01"
"""Tag of field 81 of XLA's `HloInstructionProto`, `k`; tag and value of field 85, `largest`."""
REMADE = opcodes("broadcast iota")
"""Opcodes that are computed again wherever they are read."""


def row_major(module: HloModule) -> HloModule:
    """Returns the program with row-major arrays; instructions keep their positions."""
    computations = tuple(
        replace(
            body,
            instructions=tuple(replace(inst, shape=_row_major(inst.shape)) for inst in body.instructions),
        )
        for body in module.computations
    )
    return replace(module, computations=computations)


def _row_major(shape: Shape) -> Shape:
    if shape.is_tuple:
        return replace(shape, tuple_shapes=tuple(map(_row_major, shape.tuple_shapes)))
    return shape.with_layout(tuple(range(shape.rank - 1, -1, -1)))


def named_bytes(module: HloModule) -> bytes:
    """Returns a serialised module in which instruction n of all is called `i<n>`.

    Raises:
        HloError: for a constant without a value, as modules that were read from text have them.
    """
    for inst in (inst for body in module.computations for inst in body.instructions):
        if inst.opcode is Opcode.CONSTANT and not inst.literal:
            expected = "a binary HLO module: values of constants in text are not read"
            raise HloError("has no value", where=module.name, field=inst.name, expected=expected)
    computations = []
    for body, offset in zip(module.computations, module.offsets, strict=False):
        instructions = tuple(
            replace(inst, name=f"i{offset + position}") for position, inst in enumerate(body.instructions)
        )
        computations.append(HloComputation(f"c{offset}", instructions, body.root))
    proto = module_to_proto(HloModule(module.name, tuple(computations), module.entry))
    for message in (message for body in proto.computations for message in body.instructions):
        if message.opcode == "topk":
            # XLA wants in fields what the shape of the result says: how many, and that they are the largest.
            count = message.shape.tuple_shapes[0].dimensions[-1]
            message.MergeFromString(_TOP_K + _varint(count) + _LARGEST)
    return proto.SerializeToString(deterministic=True)


def _varint(number: int) -> bytes:
    """Returns a non-negative number as protocol buffers write it."""
    digits = []
    while number > 0x7F:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*digits, number])


def admits_fusion(source: Instruction, user: Instruction) -> bool:
    """Returns whether one loop of XLA can hold both instructions."""
    return _is_loop(source) and _is_loop(user)


def _is_loop(inst: Instruction) -> bool:
    is_loop = kind_of(inst.opcode) in _LOOP_KINDS and inst.opcode not in _NEVER_FUSED
    return is_loop and not inst.shape.is_tuple


@dataclass(frozen=True, eq=False)
class PlacedKernels:
    """The kernels of a program, at all places where they run.

    Attributes:
        kernels: kernels; equal ones at several places are listed at each.
        fingerprints: fingerprint of each, 16 bytes.
    """

    kernels: tuple[Kernel, ...]
    fingerprints: tuple[bytes, ...]


class MachineProgram:
    """A program prepared for the machine.

    Args:
        module: canonical program, without fusions.
        name: name of the program.

    Attributes:
        name: name of the program.
        prepared: the program with row-major layouts.
        module: that program.
    """

    def __init__(self, module: HloModule, name: str) -> None:
        self.name = name
        self.prepared = PreparedProgram(module, name, lay_out=row_major)
        self.module = self.prepared.module

    @cached_property
    def space(self) -> FusionSpace:
        """Returns the fusion configs."""
        return FusionSpace(self.prepared, admits_fusion)

    def kernels(self, config: I16) -> PlacedKernels:
        """Returns the kernels of a config [m]."""
        return self._placed(self.space.compile(config).kernels)

    def _placed(self, kernels: Sequence[Kernel]) -> PlacedKernels:
        names: list[bytes] = []
        for computation, group in groupby(kernels, attrgetter("computation")):
            arrays = kernel_arrays(kernel.positions for kernel in group)
            names += self.prepared.fingerprints.kernels(computation, arrays)
        return PlacedKernels(tuple(kernels), tuple(names))

    # ---- what XLA is given -------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """Returns the serialised program with the names of `named_bytes`."""
        return named_bytes(self.module)

    def membership(self, kernels: Sequence[Kernel], library: frozenset[str] = frozenset()) -> Membership:
        """Returns which kernel each instruction belongs to, by the names of `to_bytes`."""
        owner: dict[str, int] = {}
        readers: dict[str, set[int]] = {}
        for number, kernel in enumerate(kernels):
            offset = self.module.offsets[kernel.computation]
            for position in kernel.instructions:
                readers.setdefault(f"i{offset + position}", set()).add(number)
                if kernel.instruction(position).opcode not in REMADE:
                    owner[f"i{offset + position}"] = number
        # The kernel that an instruction belongs to writes it, where it is in several.
        writers = {
            f"i{self.module.offsets[kernel.computation] + position}": number
            for number, kernel in enumerate(kernels)
            for position in kernel.outputs
        }
        several = {name: frozenset(numbers) for name, numbers in readers.items() if len(numbers) > 1}
        single = {name: number for name, number in owner.items() if name not in several}
        return Membership(single | writers, several, library, transposes_of(self.module))

    # ---- what XLA made of it -----------------------------------------------------------------------------

    def position(self, name: str) -> tuple[int, int] | None:
        """Returns computation and position of the instruction that XLA's `op_name` names; None for none."""
        number = name.rpartition("/")[2]
        if number[:1] != "i" or not number[1:].isdecimal() or int(number[1:]) >= self.module.offsets[-1]:
            return None
        computation = int(np.searchsorted(self.module.offsets, int(number[1:]), side="right")) - 1
        return computation, int(number[1:]) - self.module.offsets[computation]

    def own_fusions(self, compiled: bytes) -> tuple[PlacedKernels, dict[str, int], frozenset[str]]:
        """Returns the kernels of XLA's own default, read from the module that it compiled.

        Operations whose result has no name in the program are no kernels.

        Args:
            compiled: serialised module, scheduled and fused.

        Returns:
            kernels; number of the kernel of each operation by name; names of reductions of a library.
        """
        module = hlo_pb2.HloModuleProto.FromString(compiled)
        by_id = {computation.id: computation for computation in module.computations}
        kernels: list[Kernel] = []
        numbers: dict[str, int] = {}
        library: set[str] = set()
        for computation in running_computations(module):
            for inst in by_id[computation].instructions:
                if inst.opcode in NO_WORK:
                    continue
                body = (
                    by_id[inst.called_computation_ids[0]] if inst.opcode == Opcode.FUSION.xla_name else None
                )
                if inst.fusion_kind == "kCustom" and body is not None:
                    library.update(i.metadata.op_name for i in body.instructions if i.opcode == "reduce")
                kernel = self._own_kernel(inst, body)
                if kernel is not None:
                    numbers[inst.name] = len(kernels)
                    kernels.append(kernel)
        order = sorted(range(len(kernels)), key=lambda number: kernels[number].computation)
        rank = {number: index for index, number in enumerate(order)}
        placed = self._placed([kernels[number] for number in order])
        return placed, {name: rank[number] for name, number in numbers.items()}, frozenset(library)

    def _own_kernel(
        self, inst: hlo_pb2.HloInstructionProto, body: hlo_pb2.HloComputationProto | None
    ) -> Kernel | None:
        inside = [inst] if body is None else list(body.instructions)
        root = inst if body is None else next(i for i in inside if i.id == body.root_id)
        by_id = {i.id: i for i in inside}
        results = (
            [by_id[o] for o in root.operand_ids] if root.opcode == "tuple" and body is not None else [root]
        )
        outputs = {self.position(i.metadata.op_name) for i in results}
        if None in outputs or len({place[0] for place in outputs if place}) != 1:
            return None
        [computation] = {place[0] for place in outputs if place}
        members = {
            place[1]
            for i in inside
            if i.opcode not in ("parameter", "constant")
            and (place := self.position(i.metadata.op_name)) is not None
            and place[0] == computation
        }
        return self.kernel_of(computation, members, {place[1] for place in outputs if place})

    def kernel_of(self, computation: int, members: set[int], outputs: set[int]) -> Kernel | None:
        """Returns the kernel of instructions and the scalar constants that they read; None for none."""
        body = self.module.computations[computation].instructions
        members = {p for p in members if kind_of(body[p].opcode) is not Kind.CONTROL}
        if not members or not outputs <= members:
            return None
        operands = {operand for p in members for operand in body[p].operands} - members
        scalars = {p for p in operands if body[p].opcode is Opcode.CONSTANT and not body[p].shape.rank}
        return Kernel(
            self.module,
            computation,
            tuple(sorted(members | scalars)),
            tuple(sorted(operands - scalars)),
            tuple(sorted(outputs)),
            trip_count=self.prepared.counts[computation],
        )

    def nearest_config(self, kernels: Sequence[Kernel]) -> I16:
        """Returns the config [m] that fuses the edges that lie inside kernels."""
        return self._config_inside([{(k.computation, p) for p in k.instructions} for k in kernels])

    def config_of(self, groups: Sequence[Sequence[str]], where: Path | str) -> I16:
        """Returns the config [m] that fuses the edges that lie inside groups of named instructions.

        Args:
            groups: names of instructions.
            where: file that errors name.

        Raises:
            DataError: for a name that the program does not have.
        """
        positions = {
            inst.name: (computation, position)
            for computation, body in enumerate(self.module.computations)
            for position, inst in enumerate(body.instructions)
        }
        for name in (name for group in groups for name in group):
            try:
                choose(positions, name, "instruction")
            except ChoiceError as error:
                raise error.recast(DataError, where=where, field="fusions") from error
        return self._config_inside([{positions[name] for name in group} for group in groups])

    def _config_inside(self, groups: Sequence[set[tuple[int, int]]]) -> I16:
        kernels_of: dict[tuple[int, int], set[int]] = {}
        for number, group in enumerate(groups):
            for instruction in group:
                kernels_of.setdefault(instruction, set()).add(number)
        bits: list[int] = []
        for part, _ in self.space.by_computation(self.space.default):
            for source, user in zip(part.sources.tolist(), part.users.tolist(), strict=True):
                shared = kernels_of.get((part.computation, source), set())
                bits.append(int(bool(shared & kernels_of.get((part.computation, user), set()))))
        return np.array(bits, dtype=np.int16)


def count_runs(placed: PlacedKernels) -> Mapping[bytes, int]:
    """Returns how often the kernels of each fingerprint run in one run of the program."""
    runs: Counter[bytes] = Counter()
    for kernel, name in zip(placed.kernels, placed.fingerprints, strict=True):
        runs[name] += kernel.trip_count
    return runs
