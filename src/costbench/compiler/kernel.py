"""The `Kernel` type: a group of instructions that runs as one unit, as a view of its program.

A kernel holds no instructions of its own. It lists positions inside one computation of a program whose shapes
carry layouts, the values it reads from main memory (`inputs`) and the values it writes there (`outputs`).
`kernel_module` exports a kernel as a module of its own, for files of other tools and to inspect one kernel
alone; `kernel_from_module` reads it back as a kernel with the same fingerprint.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from costbench.compiler.fingerprints import subgraph_fingerprint
from costbench.compiler.kernel_arrays import KernelPositions
from costbench.errors import UnsupportedKernelError
from costbench.hlo.inlining import inline_fusions
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape


@dataclass(frozen=True, eq=False)
class Kernel:
    """A group of instructions of a program that runs as one unit.

    Attributes:
        module: program that the kernel is a part of, layouts assigned.
        computation: position of the computation that the instructions belong to.
        instructions: positions inside that computation, ascending (operands before users).
        inputs: positions of values computed elsewhere and read here (boundary parameters), ascending.
        outputs: those of `instructions` whose values leave the kernel, ascending.
        trip_count: how often the kernel runs in one run of the program.
    """

    module: HloModule
    computation: int
    instructions: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    trip_count: int = 1

    def __repr__(self) -> str:
        """Returns the name and shape of its first result, and its size; the whole program would be pages."""
        if not self.outputs:
            return "Kernel(empty)"
        first = self.instruction(self.outputs[0])
        return f"Kernel({first.name}: {first.shape}, {len(self.instructions)} instructions)"

    @cached_property
    def body(self) -> HloComputation:
        """Returns the computation that the kernel is a part of."""
        return self.module.computations[self.computation]

    @property
    def positions(self) -> KernelPositions:
        """Returns instructions, inputs and outputs."""
        return KernelPositions(self.instructions, self.inputs, self.outputs)

    @property
    def nodes(self) -> tuple[int, ...]:
        """Returns inputs, then instructions: the node order of the kernel's graph."""
        return self.inputs + self.instructions

    @property
    def num_nodes(self) -> int:
        """Returns the number of nodes of the kernel's graph, boundary parameters included."""
        return len(self.inputs) + len(self.instructions)

    def instruction(self, position: int) -> Instruction:
        """Returns the instruction at a position of the computation."""
        return self.body.instructions[position]

    @cached_property
    def fingerprint(self) -> str:
        """Returns 32 hexadecimal digits, equal for kernels that do the same on equal shapes and layouts."""
        return subgraph_fingerprint(
            self.module, self.computation, self.inputs, self.instructions, self.outputs
        )

    @cached_property
    def members(self) -> frozenset[int]:
        """Returns `instructions` as a set."""
        return frozenset(self.instructions)


def kernel_from_module(module: HloModule) -> Kernel:
    """Returns the kernel that a stand-alone module describes, fusions flattened.

    This is how TpuGraphs' raw tile files store a kernel (tpugraphs2023, section 3): the entry computation
    holds parameters and one instruction or fusion.

    Raises:
        UnsupportedKernelError: if the module holds nothing but parameters.
    """
    flat = inline_fusions(module)
    body = flat.entry_computation
    root = body.root_instruction
    outputs = root.operands if root.opcode is Opcode.TUPLE else (body.root,)
    live = _live(body, outputs)
    instructions = tuple(p for p in sorted(live) if body.instructions[p].opcode is not Opcode.PARAMETER)
    if not instructions:
        raise UnsupportedKernelError("a module of parameters alone is no kernel", where=module.name)
    inputs = tuple(p for p in sorted(live) if body.instructions[p].opcode is Opcode.PARAMETER)
    return Kernel(
        module=flat,
        computation=flat.entry,
        instructions=instructions,
        inputs=inputs,
        outputs=tuple(sorted(set(outputs) & set(instructions))),
    )


def _live(body: HloComputation, outputs: tuple[int, ...]) -> set[int]:
    live: set[int] = set()
    stack = list(outputs)
    while stack:
        position = stack.pop()
        if position not in live:
            live.add(position)
            stack.extend(body.instructions[position].operands)
    return live


# ---- stand-alone modules ---------------------------------------------------------------------------------


def kernel_module(kernel: Kernel, name: str = "kernel") -> HloModule:
    """Returns the kernel as a stand-alone, verified module.

    The entry computation has a parameter for every input, in order, then the kernel's instructions; it
    returns the kernel's output, or a tuple of them. Computations that the instructions call (reducers,
    comparisons) are copied, too.
    """
    computations: list[HloComputation] = []
    new_index: dict[int, int] = {}
    for position in kernel.instructions:
        for callee in kernel.instruction(position).called:
            _copy_computation(kernel.module, callee, computations, new_index)
    computations.append(_entry(kernel, new_index, name))
    return HloModule(name, tuple(computations), len(computations) - 1).verify()


def _copy_computation(
    module: HloModule, index: int, computations: list[HloComputation], new_index: dict[int, int]
) -> None:
    """Copies a computation, after those that it calls."""
    if index in new_index:
        return
    computation = module.computations[index]
    for inst in computation.instructions:
        for callee in inst.called:
            _copy_computation(module, callee, computations, new_index)
    instructions = tuple(_with_callees(inst, new_index) for inst in computation.instructions)
    new_index[index] = len(computations)
    computations.append(replace(computation, instructions=instructions))


def _with_callees(inst: Instruction, new_index: dict[int, int]) -> Instruction:
    return replace(inst, called=tuple(new_index[callee] for callee in inst.called)) if inst.called else inst


def _entry(kernel: Kernel, new_index: dict[int, int], name: str) -> HloComputation:
    instructions: list[Instruction] = []
    new_position: dict[int, int] = {}
    for number, position in enumerate(kernel.inputs):
        new_position[position] = number
        shape = kernel.instruction(position).shape
        instructions.append(
            Instruction(f"parameter.{number}", Opcode.PARAMETER, shape, parameter_number=number)
        )
    for position in kernel.instructions:
        inst = _with_callees(kernel.instruction(position), new_index)
        new_position[position] = len(instructions)
        operands = tuple(new_position[operand] for operand in inst.operands)
        # Control dependencies on other kernels do not apply to the kernel alone.
        controls = tuple(new_position[c] for c in inst.control_predecessors if c in kernel.members)
        instructions.append(inst.rewire(inst.shape, operands, controls))
    outputs = tuple(new_position[position] for position in kernel.outputs)
    if len(outputs) == 1:
        return HloComputation(name, tuple(instructions), outputs[0])
    shapes = tuple(instructions[position].shape for position in outputs)
    result = Shape(ElementType.TUPLE, tuple_shapes=shapes)
    instructions.append(Instruction(f"tuple.{len(instructions)}", Opcode.TUPLE, result, outputs))
    return HloComputation(name, tuple(instructions), len(instructions) - 1)
