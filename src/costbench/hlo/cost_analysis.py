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

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from costbench.errors import UnsupportedKernelError
from costbench.hlo.instruction import Instruction, WindowDimension
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode, opcodes
from costbench.hlo.shape import Shape

_O = Opcode
_POINTER_BYTES = 8
_PAIRS_AT_ONCE = 1 << 20
_DISTINCT_DIMENSIONS = 1 << 14
TRANSCENDENTAL = opcodes(
    "exponential exponential-minus-one log log-plus-one logistic power sqrt cbrt rsqrt tanh sine cosine tan "
    "atan2 erf acos acosh asin asinh atanh cosh sinh"
)
ELEMENTWISE = opcodes(
    "abs add and bitcast-convert ceil clamp compare complex convert count-leading-zeros divide floor imag "
    "is-finite maximum minimum multiply negate not or popcnt real reduce-precision remainder "
    "round-nearest-afz round-nearest-even select shift-left shift-right-arithmetic shift-right-logical sign "
    "stochastic-convert subtract xor"
)
UNPRICED = frozenset({_O.UNKNOWN})
RANDOM = frozenset({_O.RNG, _O.RNG_BIT_GENERATOR})
_INLINE = frozenset({_O.CALL, _O.WHILE, _O.CONDITIONAL, _O.ASYNC_START})
_SLICES = frozenset({_O.SLICE, _O.DYNAMIC_SLICE})
_FREE = opcodes("parameter constant get-tuple-element bitcast after-all add-dependency domain")


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

    def maximum(self, other: Cost) -> Cost:
        """Returns the maximum of both costs, separately for each measure."""
        return Cost(
            max(self.flops, other.flops),
            max(self.bytes_read, other.bytes_read),
            max(self.bytes_written, other.bytes_written),
            max(self.transcendentals, other.transcendentals),
        )


class CostAnalysis:
    """Costs of the parts of one module; called computations are analysed once.

    `module_cost` is for a single program.
    """

    def __init__(self, module: HloModule) -> None:
        self._module = module
        self._computations: dict[int, Cost] = {}

    def computation(self, index: int) -> Cost:
        """Returns the cost of running a computation once."""
        cost = self._computations.get(index)
        if cost is None:
            cost = Cost()
            for position in range(len(self._module.computations[index].instructions)):
                cost = cost + self.instruction(index, position)
            self._computations[index] = cost
        return cost

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
        if inst.opcode is _O.FUSION:
            read, written = self._fusion_bytes(inst)
        else:
            read, written = _bytes_of(inst, operands)
        return Cost(flops, read, written, transcendentals)

    def kernel(
        self, computation: int, instructions: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]
    ) -> Cost:
        """Returns the cost of a part of a computation that runs as one unit.

        Only its boundary values move to and from main memory.

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
            if _is_large_constant(inst):
                read += inst.shape.num_bytes
        for position in inputs:
            whole = body.instructions[position].shape.num_bytes
            read += min(whole, _fused_read_bytes(self._module, body, position, members))
        written = sum(_written_bytes(body, position) for position in outputs)
        return Cost(flops, read, float(written), transcendentals)

    def _called(self, inst: Instruction) -> Cost:
        total = Cost()
        for callee in inst.called:
            cost = self.computation(callee)
            total = total.maximum(cost) if inst.opcode is _O.CONDITIONAL else total + cost
        return total

    def _custom_fusion(self, inst: Instruction) -> Cost | None:
        """Returns the cost of a fusion of kind `kCustom` around a gather or a scatter: of that alone."""
        if inst.opcode is not _O.FUSION or inst.fusion_kind != "kCustom":
            return None
        body = self._module.computations[inst.called[0]].instructions
        positions = (p for p, i in enumerate(body) if i.opcode in (_O.GATHER, _O.SCATTER))
        position = next(positions, None)
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
        read = sum(_fused_parameter_bytes(self._module, body, p) for p in body.parameters)
        read += sum(i.shape.num_bytes for i in body.instructions if _is_large_constant(i))
        root = body.root_instruction
        outputs = root.operands if root.opcode is _O.TUPLE else (body.root,)
        return float(read), float(sum(_written_bytes(body, p) for p in outputs))


def module_cost(module: HloModule) -> Cost:
    """Returns the cost of a program's entry computation, with one iteration of every loop, as XLA counts."""
    return CostAnalysis(module).computation(module.entry)


def _first_array(shape: Shape) -> Shape:
    return shape.tuple_shapes[0] if shape.is_tuple else shape


def _window_size(inst: Instruction) -> int:
    return math.prod(d.size for d in inst.window)


def _reduce_applications(inst: Instruction, operands: Sequence[Shape]) -> tuple[int, ...]:
    # XLA's count is negative where an empty array is reduced; nothing is computed then.
    return (max(0, operands[0].num_elements - _first_array(inst.shape).num_elements),)


def _reduce_window_applications(inst: Instruction, _operands: Sequence[Shape]) -> tuple[int, ...]:
    result = _first_array(inst.shape)
    whole = _whole_axis_window(inst)
    if whole is not None:
        extent = result.dimensions[whole]
        return (result.num_elements // extent + extent - 1,) if extent else (0,)
    return ((_window_size(inst) - 1) * result.num_elements,)


def _whole_axis_window(inst: Instruction) -> int | None:
    """Returns the only axis along which every window covers all of the base: a reduction broadcast back."""
    wide = [axis for axis, d in enumerate(inst.window) if d.size != 1]
    padded = [axis for axis, d in enumerate(inst.window) if d.padding_low or d.padding_high]
    if len(wide) != 1 or wide != padded or inst.shape.is_tuple:
        return None
    window = inst.window[wide[0]]
    even = window.padding_low == window.padding_high and window.size == 2 * window.padding_low + 1
    return wide[0] if even and window.padding_low == inst.shape.dimensions[wide[0]] - 1 else None


def _select_and_scatter_applications(inst: Instruction, operands: Sequence[Shape]) -> tuple[int, ...]:
    source = operands[1].num_elements
    return source * (_window_size(inst) - 1), source


def _scatter_applications(_inst: Instruction, operands: Sequence[Shape]) -> tuple[int, ...]:
    return (operands[len(operands) // 2 + 1].num_elements,)


def _dot_flops(inst: Instruction, operands: Sequence[Shape]) -> float:
    contracted = inst.dot.lhs_contracting if inst.dot is not None else ()
    return 2 * inst.shape.num_elements * math.prod(operands[0].dimensions[axis] for axis in contracted)


def _ragged_dot_flops(inst: Instruction, operands: Sequence[Shape]) -> float:
    """Counts as XLA does: a dot whose result lacks a leading axis for each group dimension of the right side.

    With a ragged axis that is not contracted this leaves out the rows: XLA does not know their groups.
    """
    contracted = inst.dot.lhs_contracting if inst.dot is not None else ()
    extents = list(inst.shape.dimensions)
    for number in range(min(len(inst.dimensions), len(extents))):
        del extents[min(number, len(extents) - 1)]
    return 2 * math.prod(extents) * math.prod(operands[0].dimensions[axis] for axis in contracted)


def _sort_flops(_inst: Instruction, operands: Sequence[Shape]) -> float:
    elements = operands[0].num_elements
    return elements * max(0, elements - 1).bit_length()


def _fft_flops(inst: Instruction, operands: Sequence[Shape]) -> float:
    factors = math.prod(max(length, 1).bit_length() - 1 for length in inst.fft_length)
    return 8 * factors * operands[0].num_elements


def _last_extent(shape: Shape) -> int:
    return shape.dimensions[-1] if shape.dimensions else 1


# How often each called computation is applied, in the order of `Instruction.called`.
APPLICATIONS: dict[Opcode, Callable[[Instruction, Sequence[Shape]], tuple[int, ...]]] = {
    _O.REDUCE: _reduce_applications,
    _O.REDUCE_WINDOW: _reduce_window_applications,
    _O.SELECT_AND_SCATTER: _select_and_scatter_applications,
    _O.SCATTER: _scatter_applications,
    _O.MAP: lambda inst, _operands: (inst.shape.num_elements,),
    _O.FUSION: lambda _inst, _operands: (1,),
    _O.SCAN: lambda _inst, _operands: (1,),
}
FLOPS: dict[Opcode, Callable[[Instruction, Sequence[Shape]], float]] = {
    _O.DOT: _dot_flops,
    _O.RAGGED_DOT: _ragged_dot_flops,
    _O.CONVOLUTION: lambda inst, operands: 2 * convolution_multiply_adds(inst, operands[0], operands[1]),
    _O.SORT: _sort_flops,
    _O.FFT: _fft_flops,
    _O.TRIANGULAR_SOLVE: lambda _inst, operands: 2 * _last_extent(operands[0]) * operands[1].num_elements,
    _O.CHOLESKY: lambda _inst, operands: _last_extent(operands[0]) * operands[0].num_elements // 3,
    _O.ALL_REDUCE: lambda inst, _operands: sum(leaf.num_elements for leaf in inst.shape.leaves()),
    _O.ALL_REDUCE_START: lambda inst, _operands: sum(leaf.num_elements for leaf in inst.shape.leaves()),
}


@lru_cache(maxsize=_DISTINCT_DIMENSIONS)
def valid_positions(
    window: WindowDimension, input_extent: int, kernel_extent: int, output_extent: int
) -> int:
    """Counts (kernel index, output index) pairs of one spatial dimension that read an input element.

    Kernel index k and output index o read element `(o * stride - padding_low + k * window_dilation) /
    base_dilation` of the input; the pair counts if that is whole and inside the input.
    """
    start = np.arange(output_extent, dtype=np.int64) * window.stride - window.padding_low
    last = (input_extent - 1) * window.base_dilation
    rows = max(1, _PAIRS_AT_ONCE // max(1, output_extent))
    count = 0
    for first in range(0, kernel_extent, rows):
        taps = np.arange(first, min(first + rows, kernel_extent), dtype=np.int64) * window.window_dilation
        element = taps[:, None] + start[None, :]
        valid = (element >= 0) & (element <= last)
        if window.base_dilation > 1:
            valid &= element % window.base_dilation == 0
        count += int(np.count_nonzero(valid))
    return count


def convolution_multiply_adds(inst: Instruction, lhs: Shape, rhs: Shape) -> int:
    """Returns the multiply-adds of a convolution, in any of its forms: window positions on a real element.

    Holes of a dilated base and padding cost nothing. The spatial dimensions are independent: the count is
    (input features / feature groups) * output features * (batch / batch groups) * product over the spatial
    dimensions of `valid_positions`. Transposed convolutions are those with a base dilation, dilated ones
    those with a window dilation; the gradient of the kernel is a convolution whose batch is the features.

    Args:
        inst: a convolution, with dimension numbers and one window dimension per spatial dimension.
        lhs: shape of the input.
        rhs: shape of the kernel.
    """
    numbers = inst.convolution
    if numbers is None:
        return 0
    features_in = lhs.dimensions[numbers.input_feature] // max(1, inst.feature_group_count)
    batch = lhs.dimensions[numbers.input_batch] // max(1, inst.batch_group_count)
    count = features_in * inst.shape.dimensions[numbers.output_feature] * batch
    axes = zip(
        inst.window,
        numbers.input_spatial,
        numbers.kernel_spatial,
        numbers.output_spatial,
        strict=True,
    )
    for window, on_input, on_kernel, on_output in axes:
        count *= valid_positions(
            window, lhs.dimensions[on_input], rhs.dimensions[on_kernel], inst.shape.dimensions[on_output]
        )
    return count


def _bytes_of(inst: Instruction, operands: Sequence[Shape]) -> tuple[float, float]:
    """Returns bytes read and bytes written by an instruction that runs on its own."""
    if inst.opcode in _FREE:
        return 0.0, 0.0
    rule = _BYTES.get(inst.opcode)
    if rule is not None:
        return rule(inst, operands)
    read = 0
    for shape in operands:
        read += _POINTER_BYTES * len(shape.tuple_shapes) if shape.is_tuple else shape.num_bytes
    return float(read), float(inst.shape.num_bytes)


def _is_large_constant(inst: Instruction) -> bool:
    """Returns whether it is a constant of more than one element, which has to be read from memory."""
    return inst.opcode is _O.CONSTANT and inst.shape.num_elements > 1


def _written_bytes(body: HloComputation, position: int) -> int:
    """Returns the bytes that a fused group writes for one output; an update in place writes the update."""
    inst = body.instructions[position]
    if inst.opcode is _O.DYNAMIC_UPDATE_SLICE:
        return body.instructions[inst.operands[1]].shape.num_bytes
    return inst.shape.num_bytes


def _fused_read_bytes(module: HloModule, body: HloComputation, position: int, members: frozenset[int]) -> int:
    """Returns the bytes that a fused group reads of one value from outside.

    Slices read what they return, an update in place does not read what it overwrites; each broadcast or
    reshape reads the value separately; all other users share one read of it.

    Args:
        module: the program.
        body: computation that holds the group.
        position: the value: a parameter of the fusion or an input of the kernel.
        members: positions of the group's instructions.
    """
    whole = body.instructions[position].shape.num_bytes
    total = 0
    shared = False
    for user in body.users[position]:
        if user not in members:
            continue
        inst = body.instructions[user]
        if inst.opcode is _O.FUSION:
            total += _nested_read_bytes(module, body, user, position)
        elif inst.opcode is _O.GET_TUPLE_ELEMENT:
            total += _fused_read_bytes(module, body, user, members)
        elif inst.opcode in _SLICES and inst.operands[0] == position:
            total += inst.shape.num_bytes
        elif inst.opcode in (_O.BROADCAST, _O.RESHAPE):
            total += whole
        elif inst.opcode is not _O.DYNAMIC_UPDATE_SLICE or inst.operands[0] != position:
            shared = True
    return total + whole * shared


def _nested_read_bytes(module: HloModule, body: HloComputation, fusion: int, position: int) -> int:
    """Returns the bytes that a fusion within a fusion reads of a value, once for each operand that it is.

    Where the body returns its parameter or one instruction whose first operand the parameter is (a copy,
    say), slices of the fusion's result read what they return, as slices of the value itself would. A fusion
    whose result nothing reads counts nothing.
    """
    inst = body.instructions[fusion]
    callee = module.computations[inst.called[0]]
    inside = frozenset(range(len(callee.instructions)))
    total = 0
    for number in (number for number, operand in enumerate(inst.operands) if operand == position):
        parameter, shared = callee.parameters[number], False
        returned = callee.root_instruction.operands
        simple = not returned or returned[0] == parameter
        for user in body.users[fusion]:
            reader = body.instructions[user]
            first = reader.operands[0] == fusion
            if simple and (reader.opcode is _O.SLICE or (reader.opcode is _O.DYNAMIC_SLICE and first)):
                total += reader.shape.num_bytes
            elif not shared and not (simple and reader.opcode is _O.DYNAMIC_UPDATE_SLICE and first):
                shared = True
                total += (
                    inst.shape.num_bytes
                    if simple and reader.opcode in (_O.DYNAMIC_SLICE, _O.DYNAMIC_UPDATE_SLICE)
                    else _fused_read_bytes(module, callee, parameter, inside)
                )
    return total


def _fused_parameter_bytes(module: HloModule, body: HloComputation, parameter: int) -> int:
    """Returns the bytes that a fusion reads of a parameter; of a tuple, of the members that it takes out.

    For each member that is not taken out XLA counts the table of pointers of the tuple that it lies in.
    """
    inside = frozenset(range(len(body.instructions)))
    shape = body.instructions[parameter].shape
    if not shape.is_tuple:
        return _fused_read_bytes(module, body, parameter, inside)
    total = 0
    for number, member in enumerate(shape.tuple_shapes):
        element = next((user for user in body.users[parameter] if _takes(body, user, number)), None)
        if element is not None:
            total += _fused_parameter_bytes(module, body, element)
        elif body.users[parameter]:
            total += _POINTER_BYTES * len(shape.tuple_shapes) * len(member.leaves())
    return total


def _takes(body: HloComputation, user: int, member: int) -> bool:
    inst = body.instructions[user]
    return inst.opcode is _O.GET_TUPLE_ELEMENT and inst.tuple_index == member


def _infeed_bytes(inst: Instruction, _operands: Sequence[Shape]) -> tuple[float, float]:
    return 0.0, float(inst.shape.num_bytes)


def _outfeed_bytes(_inst: Instruction, operands: Sequence[Shape]) -> tuple[float, float]:
    return float(sum(shape.num_bytes for shape in operands)), 0.0


def _slice_bytes(inst: Instruction, operands: Sequence[Shape]) -> tuple[float, float]:
    # XLA counts one index operand (a gather has no more), also where there is a scalar for each axis.
    size = inst.shape.num_bytes
    return float(size + sum(index.num_bytes for index in operands[1:2])), float(size)


def _update_bytes(_inst: Instruction, operands: Sequence[Shape]) -> tuple[float, float]:
    return float(sum(shape.num_bytes for shape in operands[1:3])), float(operands[1].num_bytes)


def _scatter_bytes(_inst: Instruction, operands: Sequence[Shape]) -> tuple[float, float]:
    count = len(operands) // 2
    updates = sum(shape.num_bytes for shape in operands[count + 1 :])
    return float(2 * updates + operands[count].num_bytes), float(updates)


def _transpose_bytes(inst: Instruction, operands: Sequence[Shape]) -> tuple[float, float]:
    # Axis i of the result is axis dimensions[i] of the operand: no byte moves if memory order stays the same.
    same_order = tuple(inst.dimensions[axis] for axis in inst.shape.layout) == operands[0].layout
    size = 0.0 if same_order else float(inst.shape.num_bytes)
    return size, size


def _triangular_solve_bytes(inst: Instruction, operands: Sequence[Shape]) -> tuple[float, float]:
    return operands[0].num_bytes / 2 + operands[1].num_bytes, float(inst.shape.num_bytes)


def _cholesky_bytes(_inst: Instruction, operands: Sequence[Shape]) -> tuple[float, float]:
    return operands[0].num_bytes / 2, operands[0].num_bytes / 2


_BYTES: dict[Opcode, Callable[[Instruction, Sequence[Shape]], tuple[float, float]]] = {
    _O.TUPLE: lambda inst, _operands: (0.0, float(_POINTER_BYTES * len(inst.shape.tuple_shapes))),
    _O.INFEED: _infeed_bytes,
    _O.OUTFEED: _outfeed_bytes,
    _O.SLICE: _slice_bytes,
    _O.DYNAMIC_SLICE: _slice_bytes,
    _O.GATHER: _slice_bytes,
    _O.DYNAMIC_UPDATE_SLICE: _update_bytes,
    _O.SCATTER: _scatter_bytes,
    _O.TRANSPOSE: _transpose_bytes,
    _O.TRIANGULAR_SOLVE: _triangular_solve_bytes,
    _O.CHOLESKY: _cholesky_bytes,
}
