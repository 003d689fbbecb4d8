"""Machine-independent cost of instructions: FLOPs, bytes read and written, transcendental operations.

The rules are those of XLA's own cost analysis (`HloCostAnalysis`, which is also where the static performance
features of lpm2021, section 3, come from), so the numbers can be compared with it. In short:

* Elementwise instructions cost one FLOP per element of the result, whatever the element type; those in
  `TRANSCENDENTAL` cost one transcendental operation per element instead.
* dot 2 * |result| * contracted; convolution 2 * multiply-adds at valid positions.
* reduce applies its function |input| - |result| times, reduce-window (|window| - 1) * |result| times (a
  window over the whole of an axis is taken as a reduction and a broadcast), scatter |updates| times, map
  |result| times; select-and-scatter selects (|window| - 1) * |source| times and scatters |source| times.
* sort |operand 0| * ceil(log2 |operand 0|); Fourier transform 8 * |operand| * product of floor(log2 length).
* Random numbers cost one transcendental operation each.
* A while loop costs ONE iteration of body and condition, even where the trip count is known, and a scan
  one application of its function; a call costs its computation, a conditional the maximum over its branches,
  separately for each measure.
* ragged-dot 2 * |result without a leading axis for each group dimension of the right side| * contracted,
  which leaves out the rows where the ragged axis is one of them.
* An asynchronous start costs the computation that it calls; an update or a done moves its operands' table of
  pointers and its result.
* Bytes: operands are read and results written once, except that parameters, constants, bitcasts (and
  transposes that are one) and get-tuple-element cost nothing, (dynamic) slices and gathers read what they
  return, dynamic-update-slice and scatter touch what they update, and a tuple is a table of 8-byte pointers.

Where the numbers differ from XLA's: custom calls count 0 FLOPs and their operands and results as bytes, where
XLA answers -1 for unknown; types of less than a byte are packed, where XLA counts a byte for each element; a
reduction of an empty array counts 0 FLOPs, where XLA counts less; arrays with dynamic axes count at their
bounds, where XLA on the CPU adds 4 bytes for each axis, in which the sizes are kept; a wrapped all-reduce
that is printed as `all-reduce-start` counts once, where XLA's parser takes it for the older opcode; sums are
exact, where XLA adds 32-bit floats.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from costbench.errors import UnsupportedKernelError
from costbench.hlo.cost_analysis.bytes import (
    bytes_of,
    fused_parameter_bytes,
    fused_read_bytes,
    is_large_constant,
    written_bytes,
)
from costbench.hlo.cost_analysis.work import (
    APPLICATIONS,
    ELEMENTWISE,
    FLOPS,
    RANDOM,
    TRANSCENDENTAL,
    UNPRICED,
)
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

_INLINE = frozenset({Opcode.CALL, Opcode.WHILE, Opcode.CONDITIONAL, Opcode.ASYNC_START})


@dataclass(frozen=True, slots=True)
class Cost:
    """Machine-independent cost; costs can be added.

    Attributes:
        flops: arithmetic operations; a multiply-add counts two.
        bytes_read: bytes of operands.
        bytes_written: bytes of results.
        transcendentals: operations such as exp and sqrt, counted apart from `flops`.
    """

    flops: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    transcendentals: float = 0.0

    @property
    def bytes_accessed(self) -> float:
        """Returns bytes read plus bytes written."""
        return self.bytes_read + self.bytes_written

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.flops + other.flops,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
            self.transcendentals + other.transcendentals,
        )

    def dearest(self, other: Cost) -> Cost:
        """Returns the maximum of both costs, separately for each measure."""
        return Cost(
            max(self.flops, other.flops),
            max(self.bytes_read, other.bytes_read),
            max(self.bytes_written, other.bytes_written),
            max(self.transcendentals, other.transcendentals),
        )


class CostAnalysis:
    """Costs of the parts of one module; called computations are analysed once.

    Use it where many instructions of a program are priced; the functions below are for single ones.
    """

    def __init__(self, module: HloModule) -> None:
        self._module = module
        self._computations: dict[int, Cost] = {}

    def computation(self, index: int) -> Cost:
        """Returns the cost of running a computation once."""
        known = self._computations.get(index)
        if known is None:
            known = Cost()
            for position in range(len(self._module.computations[index].instructions)):
                known = known + self.instruction(index, position)
            self._computations[index] = known
        return known

    def instruction(self, computation: int, position: int) -> Cost:
        """Returns the cost of one instruction.

        Raises:
            UnsupportedKernelError: for an opcode without a rule.
        """
        body = self._module.computations[computation]
        inst = body.instructions[position]
        if inst.opcode in _INLINE:
            return self._called(inst)
        custom = self._custom_fusion(inst)
        if custom is not None:
            return custom
        operands = [body.instructions[o].shape for o in inst.operands]
        flops, transcendentals = self._work(inst, operands)
        if inst.opcode is Opcode.FUSION:
            read, written = self._fusion_bytes(inst)
        else:
            read, written = bytes_of(inst, operands)
        return Cost(flops, read, written, transcendentals)

    def kernel(
        self, computation: int, instructions: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]
    ) -> Cost:
        """Returns the cost of a part of a computation that runs as one unit: only its boundary values move to
        and from main memory.

        Bytes read are those of the inputs (of an input that is only sliced, the slices, but never more than
        all of it) and of constants with more than one element; bytes written are those of the outputs.
        """
        body = self._module.computations[computation]
        members = frozenset(instructions)
        flops = read = transcendentals = 0.0
        for position in instructions:
            inst = body.instructions[position]
            if inst.opcode in _INLINE:
                called = self._called(inst)
                work = (called.flops, called.transcendentals)
            else:
                work = self._work(inst, [body.instructions[o].shape for o in inst.operands])
            flops += work[0]
            transcendentals += work[1]
            if is_large_constant(inst):
                read += inst.shape.num_bytes
        for position in inputs:
            whole = body.instructions[position].shape.num_bytes
            read += min(whole, fused_read_bytes(self._module, body, position, members))
        written = sum(written_bytes(body, position) for position in outputs)
        return Cost(flops, read, float(written), transcendentals)

    def _called(self, inst: Instruction) -> Cost:
        costs = [self.computation(callee) for callee in inst.called]
        total = Cost()
        for cost in costs:
            total = total.dearest(cost) if inst.opcode is Opcode.CONDITIONAL else total + cost
        return total

    def _custom_fusion(self, inst: Instruction) -> Cost | None:
        """Returns the cost of a fusion of kind `kCustom` around a gather or a scatter: of that alone."""
        if inst.opcode is not Opcode.FUSION or inst.fusion_kind != "kCustom":
            return None
        body = self._module.computations[inst.called[0]].instructions
        wanted = (p for p, i in enumerate(body) if i.opcode in (Opcode.GATHER, Opcode.SCATTER))
        position = next(wanted, None)
        return None if position is None else self.instruction(inst.called[0], position)

    def _work(self, inst: Instruction, operands: Sequence[Shape]) -> tuple[float, float]:
        """Returns FLOPs and transcendental operations."""
        opcode = inst.opcode
        if opcode in ELEMENTWISE:
            return float(inst.shape.num_elements), 0.0
        if opcode in TRANSCENDENTAL:
            return 0.0, float(inst.shape.num_elements)
        applications = APPLICATIONS.get(opcode)
        if applications is not None:
            flops = transcendentals = 0.0
            for callee, times in zip(inst.called, applications(inst, operands), strict=True):
                cost = self.computation(callee)
                flops += cost.flops * times
                transcendentals += cost.transcendentals * times
            return flops, transcendentals
        direct = FLOPS.get(opcode)
        if direct is not None:
            return float(direct(inst, operands)), 0.0
        if opcode in RANDOM:
            return 0.0, float(sum(leaf.num_elements for leaf in inst.shape.leaves()))
        if opcode in UNPRICED:
            raise UnsupportedKernelError(
                f"no cost rule for {opcode.xla_name}", where=self._module.name, field=inst.name
            )
        return 0.0, 0.0

    def _fusion_bytes(self, inst: Instruction) -> tuple[float, float]:
        body = self._module.computations[inst.called[0]]
        read = sum(fused_parameter_bytes(self._module, body, p) for p in body.parameters)
        read += sum(i.shape.num_bytes for i in body.instructions if is_large_constant(i))
        root = body.root_instruction
        outputs = root.operands if root.opcode is Opcode.TUPLE else (body.root,)
        return float(read), float(sum(written_bytes(body, p) for p in outputs))


def module_cost(module: HloModule) -> Cost:
    """Returns the cost of a program's entry computation, with one iteration of every loop, as XLA counts."""
    return CostAnalysis(module).computation(module.entry)
