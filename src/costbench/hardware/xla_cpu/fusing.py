"""Fuses the instructions of a module as a fusion config says, at the point where XLA itself would fuse.

XLA's passes before fusion (expansion of operations, assignment of layouts, widening of bfloat16, choice of
libraries for contractions) have run; its own fusion is switched off. An instruction keeps the name of the
program's instruction that it was made of (`op_name`), and belongs to the same kernel. What XLA added without
a name (mostly conversions) is computed where it is needed, as are the operations that kernels duplicate.

The operations of a kernel that XLA's loop emitter can run become one fusion; dots, convolutions, sorts and
calls of libraries stay what they are. Where the outputs of a kernel differ in shape, which one loop cannot
write, it becomes a fusion for each shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from costbench.hardware.xla_cpu.transposes import Transpose, restore_transposes
from costbench.hlo.proto import hlo_pb2

_Instruction = hlo_pb2.HloInstructionProto
_Computation = hlo_pb2.HloComputationProto
_Message = TypeVar("_Message", _Instruction, _Computation)
BARE = frozenset((
    "parameter", "constant", "tuple", "get-tuple-element", "while", "call", "conditional", "custom-call",
    "fusion", "dot", "convolution",
    "sort", "fft", "rng", "rng-bit-generator", "rng-get-and-update-state", "after-all",
    "add-dependency", "copy", "copy-start", "copy-done", "infeed", "outfeed", "opt-barrier", "partition-id",
    "replica-id", "all-reduce", "all-gather", "all-to-all", "collective-permute", "reduce-scatter", "topk",
    "cholesky", "triangular-solve", "domain", "async-start", "async-update", "async-done",
    "get-dimension-size", "set-dimension-size", "ragged-dot", "bitcast",
))  # fmt: skip
"""Opcodes that XLA runs by themselves; it wraps all others in fusions."""
ALONE = frozenset(("scatter", "dynamic-update-slice", "reduce-window", "select-and-scatter", "map"))
"""Opcodes that get a fusion of their own: they work in place, or one loop cannot hold them and others."""
_IN_PLACE = frozenset(("scatter", "dynamic-update-slice", "select-and-scatter"))
"""Opcodes of `ALONE` whose first operands become the result; they have to be in memory."""
_DUPLICATED = frozenset(("broadcast", "iota", "bitcast"))
NO_WORK = frozenset(
    ["parameter", "constant", "tuple", "get-tuple-element", "bitcast", "while", "call", "conditional"]
)
"""Opcodes that do nothing, or run computations whose operations are counted."""
_RUNS_CALLEES = frozenset(("while", "call", "conditional"))
LIBRARY = b'{"outer_dimension_partitions":[],"fusion_config":{"kind":"__ynn_fusion"}}'
"""Configuration of the fusions that XLA's library for processors computes."""
OUTSIDE = -1
"""Number of no kernel."""


@dataclass(frozen=True)
class Membership:
    """Which kernels instructions belong to, by name.

    Attributes:
        owner: number of the kernel that an instruction runs in, for those that run in one only.
        readers: numbers of the kernels that an instruction is duplicated in.
        library: reductions that a library computes where nothing is fused with them, as XLA does.
        transposes: transposes of the program, which are put back where XLA dropped them.
    """

    owner: Mapping[str, int]
    readers: Mapping[str, frozenset[int]] = field(default_factory=dict)
    library: frozenset[str] = frozenset()
    transposes: Mapping[str, Transpose] = field(default_factory=dict)


@dataclass
class Fused:
    """A module with its fusions.

    Attributes:
        module: the module.
        kernels: number of the kernel of each operation that runs, by name; `OUTSIDE` for those of none.
        num_split: number of kernels of which not all loops could be one fusion.
    """

    module: hlo_pb2.HloModuleProto
    kernels: dict[str, int]
    num_split: int


def fuse_module(data: bytes, membership: Membership) -> Fused:
    """Returns a module with fusions.

    Args:
        data: serialised module after XLA's passes before fusion.
        membership: the kernels.
    """
    module = hlo_pb2.HloModuleProto.FromString(data)
    by_id = {computation.id: computation for computation in module.computations}
    fused = Fused(module, {}, 0)
    running = running_computations(module)
    # Callees come before their callers: reducers, then what runs, each after its fusions.
    ordered = [c for c in module.computations if c.id not in running]
    next_id = max(by_id) + 1
    for computation in module.computations:
        if computation.id in running:
            restore_transposes(computation, membership.transposes)
            body = _Body(computation, membership)
            made = body.fuse(next_id)
            next_id += len(made)
            ordered += [*made, computation]
            fused.kernels.update(body.kernels)
            fused.num_split += body.num_split
    copies = [_copy(computation) for computation in ordered]
    del module.computations[:]
    module.computations.extend(copies)
    return fused


def running_computations(module: hlo_pb2.HloModuleProto) -> frozenset[int]:
    """Returns the ids of the computations that run as such: neither reducers nor bodies of fusions."""
    by_id = {computation.id: computation for computation in module.computations}
    waiting, running = [module.entry_computation_id], set()
    while waiting:
        number = waiting.pop()
        if number in running:
            continue
        running.add(number)
        for inst in by_id[number].instructions:
            if inst.opcode in _RUNS_CALLEES:
                waiting.extend(inst.called_computation_ids)
    return frozenset(running)


class _Body:
    """A computation while its instructions are put into fusions."""

    def __init__(self, computation: _Computation, membership: Membership) -> None:
        self._computation = computation
        self._insts = {inst.id: inst for inst in computation.instructions}
        self._order = _operands_first(computation)
        self._users: dict[int, list[int]] = {number: [] for number in self._insts}
        for inst in self._order:
            for operand in dict.fromkeys(inst.operand_ids):
                self._users[operand].append(inst.id)
        self._membership = membership
        self._kernel: dict[int, int] = {}
        self._clones: set[int] = set()
        for inst in self._order:
            self._assign(inst)
        for inst in reversed(self._order):
            # What XLA expanded an operation into has no name, but for its result.
            if self._kernel[inst.id] == OUTSIDE and not inst.metadata.op_name and self._is_fusion(inst.id):
                kernels = (self._kernel[user] for user in self._users[inst.id])
                self._kernel[inst.id] = next((k for k in kernels if k != OUTSIDE), OUTSIDE)
        self.kernels: dict[str, int] = {}
        self.num_split = 0

    # ---- kernels of instructions -------------------------------------------------------------------------

    def _assign(self, inst: _Instruction) -> None:
        """Finds the kernel of an instruction, or that it is duplicated into those of its readers."""
        name = inst.metadata.op_name
        kernel = self._membership.owner.get(name, OUTSIDE)
        is_scalar = not any(inst.shape.dimensions) and not inst.shape.tuple_shapes
        if inst.opcode == "constant" and is_scalar:
            self._clones.add(inst.id)
        elif inst.opcode == "convert" and name not in self._membership.owner:
            operand = self._insts[inst.operand_ids[0]]
            if _bits(inst) > _bits(operand) or name in self._membership.readers:
                self._clones.add(inst.id)
            else:
                kernel = self._kernel[operand.id]
        elif (inst.opcode in _DUPLICATED and name not in self._membership.owner) or (
            name in self._membership.readers and inst.opcode not in BARE and inst.opcode not in ALONE
        ):
            self._clones.add(inst.id)
        self._kernel[inst.id] = kernel

    def _is_loop(self, number: int) -> bool:
        return self._insts[number].opcode not in BARE or self._insts[number].opcode == "bitcast"

    # ---- units -------------------------------------------------------------------------------------------

    def fuse(self, first_computation: int) -> list[_Computation]:
        """Rewrites the computation; returns the computations of its fusions, numbered from the given id."""
        unit_of = self._units()
        while (cycle := self._cycle(unit_of)) is not None:
            self.num_split += 1
            for member in cycle:
                unit_of[member] = member
        live = self._live(unit_of)
        units: dict[int, list[int]] = {}
        for inst in self._order:
            if inst.id in live:
                units.setdefault(unit_of[inst.id], []).append(inst.id)
        return self._write(units, unit_of, live, first_computation)

    def _units(self) -> dict[int, int]:
        """Returns a number for every instruction, equal for those that share a fusion."""
        groups: dict[tuple[int, ...], int] = {}
        unit_of = {}
        for inst in self._order:
            number = unit_of[inst.id] = inst.id
            kernel = self._kernel[inst.id]
            if kernel == OUTSIDE or number in self._clones or not self._is_loop(number):
                continue
            if inst.opcode in ALONE or inst.opcode == "bitcast":
                continue
            unit_of[number] = groups.setdefault((kernel,), number)
        self._split_by_shape(unit_of)
        return unit_of

    def _split_by_shape(self, unit_of: dict[int, int]) -> None:
        """Splits units whose outputs differ in shape, until each has outputs of one shape."""
        waiting = _members(unit_of)
        while waiting:
            unit, numbers = waiting.popitem()
            outputs = [n for n in numbers if len(numbers) > 1 and self._leaves(n, unit, unit_of)]
            shapes = list(dict.fromkeys(_dimensions(self._insts[n]) for n in outputs))
            if len(shapes) <= 1:
                continue
            self.num_split += 1
            part_of: dict[int, int] = {}
            for number in reversed(numbers):
                # What several parts need is made by the first of them.
                readers = [part_of[user] for user in self._reached(number) if user in part_of]
                is_output = number in outputs or not readers
                part_of[number] = (
                    shapes.index(_dimensions(self._insts[number])) if is_output else min(readers)
                )
            firsts: dict[int, int] = {}
            for number in numbers:
                unit_of[number] = firsts.setdefault(part_of[number], number)
            if len(firsts) == 1:
                unit_of.update({number: number for number in numbers})
            waiting.update(_members({number: unit_of[number] for number in numbers}))

    def _reached(self, number: int) -> Iterable[int]:
        """Yields the users of a value, those of duplicated users instead of these."""
        for user in self._users[number]:
            if user in self._clones or self._insts[user].opcode == "bitcast":
                yield from self._reached(user)
            else:
                yield user

    def _leaves(self, number: int, unit: int, unit_of: Mapping[int, int]) -> bool:
        if number == self._computation.root_id or self._insts[number].control_predecessor_ids:
            return True
        for user in self._users[number]:
            if user in self._clones or self._insts[user].opcode == "bitcast":
                if self._leaves(user, unit, unit_of):
                    return True
            elif unit_of[user] != unit:
                return True
        return False

    def _inside(self, unit: int, number: int, unit_of: Mapping[int, int]) -> bool:
        """Returns whether the fusion of a unit computes a value that it reads."""
        if unit_of[number] == unit:
            return True
        inst = self._insts[number]
        if inst.opcode == "bitcast":
            return self._inside(unit, inst.operand_ids[0], unit_of)
        return number in self._clones

    def _reads(
        self, unit_members: Iterable[int], unit: int, unit_of: Mapping[int, int]
    ) -> tuple[list[int], list[int]]:
        """Returns the values that a unit reads, and the instructions duplicated into it, operands first."""
        inputs: dict[int, None] = {}
        clones: dict[int, None] = {}

        def visit(number: int) -> None:
            updated = self._updated(number)
            for operand in self._insts[number].operand_ids:
                if unit_of[operand] == unit or operand in clones:
                    continue
                if is_loop and operand not in updated and self._inside(unit, operand, unit_of):
                    visit(operand)
                    clones[operand] = None
                else:
                    inputs[operand] = None

        for member in unit_members:
            is_loop = self._is_fusion(member)
            visit(member)
        return list(inputs), list(clones)

    def _updated(self, number: int) -> frozenset[int]:
        """Returns the operands that an operation changes in place."""
        inst = self._insts[number]
        if inst.opcode not in _IN_PLACE:
            return frozenset()
        # A scatter has as many arrays as updates, and indices between them.
        count = (len(inst.operand_ids) - 1) // 2 if inst.opcode == "scatter" else 1
        return frozenset(inst.operand_ids[:count])

    def _is_fusion(self, number: int) -> bool:
        return self._insts[number].opcode not in BARE

    def _cycle(self, unit_of: Mapping[int, int]) -> list[int] | None:
        """Returns the members of a fusion that waits for itself, or None."""
        members = _members(unit_of)
        reads = {}
        for unit, numbers in members.items():
            inputs, _ = self._reads(numbers, unit, unit_of)
            controls = [c for n in numbers for c in self._insts[n].control_predecessor_ids]
            reads[unit] = {unit_of[number] for number in (*inputs, *controls)} - {unit}
        state: dict[int, int] = {}
        for start in reads:
            stack = [(start, iter(reads[start]))] if start not in state else []
            state.setdefault(start, 1)
            while stack:
                unit, pending = stack[-1]
                following = next(pending, None)
                if following is None:
                    state[unit] = 2
                    stack.pop()
                elif following not in state:
                    state[following] = 1
                    stack.append((following, iter(reads[following])))
                elif state[following] == 1:
                    path = [u for u, _ in stack]
                    loop = path[path.index(following) :]
                    return max((members[u] for u in loop), key=len)
        return None

    def _live(self, unit_of: Mapping[int, int]) -> set[int]:
        """Returns the instructions that stay in the computation, as members of units."""
        members = _members(unit_of)
        effects = [i.id for i in self._order if i.opcode in ("parameter", "outfeed", "custom-call", "infeed")]
        waiting, live = [self._computation.root_id, *effects], set()
        while waiting:
            unit = unit_of[waiting.pop()]
            if members[unit][0] in live:
                continue
            live.update(members[unit])
            waiting.extend(self._reads(members[unit], unit, unit_of)[0])
            waiting.extend(c for n in members[unit] for c in self._insts[n].control_predecessor_ids)
        return live

    # ---- writing -----------------------------------------------------------------------------------------

    def _write(
        self, units: Mapping[int, list[int]], unit_of: Mapping[int, int], live: set[int], first: int
    ) -> list[_Computation]:
        made: list[_Computation] = []
        written: list[_Instruction] = []
        new_id = {number: number for number in self._insts}
        next_local = max(number & 0xFFFFFFFF for number in self._insts) + 1
        base = self._computation.id << 32
        for unit, members in units.items():
            if not self._is_fusion(members[0]):
                inst = self._insts[members[0]]
                written.append(inst)
                self._note(inst.name, inst, members)
                continue
            inputs, clones = self._reads(members, unit, unit_of)
            outputs = [n for n in members if self._leaves_live(n, unit, unit_of, live)]
            body = _fused_computation(first + len(made), self._insts, inputs, [*clones, *members], outputs)
            made.append(body)
            fusion = _Instruction(name=f"k{body.id}", opcode="fusion", fusion_kind="kLoop")
            if len(members) == 1 and self._insts[members[0]].metadata.op_name in self._membership.library:
                fusion.fusion_kind, fusion.backend_config = "kCustom", LIBRARY
            fusion.id = base | next_local
            next_local += 1
            fusion.metadata.op_name = self._insts[outputs[0]].metadata.op_name
            fusion.called_computation_ids.append(body.id)
            fusion.operand_ids.extend(inputs)
            fusion.shape.CopyFrom(body.program_shape.result)
            controls = {c for n in members for c in self._insts[n].control_predecessor_ids}
            fusion.control_predecessor_ids.extend(sorted(controls))
            written.append(fusion)
            self._note(fusion.name, fusion, members)
            if len(outputs) == 1:
                new_id[outputs[0]] = fusion.id
                continue
            for index, output in enumerate(outputs):
                element = _Instruction(
                    name=f"k{body.id}.{index}",
                    opcode="get-tuple-element",
                    tuple_index=index,
                    id=base | next_local,
                )
                next_local += 1
                element.shape.CopyFrom(self._insts[output].shape)
                element.operand_ids.append(fusion.id)
                written.append(element)
                new_id[output] = element.id
        for inst in written:
            inst.operand_ids[:] = [new_id.get(operand, operand) for operand in inst.operand_ids]
            inst.control_predecessor_ids[:] = [new_id.get(c, c) for c in inst.control_predecessor_ids]
        computation = self._computation
        root = new_id[computation.root_id]
        kept = [_copy(inst) for inst in written]
        del computation.instructions[:]
        computation.instructions.extend(kept)
        computation.root_id = root
        ordered = _operands_first(computation)
        kept = [_copy(inst) for inst in ordered]
        del computation.instructions[:]
        computation.instructions.extend(kept)
        return made

    def _leaves_live(self, number: int, unit: int, unit_of: Mapping[int, int], live: set[int]) -> bool:
        """Returns whether a value is read by what stays, outside of its unit."""
        if number == self._computation.root_id:
            return True
        return any(self._is_read(number, unit, other, unit_of) for other in self._readers_of(number, live))

    def _readers_of(self, number: int, live: set[int]) -> Iterable[int]:
        """Yields live users, and those of dead users (which are duplicated into them) instead of these."""
        for user in self._users[number]:
            if user in live:
                yield user
            if user in self._clones or self._insts[user].opcode == "bitcast":
                yield from self._readers_of(user, live)

    def _is_read(self, number: int, unit: int, user: int, unit_of: Mapping[int, int]) -> bool:
        return unit_of[user] != unit

    def _note(self, name: str, inst: _Instruction, members: list[int]) -> None:
        if inst.opcode in NO_WORK:
            return
        kernel = self._kernel[members[0]]
        if kernel == OUTSIDE:
            # A duplicate that is read from memory is part of what reads it.
            number = members[0]
            readers = (
                self._kernel[user]
                for user in self._users[number]
                if not self._is_fusion(user) or number in self._updated(user)
            )
            kernel = next((reader for reader in readers if reader != OUTSIDE), OUTSIDE)
        self.kernels[name] = kernel


def _members(unit_of: Mapping[int, int]) -> dict[int, list[int]]:
    """Returns the members of every unit, in order."""
    members: dict[int, list[int]] = {}
    for number, unit in unit_of.items():
        members.setdefault(unit, []).append(number)
    return members


def _fused_computation(
    number: int, insts: Mapping[int, _Instruction], inputs: list[int], inside: list[int], outputs: list[int]
) -> _Computation:
    """Returns the computation of a fusion: parameters, instructions in order, a tuple of several outputs."""
    body = _Computation(name=f"fused.{number}", id=number)
    base = number << 32
    new_id = {}
    for index, source in enumerate(inputs):
        new_id[source] = base | index
        parameter = body.instructions.add(
            name=f"f{number}.p{index}", opcode="parameter", parameter_number=index, id=base | index
        )
        parameter.shape.CopyFrom(insts[source].shape)
        body.program_shape.parameters.add().CopyFrom(insts[source].shape)
        body.program_shape.parameter_names.append(parameter.name)
    pending = _sorted_inside(insts, inside)
    for index, source in enumerate(pending, start=len(inputs)):
        copy = body.instructions.add()
        copy.CopyFrom(insts[source])
        copy.name, copy.id = f"f{number}.{index}", base | index
        copy.operand_ids[:] = [new_id[operand] for operand in copy.operand_ids]
        del copy.control_predecessor_ids[:]
        new_id[source] = copy.id
    root = new_id[outputs[0]]
    if len(outputs) > 1:
        root = base | (len(inputs) + len(pending))
        result = body.instructions.add(name=f"f{number}.root", opcode="tuple", id=root)
        result.operand_ids.extend(new_id[output] for output in outputs)
        result.shape.element_type = 13
        result.shape.tuple_shapes.extend(insts[output].shape for output in outputs)
        body.program_shape.result.CopyFrom(result.shape)
    else:
        body.program_shape.result.CopyFrom(insts[outputs[0]].shape)
    body.root_id = root
    return body


def _sorted_inside(insts: Mapping[int, _Instruction], inside: list[int]) -> list[int]:
    members, done = set(inside), dict[int, None]()

    def visit(number: int) -> None:
        for operand in insts[number].operand_ids:
            if operand in members and operand not in done:
                visit(operand)
        done[number] = None

    for number in inside:
        if number not in done:
            visit(number)
    return list(done)


def _operands_first(computation: _Computation) -> list[_Instruction]:
    by_id = {inst.id: inst for inst in computation.instructions}
    done: dict[int, _Instruction] = {}
    for start in by_id:
        stack = [start]
        while stack:
            inst = by_id[stack[-1]]
            missing = [o for o in (*inst.operand_ids, *inst.control_predecessor_ids) if o not in done]
            if missing:
                stack.append(missing[0])
            else:
                done[stack.pop()] = inst
    return list(done.values())


def _copy(message: _Message) -> _Message:
    """Returns a copy, which outlives the list that the message is in."""
    copy = type(message)()
    copy.CopyFrom(message)
    return copy


_TYPE_BITS = {1: 8, 2: 8, 3: 16, 4: 32, 5: 64, 6: 8, 7: 16, 8: 32, 9: 64, 10: 16, 11: 32, 12: 64, 16: 16}


def _bits(inst: _Instruction) -> int:
    return _TYPE_BITS.get(inst.shape.element_type, 8)


def _dimensions(inst: _Instruction) -> tuple[int, ...]:
    return tuple(inst.shape.dimensions)
