"""Features of a kernel and a decision as one row of a table, for models that read no graph.

A row summarises what a network reads of the same sample: how many nodes have which opcode; maximum, mean
and sum of every node feature; the numbers of nodes and edges; static performance features; features of the
decision. Features of wide ranges pass through sign(x) log(1 + |x|), as for networks. Estimates of the
analytical model are not among them.
"""

from __future__ import annotations

import numpy as np

from costbench.arrays import F32, I64, AnyArray
from costbench.artifacts import digest_bytes
from costbench.features import schema
from costbench.features.packed_kernels import PackedKernels
from costbench.hlo.opcode import NUM_OPCODE_CODES

_NODE = schema.names(schema.NODE_FEATURES)
FEATURE_NAMES: tuple[str, ...] = (
    *schema.names(schema.STATIC_FEATURES),
    "nodes",
    "edges",
    *(f"opcode_{code}" for code in range(NUM_OPCODE_CODES)),
    *(f"max_{name}" for name in _NODE),
    *(f"mean_{name}" for name in _NODE),
    *(f"sum_{name}" for name in _NODE),
    *schema.names(schema.DECISION_FEATURES),
)
"""Names of the columns, in order."""
NUM_FEATURES = len(FEATURE_NAMES)


def features_digest() -> str:
    """Return a digest of the names: a model must read the features that it was fitted to."""
    return digest_bytes(",".join(FEATURE_NAMES).encode())[:16]


def kernel_rows(kernels: PackedKernels) -> F32:
    """Return one row for each decision of unscaled kernels, float32 [D, `NUM_FEATURES`], in their order."""
    counts = kernels.node_counts
    starts = np.cumsum(counts) - counts
    nodes = _signed_log1p(kernels.node_features)
    per_kernel = np.concatenate(
        [
            _signed_log1p(kernels.static_features),
            _signed_log1p(np.stack([counts, _edge_counts(kernels)], axis=1)),
            _opcode_counts(kernels),
            np.maximum.reduceat(nodes, starts, axis=0),
            np.add.reduceat(nodes, starts, axis=0) / counts[:, None].astype(np.float32),
            _signed_log1p(np.add.reduceat(kernels.node_features, starts, axis=0)),
        ],
        axis=1,
    )
    decisions = _signed_log1p(kernels.config_features)
    return np.concatenate([np.repeat(per_kernel, kernels.config_counts, axis=0), decisions], axis=1)


def _edge_counts(kernels: PackedKernels) -> I64:
    ends = np.cumsum(kernels.node_counts)
    kernel = np.searchsorted(ends, kernels.edges[0], side="right")
    return np.bincount(kernel, minlength=kernels.num_kernels)


def _opcode_counts(kernels: PackedKernels) -> F32:
    kernel = np.repeat(np.arange(kernels.num_kernels), kernels.node_counts)
    places = kernel * NUM_OPCODE_CODES + kernels.opcodes
    found = np.bincount(places, minlength=kernels.num_kernels * NUM_OPCODE_CODES)
    return found.reshape(-1, NUM_OPCODE_CODES).astype(np.float32)


def _signed_log1p(values: AnyArray) -> F32:
    wide = values.astype(np.float32)
    return np.copysign(np.log1p(np.abs(wide)), wide)
