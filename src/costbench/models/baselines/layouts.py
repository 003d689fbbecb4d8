"""Boosted trees for the layout task, which read whole programs: sums over nodes of what each option changes.

These features need no network and no edges: how many nodes leave their default layout, how many bytes are
concerned, whose fastest axis changes, and how much padding to native tiles the results get.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from costbench import rng
from costbench.arrays import F32, F64, I64, AnyInt
from costbench.artifacts import digest_bytes
from costbench.datasets.layout_graphs import LayoutGraph, open_layout_graph
from costbench.datasets.storage import Shard
from costbench.errors import DataError
from costbench.features.schema import LAYOUT_FEATURES, NODE_FEATURES, column
from costbench.hlo.opcode import Opcode
from costbench.models.baselines.kernel_tables import KernelTable, draw
from costbench.models.baselines.spec import BaselineSpec, SampleSpec
from costbench.models.baselines.trees import Samples, Trees, rank

Rows = AnyInt | slice

_KINDS = (Opcode.CONVOLUTION, Opcode.DOT, Opcode.RESHAPE)
"""Kinds of configurable nodes that are counted apart; all others are one more."""
_NUM_KINDS = len(_KINDS) + 1
_BLOCK = 6
_TENSORS = ("output", "input", "kernel")
_ELEMENT_BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2}
_ELEMENT_BYTES |= {"s32": 4, "u32": 4, "f32": 4, "s64": 8, "u64": 8, "f64": 8, "c64": 8, "c128": 16}
# Axes are padded to the native tile of 8 x 128 elements (docs/hardware.md).
_LANES, _SUBLANES = 128, 8
_CHUNK_VALUES = 1 << 22

OPTION_FEATURES = ("changed", "bytes", *(f"fastest_{name}" for name in _TENSORS), "padding")
"""Features of an option, each summed over the nodes of a kind."""
CONFIG_FEATURES = (
    *(f"{kind}_{name}" for kind in ("convolution", "dot", "reshape", "other") for name in OPTION_FEATURES),
    *("log_nodes", "log_configurable", "share_convolution", "share_dot", "share_reshape", "share_other"),
)
"""Features of a config; the last six are the program's and the same for all of its configs."""


def layout_features_digest() -> str:
    """Returns a digest of the names: a model must read the features that it was fitted to."""
    return digest_bytes(",".join(CONFIG_FEATURES).encode())[:16]


def config_rows(graph: LayoutGraph, rows: Rows | None = None) -> F32:
    """Returns the features of some configs, float32 [len(rows), len(CONFIG_FEATURES)].

    Configs are read in chunks, so memory does not grow with their number but for the result.

    Args:
        graph: the program and its configs.
        rows: indices of configs; all for None.
    """
    chosen = np.arange(graph.num_configs)[slice(None) if rows is None else rows]
    values, kinds = _option_values(graph)
    features = np.empty((len(chosen), len(CONFIG_FEATURES)), np.float32)
    shares = np.bincount(kinds, minlength=_NUM_KINDS) / max(len(kinds), 1)
    of_program = np.array([np.log1p(graph.num_nodes), np.log1p(len(kinds)), *shares])
    features[:, _NUM_KINDS * len(OPTION_FEATURES) :] = of_program
    step = max(1, _CHUNK_VALUES // max(1, len(kinds)))
    for start in range(0, len(chosen), step):
        part = slice(start, start + step)
        options = graph.option_offsets[:-1] + graph.config_options[chosen[part]].astype(np.int64)
        for index in range(len(OPTION_FEATURES)):
            of_nodes = values[index][options]
            for kind in range(_NUM_KINDS):
                # In order of nodes, so that the last bit does not depend on the chunk.
                features[part, kind * len(OPTION_FEATURES) + index] = of_nodes[:, kinds == kind].sum(axis=1)
    return features


def default_options(graph: LayoutGraph) -> I64:
    """Returns the option of each configurable node that keeps the compiler's layouts, int64 [nc].

    It is the one whose features are all -1, and the first one where a node has none such.
    """
    absent = (graph.option_features == -1.0).all(axis=1)
    ends = zip(graph.option_offsets[:-1].tolist(), graph.option_offsets[1:].tolist(), strict=True)
    return np.array(
        [int(absent[first:last].argmax()) if last > first else 0 for first, last in ends], np.int64
    )


def changed_nodes(graph: LayoutGraph, rows: Rows | None = None) -> I64:
    """Returns how many nodes of each config are not at their default option, int64 [len(rows)]."""
    options = graph.config_options[slice(None) if rows is None else rows]
    changed: I64 = (options != default_options(graph)).sum(axis=1)
    return changed


def _option_values(graph: LayoutGraph) -> tuple[F64, I64]:
    """Returns the features of all options, [len(OPTION_FEATURES), o], and the kind of each node, [nc]."""
    counts = np.diff(graph.option_offsets)
    node = np.repeat(np.arange(len(counts)), counts)
    kinds = _kinds(graph)
    sizes = _bytes(graph)[graph.node_config_ids]
    share = sizes / max(float(sizes.sum()), 1.0)
    default = (graph.option_offsets[:-1] + default_options(graph))[node]
    changed = np.arange(len(node)) != default
    values = np.zeros((len(OPTION_FEATURES), len(node)))
    values[0] = changed / max(len(counts), 1)
    values[1] = changed * share[node]
    for index, _ in enumerate(_TENSORS):
        fastest = graph.option_features[:, index * _BLOCK]
        # Absent (-1) keeps the default, whatever it is.
        differs = (fastest != fastest[default]) & (fastest >= 0) & changed
        values[2 + index] = differs * share[node]
    padding = _padding(graph, node)
    values[5] = (padding - padding[default]) * share[node]
    return values, kinds


def _kinds(graph: LayoutGraph) -> I64:
    codes = graph.opcodes[graph.node_config_ids]
    kinds = np.full(len(codes), len(_KINDS), np.int64)
    for kind, opcode in enumerate(_KINDS):
        kinds[codes == opcode.tpugraphs_code] = kind
    return kinds


def _bytes(graph: LayoutGraph) -> F64:
    """Returns the bytes of each node's result, unpadded, float64 [n]."""
    width = np.zeros(graph.num_nodes)
    for name, size in _ELEMENT_BYTES.items():
        width += size * graph.node_features[:, column(NODE_FEATURES, f"shape_element_type_is_{name}")]
    sizes: F64 = width * graph.node_features[:, column(NODE_FEATURES, "shape_dimensions_product")]
    return sizes


def _padding(graph: LayoutGraph, node: I64) -> F64:
    """Returns log(padded / unpadded size) of the result of each option's node, float64 [o].

    An option without an order for the result has that of the node's own features.
    """
    first = column(LAYOUT_FEATURES, "output_layout_0")
    orders = graph.option_features[:, first : first + 2].astype(np.int64)
    ids = graph.node_config_ids[node]
    layout, shape = (
        column(NODE_FEATURES, name) for name in ("layout_minor_to_major_0", "shape_dimensions_0")
    )
    defaults = graph.node_features[ids, layout : layout + 2].astype(np.int64)
    orders = np.where(orders >= 0, orders, defaults)
    extents = np.maximum(graph.node_features[ids, shape : shape + _BLOCK].astype(np.float64), 1.0)
    rows = np.arange(len(ids))
    lanes, sublanes = (extents[rows, orders[:, axis].clip(0, _BLOCK - 1)] for axis in (0, 1))
    padded = np.ceil(lanes / _LANES) * _LANES / lanes * np.ceil(sublanes / _SUBLANES) * _SUBLANES / sublanes
    log_padding: F64 = np.log(padded)
    return log_padding


@dataclass(frozen=True)
class LayoutTrees(Trees):
    """Boosted trees whose sum orders the configs of a program, fitted by LambdaRank, a group for each.

    They read `CONFIG_FEATURES` of each config. A config's relevance is its rank among those of the program:
    31 for the fastest, 0 for the slowest.
    """

    num_features: ClassVar[int] = len(CONFIG_FEATURES)

    @classmethod
    def fit(cls, train: KernelTable, validation: KernelTable, spec: BaselineSpec, seed: int) -> Self:
        """Returns the trees with the highest mean of Kendall's tau over validation programs.

        Raises:
            DataError: if no validation program has two configs of different runtimes.
        """
        fitted, held_out = (
            Samples(table, table.features, np.zeros(len(table)), table.counts)
            for table in (train, validation)
        )
        return cls(rank(fitted, held_out, spec, seed))

    def predict(self, table: KernelTable) -> F64:
        """Returns the cost of each row of a table of configs, float64 [D]; lower is faster."""
        return -self.outputs(table)


def program_table(graph: LayoutGraph, rows: I64 | None = None, application: int = 0) -> KernelTable:
    """Returns the table of some configs of a program (all for None), which stands where others have a kernel.

    Args:
        graph: the program and its configs, whose runtimes are known.
        rows: indices of configs.
        application: number of the program's application.
    """
    chosen = np.arange(graph.num_configs) if rows is None else rows
    return KernelTable(
        features=config_rows(graph, chosen),
        static=np.zeros((len(chosen), 0)),
        analytical_ns=np.ones(len(chosen)),
        runtime_ns=graph.runtime_ns[chosen].astype(np.float64),
        counts=np.array([len(chosen)], np.int64),
        applications=np.array([application], np.int64),
    )


def sample_layouts(
    paths: Sequence[Path], spec: SampleSpec, seed: int, *, min_configs: int = 2, estimate: str = ""
) -> KernelTable:
    """Returns configs of programs, drawn evenly from all applications.

    Args:
        paths: layout graphs with runtimes.
        spec: largest numbers of programs of an application (`kernels`) and of configs of a program.
        seed: seed of the draws; what is drawn from an application does not depend on other applications.
        min_configs: number of different runtimes below which programs are left out.
        estimate: quality of the estimates, empty: there are none of layouts.

    Returns:
        Programs by application, then by path.

    Raises:
        DataError: for damaged graphs, if no program is left, or for a quality of estimates.
    """
    if estimate:
        raise DataError("no estimates of layouts", field="estimates", expected="none for the task layout")
    by_application: dict[str, list[Path]] = {}
    for path in paths:
        by_application.setdefault(str(Shard.open(path).metadata["application"]), []).append(path)
    parts: list[KernelTable] = []
    for number, application in enumerate(sorted(by_application)):
        programs = sorted(by_application[application])
        order = rng.stream(seed, "baseline programs", application).permutation(len(programs))
        for path in (programs[index] for index in np.sort(order[: spec.kernels]).tolist()):
            graph = open_layout_graph(path)
            if len(np.unique(graph.runtime_ns)) >= min_configs:
                generator = rng.stream(seed, "baseline configs", graph.collection, graph.name)
                rows = draw(generator, graph.num_configs, spec.configs)
                parts.append(program_table(graph, rows, number))
    if not parts:
        raise DataError("no layouts to fit a baseline to", expected="a program with two or more runtimes")
    return KernelTable.join(parts)
