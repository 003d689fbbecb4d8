"""Fingerprints of kernels and programs: equal if they differ only in names, numbering or storage order.

The first pass gives every node a digest of its own label (opcode, shape with layout, attributes, fingerprints
of the computations it calls) and of its operands' digests in operand order. The second pass, from users back
to operands, gives it a digest that also covers which nodes read the value and as which operand. The
fingerprint is a digest over the sorted second digests. The first pass covers what a value is computed from,
the second how it is used, so that `f(a, b) + g(a, c)` and `f(a, b) + g(b, c)` differ although a, b and c look
alike. For a graph with one output in which every node is used this separates all graphs that are not
isomorphic: starting from the output, (user, place) identifies each node. Graphs with several outputs can
collide only if outputs are symmetric to each other.

`labels` defines the label of an instruction, `subgraph_digests` runs the two passes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import blake2b

from costbench.compiler.identity.labels import input_label, instruction_label
from costbench.compiler.identity.subgraph_digests import LabelledBody, labelled_body, subgraph_digests
from costbench.compiler.kernel_arrays import KernelArrays, kernel_arrays
from costbench.errors import HloError
from costbench.hlo.instruction import Instruction
from costbench.hlo.memo import Memo
from costbench.hlo.module import HloModule

_DIGEST_BYTES = 16
_NO_DIGEST = bytes(_DIGEST_BYTES)


class ModuleFingerprints:
    """Computes fingerprints of parts of one module.

    Use it to fingerprint many kernels of a program; the functions below are for single ones. Labels, and
    fingerprints of called computations, are computed when first needed and cached.
    """

    def __init__(self, module: HloModule) -> None:
        self._module = module
        self._labels: Memo[int, Memo[int, bytes]] = Memo(lambda c: Memo(partial(self._label, c)))
        self._inputs: Memo[int, Memo[int, bytes]] = Memo(lambda c: Memo(partial(self._input, c)))
        self._bodies: Memo[int, LabelledBody] = Memo(self._body)
        self._called: Memo[int, bytes] = Memo(self._whole)

    def kernels(self, computation: int, kernels: KernelArrays) -> list[bytes]:
        """Returns the fingerprints of kernels of one computation, 16 bytes each, equal to `subgraph`'s."""
        return _as_bytes(kernels, self._bodies[computation])

    def subgraph(
        self, computation: int, inputs: Sequence[int], instructions: Sequence[int], outputs: Sequence[int]
    ) -> str:
        """Returns what `subgraph_fingerprint` does: 32 hexadecimal digits."""
        inside = set(instructions)
        read = [position for position in dict.fromkeys(inputs) if position not in inside]
        return self._digest(computation, read, sorted(inside), outputs, self._labels[computation]).hex()

    def label_digests(self, computation: int) -> tuple[list[bytes], list[bytes]]:
        """Returns for every instruction digests of its label and of its label as an input; 16 bytes each."""
        positions = range(len(self._instructions(computation)))
        labels, inputs = self._labels[computation], self._inputs[computation]
        return [_blake2b(labels[p]) for p in positions], [inputs[p] for p in positions]

    def called(self, computation: int) -> bytes:
        """Returns the fingerprint of a whole computation, including parameter numbers; 16 bytes."""
        return self._called[computation]

    def _whole(self, computation: int) -> bytes:
        labels = Memo(partial(self._label, computation, numbered=True))
        body = self._module.computations[computation]
        return self._digest(computation, (), range(len(body.instructions)), (body.root,), labels)

    def _instructions(self, computation: int) -> Sequence[Instruction]:
        return self._module.computations[computation].instructions

    def _label(self, computation: int, position: int, *, numbered: bool = False) -> bytes:
        inst = self._instructions(computation)[position]
        return instruction_label(inst, [self.called(callee) for callee in inst.called], numbered=numbered)

    def _input(self, computation: int, position: int) -> bytes:
        return _blake2b(input_label(self._instructions(computation)[position].shape))

    def _body(self, computation: int) -> LabelledBody:
        """Returns all instructions of a computation, numbered by position."""
        instructions = self._instructions(computation)
        labels, inputs = self._labels[computation], self._inputs[computation]
        positions = range(len(instructions))
        return labelled_body(
            [inst.operands for inst in instructions],
            [labels[p] for p in positions],
            [inputs[p] for p in positions],
        )

    def _digest(
        self,
        computation: int,
        read: Sequence[int],
        inside: Sequence[int],
        outputs: Sequence[int],
        labels: Memo[int, bytes],
    ) -> bytes:
        """Returns the fingerprint of one part and labels only its nodes: inputs first, then instructions."""
        instructions, inputs = self._instructions(computation), self._inputs[computation]
        numbers = {position: number for number, position in enumerate((*read, *inside))}
        missing = sorted(set(outputs) - numbers.keys())
        if missing:
            raise HloError(f"outputs {missing} are not part of the subgraph", where=self._module.name)
        operands: list[list[int]] = [[] for _ in read]
        for position in inside:
            try:
                operands.append([numbers[operand] for operand in instructions[position].operands])
            except KeyError as error:
                raise HloError(
                    f"operand at {error.args[0]} is neither an input nor among the instructions",
                    where=self._module.name,
                    field=instructions[position].name,
                ) from None
        body = labelled_body(
            operands,
            [b""] * len(read) + [labels[position] for position in inside],
            [inputs[position] for position in read] + [_NO_DIGEST] * len(inside),
        )
        part = range(len(read), len(numbers)), range(len(read)), {numbers[position] for position in outputs}
        return _as_bytes(kernel_arrays([part]), body)[0]


def subgraph_fingerprint(
    module: HloModule,
    computation: int,
    inputs: Sequence[int],
    instructions: Sequence[int],
    outputs: Sequence[int],
) -> str:
    """Returns the fingerprint of a part of a computation, such as a kernel.

    Args:
        module: the program.
        computation: position of the computation.
        inputs: positions of values read but not computed by the part; only their shapes count.
        instructions: positions of the part's instructions.
        outputs: positions whose values leave the part.

    Returns:
        32 hexadecimal digits (BLAKE2b, 128 bits).

    Raises:
        HloError: if an operand is neither an input nor among the instructions, or an output neither.
    """
    return ModuleFingerprints(module).subgraph(computation, inputs, instructions, outputs)


def module_fingerprint(module: HloModule) -> str:
    """Returns the fingerprint of a whole program, callees included; 32 hexadecimal digits."""
    return ModuleFingerprints(module).called(module.entry).hex()


def _as_bytes(kernels: KernelArrays, body: LabelledBody) -> list[bytes]:
    data = subgraph_digests(kernels, body).astype("<u8").tobytes()
    return [data[i : i + _DIGEST_BYTES] for i in range(0, len(data), _DIGEST_BYTES)]


def _blake2b(data: bytes) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()
