"""Builds the graphs of kernels as arrays, from the features of their program.

Node features are computed once per program and kept in a small cache; a kernel's graph selects its rows. A
value that enters the kernel from outside becomes a parameter node: it has the shape and layout of the value
and no features of the instruction that computes it, so a kernel's features do not depend on where its inputs
come from. Edges run from producer to consumer here and nowhere else; TpuGraphs' files store them the other
way round.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from costbench.arrays import F32, I64, U8
from costbench.compiler.kernel import Kernel
from costbench.errors import DataError, ParamsError
from costbench.features.decision_features import static_performance
from costbench.features.node import (
    IS_ROOT_COLUMN,
    PARAMETER_NUMBER_COLUMN,
    SHAPE_COLUMNS,
    module_node_features,
    module_opcodes,
)
from costbench.features.schema import NODE_FEATURES, absent_row
from costbench.hlo.cost_analysis import CostAnalysis
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode

_SHAPE_COLUMNS = np.array(SHAPE_COLUMNS, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class KernelGraph:
    """The graph of one kernel: `n` nodes (boundary parameters first) and `m` edges.

    Attributes:
        opcodes: codes of `Opcode`, int64 [n].
        node_features: unscaled node features, float32 [n, 140].
        edges: int64 [2, m], producer above consumer, indices of nodes; each once, by consumer, then producer.
        static_features: float32 [4], unscaled: FLOPs, bytes read, bytes written, special functions.
    """

    opcodes: I64
    node_features: F32
    edges: I64
    static_features: F32

    @property
    def num_nodes(self) -> int:
        """Nodes, boundary parameters included."""
        return len(self.opcodes)


@dataclass(frozen=True, eq=False)
class ProgramFeatures:
    """Features that all kernels of a program share.

    Attributes:
        module: program that the features are of.
        opcodes: codes of all instructions, int64 [instructions of all computations].
        node_features: features of all instructions, float32 [instructions of all computations, 140].
        cost_analysis: costs of the program's parts, called computations analysed once.
    """

    module: HloModule
    opcodes: I64
    node_features: F32
    cost_analysis: CostAnalysis


def program_features(module: HloModule) -> ProgramFeatures:
    """Computes the features of a program."""
    return ProgramFeatures(module, module_opcodes(module), module_node_features(module), CostAnalysis(module))


class ProgramFeatureCache:
    """Features of the programs used last, so that memory stays flat whatever the number of programs.

    Programs are keyed by object identity: two equal modules are two programs.

    Args:
        capacity: number of programs in memory, 560 bytes per instruction each.

    Raises:
        ParamsError: if `capacity` is less than 1.
    """

    def __init__(self, capacity: int = 8) -> None:
        if capacity < 1:
            raise ParamsError(f"capacity {capacity}", field="capacity", expected="1 or more programs")
        self._capacity = capacity
        # An entry holds its module, so no other module can come to have the same id while it is kept.
        self._entries: OrderedDict[int, ProgramFeatures] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def features(self, module: HloModule) -> ProgramFeatures:
        """Returns the features of a program, computed unless they are cached."""
        key = id(module)
        if key not in self._entries:
            self._entries[key] = program_features(module)
            if len(self._entries) > self._capacity:
                self._entries.popitem(last=False)
        self._entries.move_to_end(key)
        return self._entries[key]


def kernel_graph(kernel: Kernel, cache: ProgramFeatureCache) -> KernelGraph:
    """Returns the graph of a kernel, with nodes in the order of `kernel.nodes`.

    An input is a `parameter` node whose number is its index among the inputs; only its columns for element
    type, sizes, tuple members and layout are those of the value, all others are absent values. An instruction
    has its row of the program, except that `is_root` is 1 exactly for the kernel's outputs.

    Raises:
        DataError: if an instruction reads a value that is neither an input nor in the kernel.
        UnsupportedKernelError: for an opcode without a cost rule.
    """
    program = cache.features(kernel.module)
    offset = kernel.module.offsets[kernel.computation]
    rows = np.array(kernel.nodes, dtype=np.int64) + offset
    num_inputs = len(kernel.inputs)
    opcodes = program.opcodes[rows]
    opcodes[:num_inputs] = int(Opcode.PARAMETER)
    features = program.node_features[rows]
    features[:num_inputs] = input_rows(features[:num_inputs])
    outputs = frozenset(kernel.outputs)
    write_boundary_features(features, num_inputs, [position in outputs for position in kernel.instructions])
    return KernelGraph(
        opcodes=opcodes,
        node_features=features,
        edges=kernel_edges(kernel),
        static_features=static_performance(kernel, program.cost_analysis),
    )


def input_rows(producers: F32) -> F32:
    """Returns the feature rows of kernel inputs, given those of their producers: only shape and layout."""
    rows = np.tile(absent_row(NODE_FEATURES), (len(producers), 1))
    rows[:, _SHAPE_COLUMNS] = producers[:, _SHAPE_COLUMNS]
    return rows


def write_boundary_features(features: F32, num_inputs: int, is_output: Sequence[bool] | U8) -> None:
    """Writes the features that depend on the kernel: the numbers of its inputs, and which nodes are outputs.

    Args:
        features: node features, inputs first, float32 [n, 140]; changed.
        num_inputs: number of inputs.
        is_output: whether each of the other nodes is an output.
    """
    features[:num_inputs, PARAMETER_NUMBER_COLUMN] = np.arange(num_inputs)
    features[num_inputs:, IS_ROOT_COLUMN] = is_output


def kernel_edges(kernel: Kernel) -> I64:
    """Returns the edges of a kernel, int64 [2, m], as in `KernelGraph`.

    Raises:
        DataError: if an instruction reads a value that is neither an input nor in the kernel.
    """
    node_of = {position: index for index, position in enumerate(kernel.nodes)}
    pairs: list[tuple[int, int]] = []
    for consumer, position in enumerate(kernel.instructions, start=len(kernel.inputs)):
        inst = kernel.instruction(position)
        try:
            producers = {node_of[operand] for operand in inst.operands}
        except KeyError as error:
            value = kernel.instruction(error.args[0]).name
            raise DataError(
                f"reads {value}, which is neither an input nor in the kernel",
                where=kernel.module.name,
                field=inst.name,
            ) from None
        pairs.extend((producer, consumer) for producer in sorted(producers))
    return np.ascontiguousarray(np.array(pairs, dtype=np.int64).reshape(len(pairs), 2).T)
