"""Kernels of many layouts of a program, side by side in one computation, to be lowered together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from costbench.compiler.fingerprints import labelled_body, subgraph_digests
from costbench.compiler.kernel_arrays import kernel_arrays
from costbench.compiler.layout.packed.compile import NewPart
from costbench.compiler.layout.packed.facts import FactTable
from costbench.compiler.lowering.loop_nest import LoweredKernels, Lowering
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode

_Positions = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


class KernelPool:
    """Kernels that wait to be lowered; their inputs are parameters.

    Args:
        module: the program, whose computations their instructions call.
        facts: facts about its instructions.
    """

    def __init__(self, module: HloModule, facts: FactTable) -> None:
        self._module = module
        self._facts = facts
        self._instructions: list[Instruction] = []
        self._rows: list[int] = []
        self._kernels: list[_Positions] = []

    def __len__(self) -> int:
        """Returns the number of kernels."""
        return len(self._kernels)

    def add(self, part: NewPart, number: int) -> None:
        """Adds one of the kernels of a computation."""
        body, facts = part.body, self._facts
        inside, inputs, outputs = (
            positions[offsets[number] : offsets[number + 1]].tolist()
            for offsets, positions in zip(part.kernels[::2], part.kernels[1::2], strict=True)
        )
        read, place = frozenset(inputs), {}
        for position in sorted(inside + inputs):
            place[position] = len(self._instructions)
            row = int(body.row[position])
            inst = facts.instructions[row]
            if position in read:
                inst = Instruction("", Opcode.PARAMETER, inst.shape)
            else:
                start, stop = body.operands_offsets[position : position + 2].tolist()
                operands = tuple([place[operand] for operand in body.operands[start:stop].tolist()])
                inst = inst.rewire(inst.shape, operands, ())
            self._instructions.append(inst)
            self._rows.append(row)
        self._kernels.append(
            (
                tuple(place[position] for position in inside),
                tuple(place[position] for position in inputs),
                tuple(place[position] for position in outputs),
            )
        )

    def take(self) -> list[KernelPool]:
        """Empties the pool; returns a pool for each of its kernels."""
        pools = []
        for inside, inputs, outputs in self._kernels:
            start, stop = min(inside + inputs), max(inside) + 1
            pool = KernelPool(self._module, self._facts)
            pool._instructions = [
                inst.rewire(inst.shape, tuple(operand - start for operand in inst.operands), ())
                for inst in self._instructions[start:stop]
            ]
            pool._rows = self._rows[start:stop]
            moved = [tuple(p - start for p in positions) for positions in (inside, inputs, outputs)]
            pool._kernels = [(moved[0], moved[1], moved[2])]
            pools.append(pool)
        self._clear()
        return pools

    def lower(self) -> tuple[LoweredKernels, list[str]]:
        """Lowers the kernels and empties the pool; returns them with their fingerprints.

        Raises:
            UnsupportedKernelError: if a kernel cannot be lowered; the pool keeps its kernels.
        """
        body = HloComputation("kernels", tuple(self._instructions), len(self._instructions) - 1)
        module = replace(self._module, computations=(*self._module.computations, body))
        arrays = kernel_arrays(self._kernels)
        labelled = labelled_body(
            [inst.operands for inst in self._instructions],
            [self._facts.label_bytes[row] for row in self._rows],
            [self._facts.input_digests[row] for row in self._rows],
        )
        digests = subgraph_digests(arrays, labelled).astype("<u8")
        names = [row.tobytes().hex() for row in np.ascontiguousarray(digests)]
        lowered = Lowering(module).lower(len(module.computations) - 1, arrays)
        self._clear()
        return lowered, names

    def _clear(self) -> None:
        self._instructions, self._rows, self._kernels = [], [], []
