"""What a layout network reads of one graph: scaled features, options of its configurable nodes, its plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from costbench.arrays import I64
from costbench.datasets.layout_graphs import LayoutGraph
from costbench.errors import DataError
from costbench.features.normalizer import MinMaxFit, MinMaxNormalizer, Transform
from costbench.hlo.opcode import NUM_OPCODE_CODES
from costbench.models.layout.plan import GraphView, Plan, aggregations, build_view, plan_layers
from costbench.models.spec import LayoutNetSpec

CPU = torch.device("cpu")
NUM_AXIS_SLOTS = 18
"""Axis numbers of an option: six of the output, of the input and of the kernel."""
NUM_AXES = 8
"""Codes of an axis number: absent (-1), axes 0 to 5, and any larger one."""


@dataclass(frozen=True)
class LayoutScaling:
    """Scalers of a model, fitted on training graphs only and kept with its weights.

    Attributes:
        node: scaler of the node features.
        option: scaler of the layout features of options.
    """

    node: MinMaxNormalizer
    option: MinMaxNormalizer

    @staticmethod
    def fit(graphs: Iterable[LayoutGraph], transform: Transform = "log1p") -> LayoutScaling:
        """Fits scalers to all nodes and options of graphs, which are read once, one at a time.

        Raises:
            DataError: without graphs, or for graphs without any configurable node.
        """
        node, option = MinMaxFit(transform), MinMaxFit("none")
        for graph in graphs:
            node.update(graph.node_features)
            option.update(graph.option_features)
        return LayoutScaling(node.finish(), option.finish())

    def to_dict(self) -> dict[str, object]:
        """Returns plain values for JSON, from which `from_dict` makes an equal scaling."""
        return {"node": self.node.to_dict(), "option": self.option.to_dict()}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> LayoutScaling:
        """Inverts `to_dict`. Raises: DataError, for other keys and values that are no scaler."""
        if set(values) != {"node", "option"} or not all(isinstance(v, Mapping) for v in values.values()):
            raise DataError(f"scalers {sorted(values)}", field="scaling", expected="node, option")
        return LayoutScaling(*(MinMaxNormalizer.from_dict(values[name]) for name in ("node", "option")))


@dataclass(frozen=True, eq=False)
class LayoutInputs:
    """One graph as tensors, without its configs, which stay in the file.

    Attributes:
        graph: the graph.
        view: the part of it that the network sees, with n nodes, nc of them configurable.
        plan: rows whose states vary, layer by layer, and the matrices between them.
        opcodes: int64 [n].
        node_features: float32 [n, k], scaled.
        options: all o options: int64 [o, 18], codes 8 slot + axis + 1, or float32 [o, k'], scaled.
        option_node: int64 [o], number of the configurable node of each option.
    """

    graph: LayoutGraph
    view: GraphView
    plan: Plan
    opcodes: Tensor
    node_features: Tensor
    options: Tensor
    option_node: Tensor

    def option_rows(self, rows: I64) -> Tensor:
        """Returns the options of some configs, int64 [c, nc], rows of `options`; reads only these configs."""
        options = self.graph.config_options[rows].astype(np.int64)
        return torch.from_numpy(options + self.graph.option_offsets[:-1]).to(self.options.device)


def layout_inputs(
    graph: LayoutGraph,
    scaling: LayoutScaling,
    spec: LayoutNetSpec,
    device: torch.device = CPU,
) -> LayoutInputs:
    """Returns a graph as the network of `spec` reads it, its tensors on `device`.

    Raises:
        DataError: for a graph whose features are not finite or of another width than the scaling's, or whose
            options are no axis numbers where `spec.options` is `one-hot`.
    """
    view = build_view(graph, spec.prune_hops, spec.part_nodes)
    linear = spec.encoder in ("graphsage", "gcn")
    matrices = aggregations(view, spec.encoder if linear else "graphsage", spec.directed)
    plan = plan_layers(
        matrices, view.configurable, spec.hops if linear else 0, pools_all=spec.pools_all_nodes
    )
    opcodes = graph.opcodes[view.nodes].astype(np.int64)
    # Codes that newer programs may have are unknown ones.
    opcodes[(opcodes < 0) | (opcodes >= NUM_OPCODE_CODES)] = 0
    counts = np.diff(graph.option_offsets)
    return LayoutInputs(
        graph=graph,
        view=view,
        plan=plan,
        opcodes=torch.from_numpy(opcodes).to(device),
        node_features=torch.from_numpy(scaling.node(graph.node_features[view.nodes])).to(device),
        options=_options(graph, scaling, spec).to(device),
        option_node=torch.from_numpy(np.repeat(np.arange(len(counts)), counts)).to(device),
    )


@dataclass(frozen=True, eq=False)
class PartInputs:
    """One part of a graph that was cut into parts, as a graph of its own.

    Attributes:
        inputs: the part; `view.configurable` are its m configurable nodes.
        columns: columns of a config that are theirs.
        first_option: row of the whole graph's options that is the part's first.
    """

    inputs: LayoutInputs
    columns: slice
    first_option: int

    def options(self, options: Tensor) -> Tensor:
        """Returns the part's options [c, m] of configs of the whole graph, [c, nc]."""
        return options[:, self.columns] - self.first_option


def split_into_parts(inputs: LayoutInputs, spec: LayoutNetSpec) -> list[PartInputs]:
    """Returns the parts of a graph that `spec.part_nodes` has cut into parts."""
    view = inputs.view
    bounds = [*view.starts.tolist(), view.num_nodes]
    return [_part(inputs, spec, start, stop) for start, stop in pairwise(bounds)]


def _part(inputs: LayoutInputs, spec: LayoutNetSpec, start: int, stop: int) -> PartInputs:
    view, offsets = inputs.view, inputs.graph.option_offsets
    first, last = np.searchsorted(view.configurable, [start, stop]).tolist()
    rows = slice(int(offsets[first]), int(offsets[last]))
    within = (view.consumers >= start) & (view.consumers < stop)
    part = GraphView(
        nodes=view.nodes[start:stop],
        consumers=view.consumers[within] - start,
        producers=view.producers[within] - start,
        configurable=view.configurable[first:last] - start,
        starts=np.zeros(1, np.int64),
    )
    matrices = [csr_array(matrix[start:stop][:, start:stop]) for matrix in inputs.plan.matrices]
    layers = len(inputs.plan.layers)
    plan = plan_layers(matrices, part.configurable, layers, pools_all=spec.pools_all_nodes)
    part_inputs = LayoutInputs(
        graph=inputs.graph,
        view=part,
        plan=plan,
        opcodes=inputs.opcodes[start:stop],
        node_features=inputs.node_features[start:stop],
        options=inputs.options[rows],
        option_node=inputs.option_node[rows] - first,
    )
    return PartInputs(part_inputs, slice(first, last), rows.start)


def _options(graph: LayoutGraph, scaling: LayoutScaling, spec: LayoutNetSpec) -> Tensor:
    features = graph.option_features
    if spec.options == "scaled":
        return torch.from_numpy(scaling.option(features))
    is_axis = (features >= -1) & (features < np.inf) & (features == np.rint(features))
    if not is_axis.all():
        row, column = np.argwhere(~is_axis)[0]
        problem = f"{features[row, column]:g} in row {row}, column {column}"
        expected = "axis numbers from -1 on, or `options: scaled`"
        raise DataError(problem, where=graph.name, field="option_features", expected=expected)
    codes = np.minimum(features, NUM_AXES - 2).astype(np.int64) + 1
    return torch.from_numpy(codes + NUM_AXES * np.arange(NUM_AXIS_SLOTS))
