"""The space of layout configs of a program: an option per configurable node (tpugraphs2023, section 2.1).

Configurable nodes are convolutions, dots and reshapes of the computations that run, in the order of the
program that layouts are assigned to; those with one option are left out. Every combination of options can be
compiled: copies are inserted where orders do not fit.

The options follow the recorded runs of the real compiler (a 3-D U-Net with 62 such nodes):

- for a convolution, each tensor independently has a given pair of axes in its two fastest places, in either
  sequence: batch and feature for output and input, the two features for the kernel. The other axes stay as in
  the default. In the gradient of a weight the pairs are the axes of the same roles.
- a dot likewise has the two fastest axes of each tensor in either sequence; batch axes stay outside.
- a reshape has any order of its three fastest axes, with the order of its input in which it is free; where it
  has to move data, row-major on both sides.

Results never have an axis of one or two elements in the lanes: the recorded runs have 4 features there, but
never a batch of 2. For operands they do list such orders, without effect; so operands have these options, but
no value is computed in such an order. Option 0 is the compiler's default.

Random configs follow the recorded runs, whose 62 nodes change in 8 groups of similar ones: a share of the
groups, drawn for the config, get a random option each; in half of the configs up to three single nodes get
another one. Nodes are in one group if they have one opcode and the same options.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import permutations, product

import numpy as np

from costbench.arrays import I8, I16, I64, Bool
from costbench.compiler.convolution_folding import fold_reversals
from costbench.compiler.layout.assign import Requirements
from costbench.compiler.layout.orders import OrderTables
from costbench.compiler.layout.rules import ConfigurableNode, NodeLayouts, fills_lanes
from costbench.compiler.layout.value_classes import ValueClasses
from costbench.compiler.tiled_memory import MinorToMajor, bitcast_layout, packed_row_major
from costbench.compiler.trip_counts import DEFAULT_UNKNOWN_TRIP_COUNT, execution_counts
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import Shape

MAX_RANK = 6
NUM_FEATURES = 3 * MAX_RANK
NO_AXIS = -1
_NUM_CONVOLUTION_AXES = 2
_MAX_SINGLE_NODES = 3
CONFIGURABLE = frozenset({Opcode.CONVOLUTION, Opcode.DOT, Opcode.RESHAPE})
_NUM_PERMUTED = 3


class LayoutSpace:
    """The layout configs of one program; a `VectorSpace`.

    Args:
        module: the program, reversals folded; its own layouts are ignored.
        unknown_trip_count: iterations assumed for a loop whose trip count cannot be found.

    Attributes:
        module: the program.
        classes: classes of its values that share a buffer.
        requirements: orders that its instructions require of their operands.
        counts: runs of every computation per run of the program.
        nodes: configurable nodes, in program order.
        ties: number of each node's group of similar nodes, int64 [m].
    """

    def __init__(self, module: HloModule, unknown_trip_count: int = DEFAULT_UNKNOWN_TRIP_COUNT) -> None:
        self.module = module
        self.classes = ValueClasses(module)
        self.requirements = Requirements(self.classes)
        self.counts = execution_counts(module, unknown_trip_count=unknown_trip_count)
        self.nodes = tuple(self._configurable())
        self.ties = _ties(module, self.nodes)

    def _configurable(self) -> list[ConfigurableNode]:
        tables, nodes = OrderTables(self.classes), []
        orders = tables.by_class(tables.default)
        for c, body in enumerate(self.module.computations):
            for p, inst in enumerate(body.instructions if self.counts[c] else ()):
                if inst.opcode not in CONFIGURABLE:
                    continue
                needs, natural = self.requirements.of((c, p), orders, None)
                operands = [body.instructions[o].shape for o in inst.operands]
                options = node_options(inst, operands, inst.shape, NodeLayouts(natural, needs))
                if len(options) > 1:
                    nodes.append(ConfigurableNode(c, p, inst.opcode, options))
        return nodes

    @cached_property
    def num_choices(self) -> I64:
        """Returns the number of options of each node, int64 [m]."""
        return np.array([len(node.options) for node in self.nodes], dtype=np.int64)

    @property
    def default(self) -> I16:
        """Returns the config of the compiler's default layouts, int16 [m]: zeros."""
        return np.zeros(len(self.nodes), dtype=np.int16)

    def legal(self, configs: I16) -> Bool:
        """Returns whether each of [n, m] is a config of this program, bool [n]; all can be compiled."""
        configs = np.asarray(configs)
        if configs.ndim != 2 or configs.shape[1] != len(self.nodes):
            return np.zeros(len(configs), dtype=bool)
        inside = (configs >= 0) & (configs < self.num_choices)
        return np.asarray(inside.all(axis=1), dtype=np.bool_)

    def sample(self, rng: np.random.Generator, count: int) -> I16:
        """Returns configs drawn at random, int16 [count, m]."""
        configs = [self._sample_config(rng) for _ in range(count)]
        return np.array(configs, dtype=np.int16).reshape(count, len(self.nodes))

    def neighbours(self, config: I16, rng: np.random.Generator, count: int) -> I16:
        """Returns configs in which one node or one group has another option, int16 [count, m]."""
        config = np.asarray(config, dtype=np.int16)
        result = np.repeat(config[None], count if len(config) else 0, axis=0)
        for row in result:
            node = int(rng.integers(len(row)))
            step = int(rng.integers(1, self.num_choices[node]))
            option = (int(row[node]) + step) % int(self.num_choices[node])
            if rng.random() < 0.5:
                row[self.ties == self.ties[node]] = option
            else:
                row[node] = option
        return result

    def crossover(self, first: I16, second: I16, rng: np.random.Generator) -> I16:
        """Returns a child that has every node's option from one of two parents [m], int16 [m]."""
        mine = rng.random(len(self.nodes)) < 0.5
        return np.where(mine, first, second).astype(np.int16)

    def decode(self, config: I16) -> tuple[NodeLayouts, ...]:
        """Returns the orders that a config chooses for every node.

        Raises:
            ValueError: if `config` is no config of this program.
        """
        config = self.checked(config)
        return tuple(node.options[option] for node, option in zip(self.nodes, config.tolist(), strict=True))

    def checked(self, config: I16) -> I16:
        """Returns the config as an array.

        Raises:
            ValueError: if it is no config of this program.
        """
        config = np.asarray(config)
        if config.ndim != 1 or not self.legal(config[None]).all():
            raise ValueError(f"{config} is no layout config, expected [{len(self.nodes)}] numbers of options")
        return config

    def _sample_config(self, rng: np.random.Generator) -> I16:
        groups = int(self.ties.max(initial=-1)) + 1
        changes = (rng.random(groups) < rng.random())[self.ties]
        options = np.floor(rng.random(groups)[self.ties] * self.num_choices)
        row = np.where(changes, options, self.default).astype(np.int16)
        if len(row) and rng.random() < 0.5:
            nodes = rng.integers(len(row), size=rng.integers(1, _MAX_SINGLE_NODES + 1))
            row[nodes] = rng.integers(self.num_choices[nodes])
        return row


def layout_space(module: HloModule, *, unknown_trip_count: int = DEFAULT_UNKNOWN_TRIP_COUNT) -> LayoutSpace:
    """Returns the space of layout configs of a canonical program (no fusions, layouts ignored)."""
    return LayoutSpace(fold_reversals(module), unknown_trip_count)


def _ties(module: HloModule, nodes: Sequence[ConfigurableNode]) -> I64:
    numbers: dict[object, int] = {}
    groups = []
    for node in nodes:
        inst = module.computations[node.computation].instructions[node.position]
        # With the roles of its axes, so that options by axis number mean the same.
        key = node.opcode, str(inst.convolution), node.options
        groups.append(numbers.setdefault(key, len(numbers)))
    return np.array(groups, dtype=np.int64)


def option_features(node: ConfigurableNode) -> I8:
    """Returns TpuGraphs' 18 features of every option of a node, int8 [o, 18].

    Output, input and kernel (a dot's right-hand side), six places each, fastest axis first, -1 where absent.
    For convolutions only the two axes that are chosen are listed, as in the recorded runs.
    """
    num_axes = _NUM_CONVOLUTION_AXES if node.opcode is Opcode.CONVOLUTION else MAX_RANK
    table = np.full((len(node.options), 3, MAX_RANK), NO_AXIS, dtype=np.int8)
    for row, option in zip(table, node.options, strict=True):
        for tensor, order in enumerate((option.output, *option.operands)):
            axes = order[:num_axes]
            row[tensor, : len(axes)] = axes
    return table.reshape(len(table), NUM_FEATURES)


# ---- options of a node -----------------------------------------------------------------------------------


def node_options(
    inst: Instruction, operands: Sequence[Shape], result: Shape, default: NodeLayouts
) -> tuple[NodeLayouts, ...]:
    """Returns the options of a configurable node without repetition, the default first.

    Args:
        inst: a convolution, dot or reshape.
        operands: shapes of its operands.
        result: shape of its result.
        default: the orders that the compiler chooses by default.
    """
    if inst.opcode is Opcode.RESHAPE:
        options = _reshape_options(operands[0], result, default)
    else:
        orders, c = (default.output, *default.operands), inst.convolution
        pairs = [order[:2] for order in orders]
        if c is not None:
            pairs = [
                (c.output_feature, c.output_batch),
                (c.input_feature, c.input_batch),
                (c.kernel_output_feature, c.kernel_input_feature),
            ]
        results, *sources = (
            _with_fastest(order, *pair) if len(order) > 1 else [order]
            for order, pair in zip(orders, pairs, strict=True)
        )
        results = [order for order in results if order == default.output or fills_lanes(result, order)]
        options = (
            NodeLayouts(first, tuple(operand_orders)) for first, *operand_orders in product(results, *sources)
        )
    return tuple(dict.fromkeys((default, *options)))


def _with_fastest(order: MinorToMajor, first: int, second: int) -> list[MinorToMajor]:
    """Returns an order, and the orders with two of its axes in the two fastest places, the rest unchanged."""
    rest = tuple(axis for axis in order if axis not in (first, second))
    return list(dict.fromkeys((order, (first, second, *rest), (second, first, *rest))))


def _reshape_options(operand: Shape, result: Shape, default: NodeLayouts) -> Iterator[NodeLayouts]:
    packed = NodeLayouts(packed_row_major(result.dimensions), (packed_row_major(operand.dimensions),))
    if result.rank < 2 and operand.rank < 2:
        return
    order = packed.output
    fast = [axis for axis in order if result.dimensions[axis] > 1][:_NUM_PERMUTED]
    rest = tuple(axis for axis in order if axis not in fast)
    yield packed
    for permuted in permutations(fast):
        output = (*permuted, *rest)
        if len(output) < 2 or not fills_lanes(result, output):
            continue
        source = bitcast_layout(result.with_layout(output), operand.dimensions)
        if source is not None:
            yield NodeLayouts(output, (source,))
