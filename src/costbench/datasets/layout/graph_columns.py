"""The data dictionary of layout graphs: the inputs of layout models, imported or simulated.

A graph is a whole program with TpuGraphs' node features, and its measured layout configs as one number per
configurable node. The features of a config are rows of `option_features`, which holds every distinct vector
of a node once: c configs of nc nodes take 2 nc c bytes and not 72 nc c.
"""

from __future__ import annotations

from costbench.datasets.records import Column, RecordType

# Letters: n nodes, m edges, nc configurable nodes, o options of all nodes together, c configs, t runtimes
# (c, or 0 where they are withheld), s starts of parts.
_BEFORE_OPTIONS = (
    Column("node_features", "<f4", ("n", "140"), "", "node features, unscaled (`node_features.csv`)"),
    Column("node_opcode", "<i4", ("n",), "", "opcode in TpuGraphs' numbers, 0 where it has none", 0),
    Column("edge_nodes", "<i4", ("m", "2"), "", "consumer and producer, as numbers of nodes", 0),
    Column("node_config_ids", "<i4", ("nc",), "", "numbers of the configurable nodes, ascending", 0),
    Column(
        key="option_offsets",
        dtype="<i8",
        shape=("nc+1",),
        unit="entries",
        meaning="where each configurable node's options begin and end",
        offsets_into="option_features",
    ),
    Column("option_features", "<f4", ("o", "18"), "", "features of each option (`layout_features.csv`)"),
)
_AFTER_OPTIONS = (
    Column("config_runtime_ns", "<i8", ("t",), "ns", "measured runtime of the program, if it is known", 1),
    Column("node_splits", "<i8", ("s",), "", "nodes at which the major parts of the program begin", 0),
)


def _record(name: str, dtype: str) -> RecordType:
    options = Column("config_options", dtype, ("c", "nc"), "", "option of each configurable node, from 0", 0)
    return RecordType(
        name=name,
        version=1,
        columns=(*_BEFORE_OPTIONS, options, *_AFTER_OPTIONS),
        runtime="config_runtime_ns",
        row="",
    )


LAYOUT_GRAPH = _record("layout_graph", "<i2")
"""Graphs whose nodes have at most 32,768 options each, as those of all published files have."""
WIDE_LAYOUT_GRAPH = _record("wide_layout_graph", "<i4")
"""The same for more options."""
