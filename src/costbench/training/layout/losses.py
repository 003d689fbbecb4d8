"""Losses over the configs of each graph in a step; the pairwise ones are those of `training.losses`."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from costbench.training.layout.spec import LAYOUT_PREDICTS, LayoutTrainSpec
from costbench.training.losses import Loss, listmle, log_mse, pairwise_logistic, pairwise_loss


def layout_loss(spec: LayoutTrainSpec) -> Loss:
    """Returns the loss that a training minimises: (scores, runtime_ns, mask), each [K, C], to a scalar."""
    functions = {
        "hinge": lambda costs, runtime_ns, mask: margin_hinge(
            costs, runtime_ns, mask, spec.margin, grows=spec.margin_grows
        ),
        "listmle": listmle_per_config,
        "logistic": pairwise_logistic,
        "mse": log_mse,
    }
    return Loss(functions[spec.loss], LAYOUT_PREDICTS[spec.loss])


def margin_hinge(
    costs: Tensor, runtime_ns: Tensor, mask: Tensor, margin: float = 1.0, *, grows: bool = False
) -> Tensor:
    """Mean over graphs of sum_i sum_j max(0, m_ij - (y'_i - y'_j)) pos(y_i - y_j) / (n (n - 1) / 2).

    y' are scores, y runtimes; m_ij is `margin`, or with `grows` `margin` times (log y_i - log y_j) / s, s the
    standard deviation of log y among the graph's configs. See `training.losses.pairwise_loss`, which is the
    case of `margin` 1.

    Shape: costs, runtime_ns and mask [K, C].
    """
    if not grows:
        return pairwise_loss(costs, runtime_ns, mask, lambda apart: functional.relu(margin - apart))
    logs = runtime_ns.log()
    spread = torch.stack([row[real].std(correction=0) for row, real in zip(logs, mask, strict=True)])
    scaled = (margin * logs / spread.clamp(min=1e-9)[:, None]).to(costs.dtype)
    wanted = scaled.unsqueeze(2) - scaled.unsqueeze(1)
    return pairwise_loss(costs, runtime_ns, mask, lambda apart: functional.relu(wanted - apart))


def listmle_per_config(costs: Tensor, runtime_ns: Tensor, mask: Tensor) -> Tensor:
    """Mean over graphs of `training.losses.listmle` over the graph's number of configs.

    Graphs with fewer than two configs are left out; where all are, the loss is 0.

    Shape: costs, runtime_ns and mask [K, C].
    """
    counts = mask.sum(dim=1)
    losses = [
        listmle(costs[None, row], runtime_ns[None, row], mask[None, row]) / counts[row]
        for row in torch.nonzero(counts > 1).squeeze(1).tolist()
    ]
    return torch.stack(losses).mean() if losses else costs.new_zeros(())
