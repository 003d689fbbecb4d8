"""The Lightning module of layout networks: a step scores configs of a few graphs, validation ranks them.

With historical embeddings a step computes one part of a graph with gradients; other parts enter the pooling
as they were computed in an earlier step, with older weights, or are computed now if there is nothing yet.
Each of those may be left out at random ("stale embedding dropout"), the trained part then counting
p + (1 - p) J times, p the share that is kept and J the number of parts, which makes the pooled sum right in
expectation. Source: Cao et al., "Learning large graph property prediction via graph segment training"
(NeurIPS 2023), sections 3.3 and 3.4.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import cast

import numpy as np
import torch
from torch import Tensor

from costbench.arrays import F32
from costbench.models.layout.inputs import LayoutInputs, PartInputs, split_into_parts
from costbench.models.layout.model import config_scores
from costbench.models.layout.network import LayoutNetwork
from costbench.models.layout.segments import build_segment, segment_scores
from costbench.rng import stream, stream_key
from costbench.training.layout.source import LayoutBatch, forget_oldest
from costbench.training.lightning_module import CostModelModule
from costbench.training.losses import layout_loss
from costbench.training.spec import LayoutTrainSpec
from costbench.training.validation import VALIDATION_OPA, VALIDATION_TAU

KEPT_CONFIGS = 8192
"""Configs whose parts are kept, of all graphs together; the ones drawn longest ago are forgotten."""


class HistoricalParts:
    """Scores configs from one part with gradients and others from memory.

    Args:
        dropout: share of the others that is left out of a step.
    """

    def __init__(self, dropout: float) -> None:
        self._dropout = dropout
        self._parts: OrderedDict[int, tuple[LayoutInputs, list[PartInputs]]] = OrderedDict()
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
        pooled_parts = self._recalled(batch, len(parts), net.spec.hidden * len(net.spec.pooling))
        for number, part in enumerate(parts):
            new_configs = torch.nonzero(torch.isnan(pooled_parts[:, number, 0])).squeeze(1)
            if number != trained and len(new_configs):
                with torch.no_grad():
                    pooled_parts[new_configs, number] = pooled_part(
                        net, batch.inputs, batch.options[new_configs], part
                    )
        pooled_trained = pooled_part(net, batch.inputs, batch.options, parts[trained])
        self._remember(batch, trained, pooled_trained.detach().cpu().numpy(), pooled_parts.cpu().numpy())
        is_pooled = stream(0, "dropped parts", key).random(len(parts)) >= self._dropout
        is_pooled[trained] = False
        share = 1.0 - self._dropout
        weight = share + (1.0 - share) * len(parts)
        return net.score(
            weight * pooled_trained + pooled_parts[:, torch.from_numpy(np.flatnonzero(is_pooled))].sum(dim=1)
        )

    def _parts_of(self, net: LayoutNetwork, batch: LayoutBatch) -> list[PartInputs]:
        cached = self._parts.get(batch.graph)
        if cached is None or cached[0] is not batch.inputs:
            cached = self._parts[batch.graph] = (batch.inputs, split_into_parts(batch.inputs, net.spec))
        self._parts.move_to_end(batch.graph)
        forget_oldest(self._parts, (inputs for inputs, _ in self._parts.values()))
        return cached[1]

    def _recalled(self, batch: LayoutBatch, num_parts: int, width: int) -> Tensor:
        """Returns pooled states [c, parts, width], NaN where there are none yet."""
        empty = np.full((num_parts, width), np.nan, np.float32)
        states = [self._known.get((batch.graph, row), empty) for row in batch.rows.tolist()]
        return torch.from_numpy(np.stack(states)).to(batch.options.device)

    def _remember(
        self,
        batch: LayoutBatch,
        trained: int,
        trained_states: F32,
        pooled_parts: F32,
    ) -> None:
        for config, row in enumerate(batch.rows.tolist()):
            states = pooled_parts[config].copy()
            states[trained] = trained_states[config]
            self._known[batch.graph, row] = states
            self._known.move_to_end((batch.graph, row))
        while len(self._known) > KEPT_CONFIGS:
            self._known.popitem(last=False)


def pooled_part(net: LayoutNetwork, whole: LayoutInputs, options: Tensor, part: PartInputs) -> Tensor:
    """Returns what one part adds to the pooled means of the graph, [c, columns]; options int64 [c, nc]."""
    part_options = part.options(options)
    fixed = net.fixed_part(part.inputs)
    varying = net.varying_states(part.inputs, fixed, part_options)
    columns = []
    for name in net.spec.pooling:
        if name == "mean":
            columns.append((varying.sum(dim=0) + fixed.last.sum(dim=0)) / whole.view.num_nodes)
        else:
            configured = varying[: part_options.shape[1]].sum(dim=0)
            columns.append(configured / max(1, len(whole.view.configurable)))
    return torch.cat(columns, dim=1)


class LayoutModule(CostModelModule):
    """Trains a `LayoutNetwork`; validation metrics are OPA and Kendall's tau-b.

    `validation/opa` is pooled over the ordered pairs of all graphs, as TpuGraphs' checkpoints are chosen;
    `validation/tau` is the mean over graphs.

    Args:
        net: the network.
        spec: settings of the training.
    """

    def __init__(self, net: LayoutNetwork, spec: LayoutTrainSpec) -> None:
        super().__init__(net, layout_loss(spec), spec)
        self._spec = spec
        historical = spec.segments.historical
        self._historical = HistoricalParts(spec.segments.dropout) if historical else None

    def transfer_batch_to_device(
        self, batch: tuple[LayoutBatch, ...], _device: torch.device, _index: int
    ) -> tuple[LayoutBatch, ...]:
        """Returns a batch as it is: the source has its graphs on the device for longer than a step."""
        return batch

    def on_train_epoch_start(self) -> None:
        """Forgets historical parts, so that an epoch depends on the weights before it and its number only."""
        if self._historical is not None:
            self._historical.clear()

    def batch_loss(self, batch: tuple[LayoutBatch, ...]) -> Tensor:  # type: ignore[override]
        """Returns the loss of one step, the mean over its graphs."""
        losses = []
        for configs in batch:
            scores = self.training_scores(configs)[None]
            mask = torch.ones_like(scores, dtype=torch.bool)
            losses.append(self._loss.function(scores, configs.runtime_ns[None], mask))
        return torch.stack(losses).mean()

    def training_scores(self, batch: LayoutBatch) -> Tensor:
        """Returns the scores [c] of a batch, with gradients through all of the graph or through a segment."""
        net, segments = cast(LayoutNetwork, self.net), self._spec.segments
        if self._historical is not None:
            key = stream_key(self._seed, "historical parts", self.global_step)
            return self._historical.scores(net, batch, key)
        num_nodes = batch.inputs.view.num_nodes
        if not segments.nodes or num_nodes <= segments.nodes:
            scores: Tensor = net(batch.inputs, batch.options)
            return scores
        first = int(batch.segment * (num_nodes - segments.nodes + 1))
        nodes = torch.arange(num_nodes).numpy()
        inside = (nodes >= first) & (nodes < first + segments.nodes)
        return segment_scores(net, batch.inputs, batch.options, build_segment(batch.inputs, inside))

    def validation_step(self, batch: tuple[LayoutBatch, ...], _index: int) -> None:  # type: ignore[override]
        """Scores the configs of every graph."""
        net = cast(LayoutNetwork, self.validated_net)
        for configs in batch:
            scores = config_scores(net.eval(), configs.inputs, configs.rows, self._seed)
            self._scores.add(scores, configs.runtime_ns.cpu().numpy())

    def validation_metrics(self) -> dict[str, float]:
        """Returns OPA and tau."""
        metrics = self._scores.metrics()
        return {name: metrics[name] for name in (VALIDATION_OPA, VALIDATION_TAU)}
