"""Features of a layout config for fitted baselines: sums over nodes of what each node's option changes.

They need no network and no edges: how many nodes leave their default layout, how many bytes are concerned,
whose fastest axis changes, and how much padding to native tiles the results get.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from costbench.arrays import F32, F64, I64
from costbench.artifacts import digest_bytes
from costbench.datasets.layout_graphs import LayoutGraph
from costbench.features.schema import LAYOUT_FEATURES, NODE_FEATURES, column
from costbench.hlo.opcode import Opcode

Rows = npt.NDArray[np.integer] | slice

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
"""Of an option, each summed over the nodes of a kind."""
CONFIG_FEATURES = (
    *(f"{kind}_{name}" for kind in ("convolution", "dot", "reshape", "other") for name in OPTION_FEATURES),
    *("log_nodes", "log_configurable", "share_convolution", "share_dot", "share_reshape", "share_other"),
)
"""Of a config; the last six are the program's and the same for all of its configs."""


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
    found = np.empty((len(chosen), len(CONFIG_FEATURES)), np.float32)
    found[:, _NUM_KINDS * len(OPTION_FEATURES) :] = _program_features(graph, kinds)
    step = max(1, _CHUNK_VALUES // max(1, len(kinds)))
    for start in range(0, len(chosen), step):
        part = slice(start, start + step)
        options = graph.option_offsets[:-1] + graph.config_options[chosen[part]].astype(np.int64)
        for place in range(len(OPTION_FEATURES)):
            of_nodes = values[place][options]
            for kind in range(_NUM_KINDS):
                # In order of nodes, so that the last bit does not depend on the chunk.
                column_of = kind * len(OPTION_FEATURES) + place
                found[part, column_of] = of_nodes[:, kinds == kind].sum(axis=1)
    return found


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
    found: I64 = (options != default_options(graph)).sum(axis=1)
    return found


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
    for place, _ in enumerate(_TENSORS):
        fastest = graph.option_features[:, place * _BLOCK]
        # Absent (-1) keeps the default, whatever it is.
        differs = (fastest != fastest[default]) & (fastest >= 0) & changed
        values[2 + place] = differs * share[node]
    padding = _padding(graph, node)
    values[5] = (padding - padding[default]) * share[node]
    return values, kinds


def _kinds(graph: LayoutGraph) -> I64:
    codes = graph.opcodes[graph.node_config_ids]
    kinds = np.full(len(codes), len(_KINDS), np.int64)
    for place, opcode in enumerate(_KINDS):
        kinds[codes == opcode.tpugraphs_code] = place
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
    own = graph.node_features[ids, layout : layout + 2].astype(np.int64)
    orders = np.where(orders >= 0, orders, own)
    extents = np.maximum(graph.node_features[ids, shape : shape + _BLOCK].astype(np.float64), 1.0)
    places = np.arange(len(ids))
    lanes, sublanes = (extents[places, orders[:, axis].clip(0, _BLOCK - 1)] for axis in (0, 1))
    padded = np.ceil(lanes / _LANES) * _LANES / lanes * np.ceil(sublanes / _SUBLANES) * _SUBLANES / sublanes
    found: F64 = np.log(padded)
    return found


def _program_features(graph: LayoutGraph, kinds: I64) -> F64:
    shares = np.bincount(kinds, minlength=_NUM_KINDS) / max(len(kinds), 1)
    return np.array([np.log1p(graph.num_nodes), np.log1p(len(kinds)), *shares])
