"""Historical embeddings of the parts of a graph: pooled states as they were when a config was last drawn.

A step computes one part of a graph with gradients; other parts enter the pooling as they were computed in an
earlier step, with older weights, or are computed now if there is nothing yet. Each of those may be left out
at random ("stale embedding dropout"), the trained part then counting p + (1 - p) J times, p the share that is
kept and J the number of parts, which makes the pooled sum right in expectation. Source: Cao et al., "Learning
large graph property prediction via graph segment training" (NeurIPS 2023), sections 3.3 and 3.4.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import torch
from torch import Tensor

from costbench.arrays import F32
from costbench.models.layout.inputs import LayoutInputs, PartInputs, parts_of
from costbench.models.layout.network import LayoutNetwork
from costbench.rng import stream
from costbench.training.layout.source import LayoutBatch

KEPT_CONFIGS = 8192
"""Configs whose parts are kept, of all graphs together; the ones drawn longest ago are forgotten."""


class HistoricalParts:
    """Scores configs from one part with gradients and others from memory.

    Args:
        dropout: share of the others that is left out of a step.
    """

    def __init__(self, dropout: float) -> None:
        self._dropout = dropout
        self._parts: dict[int, tuple[LayoutInputs, list[PartInputs]]] = {}
        self._known: OrderedDict[tuple[int, int], F32] = OrderedDict()

    def clear(self) -> None:
        """Forgets all pooled states."""
        self._known.clear()

    def __len__(self) -> int:
        return len(self._known)

    def scores(self, net: LayoutNetwork, batch: LayoutBatch, key: int) -> Tensor:
        """Returns the scores [c] of a batch; gradients go through the part that `batch.segment` names.

        Args:
            net: the network; its pooling has to consist of means.
            batch: configs of one graph.
            key: seed of the parts that are left out.
        """
        parts = self._parts_of(net, batch)
        trained = int(batch.segment * len(parts))
        known = self._recalled(batch, len(parts), net.spec.hidden * len(net.spec.pooling))
        for place, part in enumerate(parts):
            missing = torch.from_numpy(np.flatnonzero(np.isnan(known[:, place, 0].numpy())))
            if place != trained and len(missing):
                with torch.no_grad():
                    known[missing, place] = pooled_part(net, batch.inputs, batch.options[missing], part)
        own = pooled_part(net, batch.inputs, batch.options, parts[trained])
        self._remember(batch, trained, own.detach().numpy(), known.numpy())
        kept = stream(0, "dropped parts", key).random(len(parts)) >= self._dropout
        kept[trained] = False
        share = 1.0 - self._dropout
        weight = share + (1.0 - share) * len(parts)
        return net.score(weight * own + known[:, torch.from_numpy(np.flatnonzero(kept))].sum(dim=1))

    def _parts_of(self, net: LayoutNetwork, batch: LayoutBatch) -> list[PartInputs]:
        kept = self._parts.get(batch.graph)
        if kept is None or kept[0] is not batch.inputs:
            kept = self._parts[batch.graph] = (batch.inputs, parts_of(batch.inputs, net.spec))
        return kept[1]

    def _recalled(self, batch: LayoutBatch, num_parts: int, width: int) -> Tensor:
        """Returns pooled states [c, parts, width], NaN where there are none yet."""
        empty = np.full((num_parts, width), np.nan, np.float32)
        found = [self._known.get((batch.graph, row), empty) for row in batch.rows.tolist()]
        return torch.from_numpy(np.stack(found))

    def _remember(
        self,
        batch: LayoutBatch,
        trained: int,
        own: F32,
        others: F32,
    ) -> None:
        for place, row in enumerate(batch.rows.tolist()):
            kept = others[place].copy()
            kept[trained] = own[place]
            self._known[batch.graph, row] = kept
            self._known.move_to_end((batch.graph, row))
        while len(self._known) > KEPT_CONFIGS:
            self._known.popitem(last=False)


def pooled_part(net: LayoutNetwork, whole: LayoutInputs, options: Tensor, part: PartInputs) -> Tensor:
    """Returns what one part adds to the pooled means of the graph, [c, columns]; options int64 [c, nc]."""
    own = part.options(options)
    fixed = net.fixed_part(part.inputs)
    varying = net.varying_states(part.inputs, fixed, own)
    columns = []
    for name in net.spec.pooling:
        if name == "mean":
            columns.append((varying.sum(dim=0) + fixed.last.sum(dim=0)) / whole.view.num_nodes)
        else:
            configured = varying[: own.shape[1]].sum(dim=0)
            columns.append(configured / max(1, len(whole.view.configurable)))
    return torch.cat(columns, dim=1)
