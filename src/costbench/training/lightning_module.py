"""The Lightning module: training and validation steps of any network from batches to costs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from costbench.errors import DivergedError
from costbench.models.graph_batch import GraphBatch
from costbench.rng import stream_key
from costbench.training.losses import Loss
from costbench.training.matrix_optimizer import MatrixOptimizer
from costbench.training.muon import Muon
from costbench.training.soap import Soap
from costbench.training.spec import AnyTrainSpec
from costbench.training.validation import ValidationScores

MATRIX_OPTIMIZERS: Mapping[str, type[MatrixOptimizer]] = {"muon": Muon, "soap": Soap}
"""Optimisers of weight matrices, by `optimizer.method`."""

TRAINING_LOSS = "training/loss"


class CostModelModule(pl.LightningModule):
    """Trains a network that maps a `GraphBatch` to costs [K, C]; other batches override two methods.

    Validation metrics are those of `validation.ValidationScores`.

    Args:
        net: the network.
        loss: what to minimise.
        spec: optimiser, length of the training, and the seed of dropout; a step's draws depend on it and the
            step only.
    """

    def __init__(self, net: nn.Module, loss: Loss, spec: AnyTrainSpec) -> None:
        super().__init__()
        self.net = net
        self.average = copy.deepcopy(net).requires_grad_(False) if spec.optimizer.averaging else None
        self._loss = loss
        self._optimizer = spec.optimizer
        self._length = spec.steps_per_epoch, spec.epochs
        self._seed = spec.seed
        self._losses: list[Tensor] = []
        self._scores = ValidationScores(loss.predicts)

    @property
    def validated_net(self) -> nn.Module:
        """The network that is validated and saved: the average of weights, if there is one."""
        return self.net if self.average is None else self.average

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Returns the optimiser of all parameters, with decoupled weight decay."""
        spec = self._optimizer
        if spec.method != "adam":
            return MATRIX_OPTIMIZERS[spec.method](
                self.net, lr=spec.learning_rate, weight_decay=spec.weight_decay
            )
        return torch.optim.AdamW(
            self.net.parameters(), lr=spec.learning_rate, weight_decay=spec.weight_decay, fused=True
        )

    def configure_gradient_clipping(self, *_args: object, **_kwargs: object) -> None:
        """Clips the norm of the gradient, which Lightning refuses where Adam is fused and precision mixed."""
        if self._optimizer.gradient_clip_norm is not None:
            nn.utils.clip_grad_norm_(self.net.parameters(), self._optimizer.gradient_clip_norm)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, _index: int) -> Any:
        """Returns a batch, which is built on the CPU, on `device`."""
        return batch if device.type == "cpu" else batch.to(device)

    def training_step(self, batch: Any, _index: int) -> Tensor:
        """Returns the loss of one batch."""
        self.set_learning_rate()
        # One dropout stream per step, so that a run resumed after a kill draws what it would have drawn.
        _seed_draws(stream_key(self._seed, "dropout", self.global_step) % 2**63)
        loss = self.batch_loss(batch)
        self._losses.append(loss.detach())
        return loss

    def batch_loss(self, batch: GraphBatch) -> Tensor:
        """Returns the loss of the network's costs for one batch."""
        return self._loss.function(self.net(batch).float(), batch.runtime_ns, batch.mask)

    def set_learning_rate(self) -> None:
        """Gives the optimiser the learning rate of this step."""
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = self._optimizer.rate(self.global_step, *self._length)

    def on_train_batch_end(self, _outputs: object, _batch: object, _index: int) -> None:
        """Updates the average by the step's weights."""
        self.update_average(self.global_step - 1)

    def update_average(self, step: int) -> None:
        """Moves the average, if there is one, towards the weights after `step`, which counts from 0."""
        if self.average is not None:
            share = 1.0 - self._optimizer.kept_of_average(step)
            with torch.no_grad():
                for mean, weight in zip(self.average.parameters(), self.net.parameters(), strict=True):
                    mean.lerp_(weight, share)
                # Such as the running statistics of a user's batch normalisation, which are averages already.
                for kept, current in zip(self.average.buffers(), self.net.buffers(), strict=True):
                    kept.copy_(current)

    def on_validation_epoch_start(self) -> None:
        """Checks that the epoch's losses are finite, and clears the validation scores of the last epoch.

        Raises:
            DivergedError: if the loss is no longer finite.
        """
        if not all(bool(torch.isfinite(loss)) for loss in self._losses):
            raise DivergedError(
                f"the loss is no longer finite in epoch {self.current_epoch}",
                field="training",
                expected="a lower learning_rate or a gradient_clip_norm",
            )
        self._scores = ValidationScores(self._loss.predicts)

    def validation_step(self, batch: GraphBatch, _index: int) -> None:
        """Scores every kernel."""
        costs = self.validated_net(batch).double().cpu().numpy()
        runtime_ns, mask = batch.runtime_ns.cpu().numpy(), batch.mask.cpu().numpy()
        for cost, runtime, real in zip(costs, runtime_ns, mask, strict=True):
            self._scores.add(cost[real], runtime[real])

    def on_validation_epoch_end(self) -> None:
        """Logs the metrics of the epoch; runs after its training steps."""
        values = self.validation_metrics()
        if self._losses:
            values[TRAINING_LOSS] = float(torch.stack(self._losses).mean())
            self._losses.clear()
        self.log_dict(values, batch_size=1)

    def validation_metrics(self) -> dict[str, float]:
        """Returns the metrics of the epoch's validation, by name."""
        return self._scores.metrics()


def _seed_draws(seed: int) -> None:
    """Seeds the devices in use. `torch.manual_seed` also records its caller, which takes a millisecond."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)
