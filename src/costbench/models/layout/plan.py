"""Which node states depend on the config, layer by layer, and the matrices between them.

Before any message only configurable nodes differ between configs; after l layers, nodes within l hops of one
do. All other states are the same for all configs and are computed once per graph (`fixed` rows). And a state
that no later layer and no pooling reads is not computed at all: if only configurable nodes are pooled, layer
l of L needs nodes within L - l hops of one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, hstack, vstack

from costbench.arrays import I64
from costbench.models.layout.sparse import SparseMatrix
from costbench.models.layout.view import reached


@dataclass(frozen=True, eq=False)
class Rows:
    """The nodes with a state at one layer.

    Attributes:
        varying: int64 [v], those whose state depends on the config.
        fixed: int64 [f], those whose state does not.
    """

    varying: I64
    fixed: I64


@dataclass(frozen=True, eq=False)
class LayerPlan:
    """From the states of one layer (v varying rows, f fixed) to those of the next (v', f').

    Attributes:
        num_matrices: K, matrices of the convolution.
        transform_first: whether states are multiplied by weights before they are aggregated, which is less
            work where v <= v'.
        varying: from varying to varying rows: [v', K v] if `transform_first`, else [K v', v].
        into_varying: from fixed to varying rows, [v', K f].
        fixed: from fixed to fixed rows, [f', K f].
        kept: int64, places in the v rows of those that stay, which are the first of the v' rows; None if all
            do, in the same order.
        grown: int64 [v' - kept], places in the f rows of the other v' rows.
        fixed_kept: int64 [f'], places in the f rows of the f' rows.
    """

    num_matrices: int
    transform_first: bool
    varying: SparseMatrix
    into_varying: SparseMatrix
    fixed: SparseMatrix
    kept: I64 | None
    grown: I64
    fixed_kept: I64


@dataclass(frozen=True, eq=False)
class Plan:
    """All layers of a network on one graph.

    Attributes:
        rows: rows of layer 0 to L; the configurable nodes are the first varying ones of each.
        layers: L steps between them.
        matrices: of the convolution, [n, n] each.
    """

    rows: tuple[Rows, ...]
    layers: tuple[LayerPlan, ...]
    matrices: tuple[csr_array, ...]

    @property
    def largest(self) -> int:
        """Largest number of varying rows of a layer."""
        return max(len(rows.varying) for rows in self.rows)


def plan_layers(
    matrices: Sequence[csr_array], configurable: I64, num_layers: int, *, pools_all: bool
) -> Plan:
    """Plan the layers of a network.

    Args:
        matrices: float32 [n, n] each, of the convolution (`view.aggregations`); one is needed for n even if
            `num_layers` is 0.
        configurable: int64 [nc], ascending.
        num_layers: L.
        pools_all: whether the states of all nodes are pooled, or of configurable nodes only.
    """
    rows = _rows(matrices, configurable, num_layers, pools_all=pools_all)
    layers = tuple(_layer(matrices, rows[k], rows[k + 1]) for k in range(num_layers))
    return Plan(rows, layers, tuple(matrices))


def _rows(
    matrices: Sequence[csr_array], configurable: I64, num_layers: int, *, pools_all: bool
) -> tuple[Rows, ...]:
    num_nodes = matrices[0].shape[0]
    # Entries are positive, so no sum of them vanishes.
    linked = csr_array(sum(matrices[1:], start=matrices[0]))
    touched = [np.isin(np.arange(num_nodes), configurable)]
    needed = [np.ones(num_nodes, dtype=bool) if pools_all else touched[0]]
    backwards = csr_array(linked.T)
    for _ in range(num_layers):
        touched.append(reached(linked, touched[-1]))
        needed.append(reached(backwards, needed[-1]))
    needed.reverse()
    rows = [Rows(configurable, np.flatnonzero(needed[0] & ~touched[0]))]
    for is_touched, is_needed in zip(touched[1:], needed[1:], strict=True):
        before = rows[-1].varying
        varies = is_touched & is_needed
        old = before[varies[before]]
        varies[old] = False
        varying = np.concatenate([old, np.flatnonzero(varies)])
        rows.append(Rows(varying, np.flatnonzero(is_needed & ~is_touched)))
    return tuple(rows)


def _layer(matrices: Sequence[csr_array], before: Rows, after: Rows) -> LayerPlan:
    num_nodes = matrices[0].shape[0]
    transform_first = len(before.varying) <= len(after.varying)
    to_varying = [csr_array(matrix[after.varying]) for matrix in matrices]
    to_fixed = [csr_array(matrix[after.fixed]) for matrix in matrices]
    blocks = [csr_array(matrix[:, before.varying]) for matrix in to_varying]
    of_varying = _places(before.varying, num_nodes)[after.varying]
    of_fixed = _places(before.fixed, num_nodes)
    kept = of_varying[of_varying >= 0]
    stays = len(kept) == len(before.varying) and np.array_equal(kept, np.arange(len(kept)))
    return LayerPlan(
        num_matrices=len(matrices),
        transform_first=transform_first,
        varying=SparseMatrix((hstack if transform_first else vstack)(blocks, format="csr")),
        into_varying=_side_by_side(to_varying, before.fixed),
        fixed=_side_by_side(to_fixed, before.fixed),
        kept=None if stays else kept,
        grown=of_fixed[after.varying[len(kept) :]],
        fixed_kept=of_fixed[after.fixed],
    )


def _side_by_side(matrices: Sequence[csr_array], columns: I64) -> SparseMatrix:
    return SparseMatrix(hstack([matrix[:, columns] for matrix in matrices], format="csr"))


def _places(rows: I64, num_nodes: int) -> I64:
    """Returns where each node stands in `rows`, int64 [n]; -1 where it does not."""
    places = np.full(num_nodes, -1, np.int64)
    places[rows] = np.arange(len(rows))
    return places
