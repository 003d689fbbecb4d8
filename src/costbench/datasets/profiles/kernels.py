"""Joins the operations of a profile to the instructions of compiled modules: kernels with their runtimes.

A fusion is the kernel of the instructions that it holds, any other instruction is a kernel of its own.
Control flow and transfers are no kernels. What cannot be joined is counted, never guessed.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from costbench.compiler.fusion.rules import Kind, kind_of
from costbench.compiler.kernel import Kernel
from costbench.datasets.profiles.xplane import Profile, ProgramId
from costbench.errors import DataError, HloError
from costbench.hlo.conversion import module_from_proto
from costbench.hlo.inlining import InlinedModule, trace_inlining
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode, opcodes
from costbench.hlo.proto.hlo_pb2 import HloModuleProto
from costbench.hlo.reader import read_proto

_DUMPS = (".pb", ".pb.zst", ".pb.gz", ".txt", ".hlo")
_COMPILED = "after_optimizations"
_NO_KERNELS = opcodes(
    "async-start async-update async-done copy-start copy-done send send-done recv recv-done infeed outfeed "
    "all-reduce all-gather all-to-all reduce-scatter collective-permute collective-broadcast "
    "all-reduce-start all-reduce-done all-gather-start all-gather-done "
    "collective-permute-start collective-permute-done"
)
NO_MODULE = "no module of this name"
AMBIGUOUS_MODULE = "several modules of this name"
NO_INSTRUCTION = "no instruction of this name in the module"
AMBIGUOUS_INSTRUCTION = "several instructions of this name in the module"
NO_KERNEL = "control flow or transfers"
UNEVEN = "launches that differ in number"


@dataclass(frozen=True, eq=False)
class ProfiledKernel:
    """A kernel that ran on a device.

    Attributes:
        kernel: the kernel, a view of the module with fusions inlined.
        operation: name of its instruction in the compiled module.
        run_ns: self time of every run in nanoseconds, at least one.
        runs: executions in one run of the program.
    """

    kernel: Kernel
    operation: str
    run_ns: tuple[float, ...]
    runs: int


@dataclass(frozen=True, eq=False)
class ProfiledProgram:
    """The kernels of one program.

    Attributes:
        name: name of the program.
        module: compiled module with fusions inlined, which the kernels are views of.
        kernels: kernels in the order of their instructions.
        executions: how often the program ran.
    """

    name: str
    module: HloModule
    kernels: tuple[ProfiledKernel, ...]
    executions: int


@dataclass
class LeftOut:
    """What was not joined, by reason.

    Attributes:
        operations: number of operations.
        time_ns: self time of all their runs.
        example: the first of them.
    """

    operations: Counter[str] = field(default_factory=Counter)
    time_ns: Counter[str] = field(default_factory=Counter)
    example: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, operation: str, time_ns: float) -> None:
        """Counts an operation."""
        self.operations[reason] += 1
        self.time_ns[reason] += time_ns  # type: ignore[assignment]
        self.example.setdefault(reason, operation)


def read_dumps(path: Path) -> tuple[HloModuleProto, ...]:
    """Reads compiled modules: a file, or those of a folder that XLA wrote (`--xla_dump_to`).

    In a folder, files of modules after optimisation are read; where none is named so, all modules.

    Raises:
        DataError: if there is none.
        HloError: for a file that is no HLO module.
    """
    if path.is_file():
        return (read_proto(path),)
    files = [file for file in sorted(path.rglob("*")) if file.is_file() and file.name.endswith(_DUMPS)]
    compiled = [file for file in files if _COMPILED in file.name]
    modules = list(_modules_of(compiled or files))
    if not modules:
        raise DataError("no HLO modules", where=path, expected=f"dumps of XLA, such as *{_COMPILED}.hlo.pb")
    return tuple(modules)


def _modules_of(files: Iterable[Path]) -> Iterator[HloModuleProto]:
    for file in files:
        try:
            yield read_proto(file)
        except HloError:
            # XLA writes reports on buffers and memory beside the modules, as text.
            if file.suffix != ".txt":
                raise


def join(profile: Profile, dumps: Sequence[HloModuleProto], left_out: LeftOut) -> list[ProfiledProgram]:
    """Joins the operations of a profile to the modules that it holds and to dumps.

    Args:
        profile: the profile.
        dumps: further compiled modules; they count where the profile does not hold a program's.
        left_out: what cannot be joined is added to it.

    Raises:
        HloError: for a module that is none.
    """
    programs = []
    for program, operations in profile.self_ns.items():
        merged = {name: list(_merged(events, name, left_out)) for name, events in operations.items()}
        joinable = {name: times for name, times in merged.items() if times}
        proto = _find_module(program, frozenset(joinable), profile.modules, dumps)
        if isinstance(proto, str):
            for name, times in joinable.items():
                left_out.add(proto, f"{program.name or program.number}: {name}", sum(times))
        else:
            programs.append(_join_program(proto, joinable, left_out, profile.path))
    return programs


def _merged(events: Mapping[str, Sequence[float]], operation: str, left_out: LeftOut) -> Sequence[float]:
    """Returns the times of an operation's runs: kernels that it launches one after another are added up."""
    counts = {len(times) for times in events.values()}
    if len(counts) > 1:
        left_out.add(UNEVEN, operation, sum(map(sum, events.values())))
        return ()
    return [sum(times) for times in zip(*events.values(), strict=True)]


def _find_module(
    program: ProgramId,
    operations: frozenset[str],
    modules: Mapping[ProgramId, HloModuleProto],
    dumps: Sequence[HloModuleProto],
) -> HloModuleProto | str:
    """Returns the module of a program, or why there is none.

    The number of the program decides, then its name, then which module has most of the instructions.
    """
    by_number = [
        proto
        for key, proto in modules.items()
        if program.number is not None and key.number == program.number and program.name in ("", key.name)
    ]
    if len(by_number) == 1:
        return by_number[0]
    candidates = [proto for key, proto in modules.items() if program.name in (key.name, proto.name)]
    candidates = candidates or [proto for proto in dumps if proto.name == program.name]
    if not candidates:
        return NO_MODULE
    distinct = {proto.SerializeToString(deterministic=True): proto for proto in candidates}
    missing = {key: len(operations - _names(proto)) for key, proto in distinct.items()}
    best = [proto for key, proto in distinct.items() if missing[key] == min(missing.values())]
    return best[0] if len(best) == 1 else AMBIGUOUS_MODULE


def _names(proto: HloModuleProto) -> frozenset[str]:
    return frozenset(inst.name for computation in proto.computations for inst in computation.instructions)


def _join_program(
    proto: HloModuleProto, operations: Mapping[str, Sequence[float]], left_out: LeftOut, path: Path
) -> ProfiledProgram:
    module = module_from_proto(proto, where=f"{path}: {proto.name}")
    inlined = trace_inlining(module)
    positions_of = _positions_by_name(module)
    entry = {inst.name for inst in module.entry_computation.instructions}
    # A trace may begin or end within a run, so the entry's operations are counted and the mode taken.
    counts = [len(times) for name, times in operations.items() if name in entry]
    executions = statistics.mode(counts or [1])
    kernels = []
    for name, times in operations.items():
        positions = positions_of.get(name, ())
        if len(positions) != 1:
            left_out.add(AMBIGUOUS_INSTRUCTION if positions else NO_INSTRUCTION, name, sum(times))
            continue
        kernel = _kernel_at(module, inlined, *positions[0])
        if kernel is None:
            left_out.add(NO_KERNEL, name, sum(times))
        else:
            runs = max(1, round(len(times) / executions))
            kernels.append(ProfiledKernel(kernel, name, tuple(times), runs))
    return ProfiledProgram(module.name, inlined.module, tuple(sorted(kernels, key=_order)), executions)


def _order(profiled: ProfiledKernel) -> tuple[int, tuple[int, ...]]:
    return profiled.kernel.computation, profiled.kernel.instructions


def _positions_by_name(module: HloModule) -> dict[str, list[tuple[int, int]]]:
    """Returns computation and position of instructions by name, bodies of fusions left out."""
    bodies = {
        callee
        for computation in module.computations
        for inst in computation.instructions
        if inst.opcode is Opcode.FUSION
        for callee in inst.called
    }
    positions: dict[str, list[tuple[int, int]]] = {}
    for index, computation in enumerate(module.computations):
        if index not in bodies:
            for position, inst in enumerate(computation.instructions):
                positions.setdefault(inst.name, []).append((index, position))
    return positions


def _kernel_at(module: HloModule, inlined: InlinedModule, computation: int, position: int) -> Kernel | None:
    """Returns the kernel that an instruction of the compiled module is; None for one that is none."""
    opcode = module.computations[computation].instructions[position].opcode
    if opcode is not Opcode.FUSION and (kind_of(opcode) is Kind.CONTROL or opcode in _NO_KERNELS):
        return None
    body = inlined.module.computations[computation]
    first, end = inlined.bounds[computation][position]
    root = inlined.values[computation][position]
    results = body.instructions[root].operands if body.instructions[root].opcode is Opcode.TUPLE else (root,)
    members = _needed(body, results, first, end)
    outputs = tuple(sorted(set(results) & members))
    if not outputs:
        return None
    inputs = {operand for member in members for operand in body.instructions[member].operands} - members
    return Kernel(
        module=inlined.module,
        computation=computation,
        instructions=tuple(sorted(members)),
        inputs=tuple(sorted(inputs)),
        outputs=outputs,
    )


def _needed(body: HloComputation, results: Iterable[int], first: int, end: int) -> set[int]:
    """Returns the positions from `first` up to `end` that results are computed from, themselves included."""
    needed: set[int] = set()
    stack = [position for position in results if first <= position < end]
    while stack:
        position = stack.pop()
        if position not in needed and body.instructions[position].opcode is not Opcode.TUPLE:
            needed.add(position)
            stack += [o for o in body.instructions[position].operands if first <= o < end]
    return needed
