"""The Lightning module of layout networks: a step scores configs of a few graphs, validation ranks them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from costbench.metrics.measures import mean_without_nan
from costbench.metrics.ranking import PairCounts, count_pairs, tau_of
from costbench.models.layout.model import config_scores
from costbench.models.layout.network import LayoutNetwork
from costbench.models.layout.segments import segment_of, segment_scores
from costbench.rng import stream_key
from costbench.training.layout.historical import HistoricalParts
from costbench.training.layout.losses import layout_loss
from costbench.training.layout.source import LayoutBatch
from costbench.training.layout.spec import LayoutTrainSpec
from costbench.training.lightning_module import TRAINING_LOSS, CostModelModule
from costbench.training.validation import VALIDATION_OPA, VALIDATION_TAU


class LayoutModule(CostModelModule):
    """Trains a `LayoutNetwork`; validation metrics are OPA and Kendall's tau-b.

    `validation/opa` is pooled over the ordered pairs of all graphs, as TpuGraphs' checkpoints are chosen;
    `validation/tau` is the mean over graphs.

    Args:
        net: the network.
        spec: of the training.
        rate: learning rate by step.
    """

    def __init__(self, net: LayoutNetwork, spec: LayoutTrainSpec, rate: Callable[[int], float]) -> None:
        super().__init__(net, layout_loss(spec), spec.optimizer, rate, spec.seed)
        self._spec = spec
        self._pairs: list[PairCounts] = []
        historical = spec.segments.historical
        self._historical = HistoricalParts(spec.segments.dropout) if historical else None

    def transfer_batch_to_device(self, batch: Any, _device: torch.device, _index: int) -> Any:
        """Returns the batch as it is: layout networks run on the CPU."""
        return batch

    def on_train_epoch_start(self) -> None:
        """Forget historical parts, so that an epoch depends on the weights before it and its number only."""
        if self._historical is not None:
            self._historical.clear()

    def training_step(self, batch: tuple[LayoutBatch, ...], _index: int) -> Tensor:  # type: ignore[override]
        """The loss of one step, the mean over its graphs."""
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = self._rate(self.global_step)
        losses = []
        for one in batch:
            scores = self.training_scores(one)[None]
            real = torch.ones_like(scores, dtype=torch.bool)
            losses.append(self._loss.function(scores, one.runtime_ns[None], real))
        loss = torch.stack(losses).mean()
        self._losses.append(loss.detach())
        return loss

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
        return segment_scores(net, batch.inputs, batch.options, segment_of(batch.inputs, inside))

    def on_validation_epoch_start(self) -> None:
        """Check that the epoch's losses are finite, and clear the scores of the last epoch."""
        super().on_validation_epoch_start()
        self._pairs.clear()

    def validation_step(self, batch: tuple[LayoutBatch, ...], _index: int) -> None:  # type: ignore[override]
        """Score the configs of every graph."""
        net = cast(LayoutNetwork, self.kept)
        for one in batch:
            scores = config_scores(net.eval(), one.inputs, one.rows, self._seed)
            self._pairs.append(count_pairs(scores, one.runtime_ns.numpy()))

    def on_validation_epoch_end(self) -> None:
        """Log the metrics of the epoch; runs after its training steps."""
        ordered = sum(pairs.total - pairs.tied_measured for pairs in self._pairs)
        tau = mean_without_nan([tau_of(pairs) for pairs in self._pairs])
        values = {
            VALIDATION_OPA: sum(pairs.concordant for pairs in self._pairs) / max(1, ordered),
            VALIDATION_TAU: 0.0 if math.isnan(tau) else tau,
        }
        if self._losses:
            values[TRAINING_LOSS] = float(torch.stack(self._losses).mean())
            self._losses.clear()
        self.log_dict(values, batch_size=1)
