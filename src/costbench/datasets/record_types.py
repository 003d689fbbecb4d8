"""The data dictionary: key, dtype, shape, unit and meaning of every column of a shard, by kind of shard.

A shard holds the samples of one program on one chip as columns. Kernels are references into the compiled
program (positions of instructions), and decisions are numbers in the kernel's decision space, so nothing is
stored that can be computed again; the inputs of models are computed from it once and stored in shards of
their own (`features`, `layout_graph`). Lists of different length per kernel are concatenated in one column,
delimited by an offsets column with one more entry than there are kernels; in the file, the two are one list
column (`arrow_tables`).

`record_types.csv` is the dictionary: a row is one column of the record types named first, each with the
version of its columns, in the order in which they are stored (see `records.Column`). Letters count k kernels,
and of all kernels together i inputs, n instructions or nodes, o outputs, e edges, b tile bounds and c
decisions. The rest by record type:

- `fusion`: d dropped kernels.
- `layout` is self-contained: b bytes of the program, n configurable nodes, o options of all nodes together.
- `features` are made from tile and fusion shards, with everything that training reads, so that it parses no
  program. Equal rows of node features (r) are stored once per program, with the first kernel that has such a
  node. `tile_graphs` are the same of imported kernels, whose features of decisions are given: the data set
  leaves out the tile sizes.
- `estimates`, beside a shard of features: those of a compiler that knows more or less than the chip's own.
- `node_extras`, likewise: further features of nodes, w of them, by a function of the user's.
- `layout_graph`, the inputs of layout models: a whole program with TpuGraphs' features, n nodes, m edges, nc
  configurable nodes, o options of all nodes, t runtimes (c, or 0 where they are withheld) and s starts of
  parts. A config is one number per configurable node, a row of the node's `option_features`, which hold every
  distinct vector of a node once: c configs of nc nodes take 2 nc c bytes and not 72 nc c. The width w is nc,
  but a file without configs cannot say so. `wide_layout_graph` numbers more than 32,768 options of a node,
  which no published file has.
"""

from __future__ import annotations

import csv
from importlib import resources

from costbench.datasets.records import Column, RecordType

FEATURES_VERSION = 2
"""Version of the features; raise it when the same samples would give others."""

DEFAULT, RANDOM, GENETIC = range(3)
"""Values of `config_source`: the default config's first run, the random search, the genetic search."""


def _load() -> dict[str, RecordType]:
    text = resources.files(__package__).joinpath("record_types.csv").read_text(encoding="utf-8")
    columns_of: dict[str, list[Column]] = {}
    for row in csv.DictReader(text.splitlines()):
        column = Column(
            key=row["key"],
            dtype=row["dtype"],
            shape=tuple(row["shape"].split()),
            unit=row["unit"],
            meaning=row["meaning"],
            minimum=int(row["minimum"]) if row["minimum"] else None,
            offsets_into=row["offsets_into"] or None,
        )
        for name in row["records"].split():
            columns_of.setdefault(name, []).append(column)
    records = {}
    for name_and_version, columns in columns_of.items():
        name, version = name_and_version.split("/")
        keys = [column.key for column in columns]
        per_decision = [
            key for ending in ("runtime_ns", "analytical_ns") for key in keys if key.endswith(ending)
        ]
        row_letter = "k" if any(column.shape[0] == "k" for column in columns) else ""
        runtime = per_decision[0] if per_decision else ""
        records[name] = RecordType(name, int(version), tuple(columns), runtime, row_letter)
    return records


RECORD_TYPES = _load()
TILE, FUSION, LAYOUT = RECORD_TYPES["tile"], RECORD_TYPES["fusion"], RECORD_TYPES["layout"]
FEATURES, TILE_GRAPHS = RECORD_TYPES["features"], RECORD_TYPES["tile_graphs"]
ESTIMATES, NODE_EXTRAS = RECORD_TYPES["estimates"], RECORD_TYPES["node_extras"]
LAYOUT_GRAPH, WIDE_LAYOUT_GRAPH = RECORD_TYPES["layout_graph"], RECORD_TYPES["wide_layout_graph"]
