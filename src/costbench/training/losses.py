"""Losses over the decisions of each kernel, or the configs of each graph, in a batch.

- `hinge`, `logistic`: pairwise rank losses (lpm2021, equation 1), for choosing among decisions.
- `listnet`: a listwise rank loss (Cao et al. 2007), which looks at the fastest decisions alone.
- `listmle`: a listwise rank loss that looks at the whole order (Xia et al. 2008), as in tpugraphs2023.
- `hinge-listnet`, `logistic-listnet`: the sum of one of each, for the whole order and for the choice.
- `mse`: squared error of log runtime (lpm2021, section 3.3), for absolute runtimes.
- `huber`: absolute error of log runtime, smooth near 0; close to what MAPE measures.
- `kernel-mse`: the same, every kernel weighted alike (lpm2020, section 4.2).
- `module:function`: a user's own; see `user_loss`.

Pairs are formed within a kernel only: runtimes of different kernels are never compared. A loss maps costs
[K, C], runtimes [K, C] and the mask of real decisions [K, C] to a scalar. Layout networks are trained with
the same losses over the configs of a graph (`layout_loss`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import cast, get_args

import torch
from torch import Tensor
from torch.nn import functional

from costbench.errors import choose
from costbench.execution.dotted import is_part, load_part
from costbench.models.spec import Predicts
from costbench.training.spec import LAYOUT_PREDICTS, PREDICTS, LayoutTrainSpec


def pairwise_hinge(
    costs: Tensor, runtime_ns: Tensor, mask: Tensor, margin: float = 1.0, *, grows: bool = False
) -> Tensor:
    """Returns the pairwise rank loss with phi(z) = max(0, m_ij - z); see `pairwise_loss`.

    m_ij is `margin`, or with `grows` `margin` times (log y_i - log y_j) / s, s the standard deviation of
    log y among a kernel's decisions, so that far pairs should lie farther apart.
    """
    if not grows:
        return pairwise_loss(costs, runtime_ns, mask, lambda apart: functional.relu(margin - apart))
    logs = runtime_ns.log()
    spread = torch.stack([row[real].std(correction=0) for row, real in zip(logs, mask, strict=True)])
    scaled = (margin * logs / spread.clamp(min=1e-9)[:, None]).to(costs.dtype)
    margins = scaled.unsqueeze(2) - scaled.unsqueeze(1)
    return pairwise_loss(costs, runtime_ns, mask, lambda apart: functional.relu(margins - apart))


def pairwise_logistic(costs: Tensor, runtime_ns: Tensor, mask: Tensor) -> Tensor:
    """Returns the pairwise rank loss with phi(z) = log(1 + exp(-z)); see `pairwise_loss`."""
    return pairwise_loss(costs, runtime_ns, mask, lambda apart: functional.softplus(-apart))


def pairwise_loss(costs: Tensor, runtime_ns: Tensor, mask: Tensor, phi: Callable[[Tensor], Tensor]) -> Tensor:
    """Returns the mean over kernels of sum_i sum_j phi(y'_i - y'_j) pos(y_i - y_j) / (n (n - 1) / 2).

    y' are the costs of a kernel's n decisions, y their runtimes, pos(z) is 1 where z > 0 and 0 elsewhere:
    decision i, slower than j, should cost more by a margin. Equal runtimes give no term and still count in
    n (n - 1) / 2. Kernels with fewer than two decisions have no pairs and are left out of the mean; a batch
    of only those has loss 0. Source: lpm2021, equation 1, with a batch's pairs kept within kernels.

    Shape: costs, runtime_ns and mask [K, C].
    """
    slower = (runtime_ns.unsqueeze(2) > runtime_ns.unsqueeze(1)) & mask.unsqueeze(2) & mask.unsqueeze(1)
    apart = costs.unsqueeze(2) - costs.unsqueeze(1)
    terms = (phi(apart) * slower).sum(dim=(1, 2))
    count = mask.sum(dim=1).to(terms.dtype)
    pairs = count * (count - 1.0) / 2.0
    return (terms / pairs.clamp(min=1.0)).sum() / (pairs > 0).sum().clamp(min=1)


_TARGET_TEMPERATURE = 0.1
"""Difference of log runtime at which `listnet` wants the slower decision exp(-1) as much."""


def listnet(costs: Tensor, runtime_ns: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean over kernels of sum_i p_i (log p_i - log q_i), the divergence of q from p, where

    p_i = y_i^(-1 / d) / sum_j y_j^(-1 / d) with d = 0.1, and q_i = exp(-y'_i) / sum_j exp(-y'_j).

    y' are the costs of a kernel's decisions, y their runtimes. p says which decision should be chosen, nearly
    evenly among those within some percent of the fastest, and hardly at all where it is 1.5 times slower; q
    is how likely the costs make that choice. The order of slow decisions among themselves does not matter,
    which Tile-Size APE does not look at either. Kernels with fewer than two decisions have nothing to choose
    and are left out of the mean; a batch of only those has loss 0. Source: Cao, Qin, Liu, Tsai and Li,
    "Learning to rank: from pairwise approach to listwise approach" (ICML 2007), top one probabilities, less
    the entropy of p, which has no gradient.

    Shape: costs, runtime_ns and mask [K, C].
    """
    target_scores = (-runtime_ns.log() / _TARGET_TEMPERATURE).to(costs.dtype)
    p, q = (_log_shares(scores, mask) for scores in (target_scores, -costs))
    divergence = (p.exp() * (p - q) * mask).sum(dim=1)
    choices = mask.sum(dim=1) > 1
    return (divergence * choices).sum() / choices.sum().clamp(min=1)


def listmle(costs: Tensor, runtime_ns: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean over kernels of -log P(the decisions in order of runtime), where

    P = product over places i of exp(-y'_i) / sum_{j >= i} exp(-y'_j), decisions numbered fastest first.

    y' are the costs of a kernel's decisions. P is the probability that drawing decisions without replacement,
    each in proportion to exp(-cost), gives the measured order (Plackett and Luce). Decisions of equal runtime
    stand in the order of their costs, the likeliest one, so that no order among them is asked for. Kernels
    with fewer than two decisions have one order only and are left out of the mean; a batch of only those has
    loss 0. Source: Xia, Liu, Wang, Zhang and Li, "Listwise approach to learning to rank: theory and
    algorithm" (ICML 2008); tpugraphs2023, section 4.3.

    Shape: costs, runtime_ns and mask [K, C].
    """
    # Sorted by cost, then stably by runtime; padding goes last, where it has no share.
    by_cost = costs.detach().argsort(dim=1, stable=True)
    runtimes = runtime_ns.masked_fill(~mask, torch.inf)
    order = by_cost.gather(1, runtimes.gather(1, by_cost).argsort(dim=1, stable=True))
    real = mask.gather(1, order)
    scores = (-costs).gather(1, order).masked_fill(~real, torch.finfo(costs.dtype).min)
    remaining = scores.flip(1).logcumsumexp(dim=1).flip(1)
    terms = torch.where(real, remaining - scores, 0.0).sum(dim=1)
    orders = mask.sum(dim=1) > 1
    return (terms * orders).sum() / orders.sum().clamp(min=1)


def _log_shares(scores: Tensor, mask: Tensor) -> Tensor:
    """Returns the logarithm of the softmax over real decisions; the others get a share of almost 0."""
    return functional.log_softmax(scores.masked_fill(~mask, torch.finfo(scores.dtype).min), dim=1)


def hinge_listnet(costs: Tensor, runtime_ns: Tensor, mask: Tensor) -> Tensor:
    """Returns `pairwise_hinge` plus `listnet`.

    Shape: costs, runtime_ns and mask [K, C].
    """
    return pairwise_hinge(costs, runtime_ns, mask) + listnet(costs, runtime_ns, mask)


def logistic_listnet(costs: Tensor, runtime_ns: Tensor, mask: Tensor) -> Tensor:
    """Returns `pairwise_logistic` plus `listnet`.

    Shape: costs, runtime_ns and mask [K, C].
    """
    return pairwise_logistic(costs, runtime_ns, mask) + listnet(costs, runtime_ns, mask)


def log_mse(costs: Tensor, runtime_ns: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean over all decisions of (y' - log y)^2, y' the cost and y the runtime in ns.

    Shape: costs, runtime_ns and mask [K, C].
    """
    error = (costs - runtime_ns.log().to(costs.dtype)) * mask
    return error.square().sum() / mask.sum().clamp(min=1)


_SMOOTH = 0.1
"""Error of log runtime below which `log_huber` is a parabola: a tenth of the runtime."""


def log_huber(costs: Tensor, runtime_ns: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean over all decisions of h(y' - log y), y' the cost and y the runtime in ns, where

    h(z) = z^2 / (2 d) for |z| <= d, else |z| - d / 2, with d = 0.1.

    A small error of log runtime is the relative error of the runtime, so this is nearly what MAPE measures,
    and kernels that are far off pull no harder than others.

    Shape: costs, runtime_ns and mask [K, C].
    """
    error = (costs - runtime_ns.log().to(costs.dtype)) * mask
    terms = functional.huber_loss(error, error.new_zeros(()).expand_as(error), reduction="sum", delta=_SMOOTH)
    return terms / _SMOOTH / mask.sum().clamp(min=1)


def kernel_log_mse(costs: Tensor, runtime_ns: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean over kernels of a kernel's mean of (y' - log y)^2; compare `log_mse`.

    A decision of a kernel with n of them weighs 1 / n, so that kernels of many decisions count no more than
    others. Kernels without decisions are left out. Source: lpm2020, section 4.2 ("weight a loss value of each
    sample appropriately so that the model is optimized for all kernels equally").

    Shape: costs, runtime_ns and mask [K, C].
    """
    error = (costs - runtime_ns.log().to(costs.dtype)) * mask
    count = mask.sum(dim=1)
    return (error.square().sum(dim=1) / count.clamp(min=1)).sum() / (count > 0).sum().clamp(min=1)


@dataclass(frozen=True)
class Loss:
    """A loss and what a network trained with it predicts.

    Attributes:
        function: (costs, runtime_ns, mask) to a scalar.
        predicts: see `Predicts`.
    """

    function: Callable[[Tensor, Tensor, Tensor], Tensor]
    predicts: Predicts

    @property
    def min_configs(self) -> int:
        """Decisions that a kernel needs to contribute: two make a rank, one has a runtime."""
        return 2 if self.predicts == "score" else 1


_FUNCTIONS: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "hinge": pairwise_hinge,
    "hinge-listnet": hinge_listnet,
    "huber": log_huber,
    "kernel-mse": kernel_log_mse,
    "listmle": listmle,
    "listnet": listnet,
    "logistic": pairwise_logistic,
    "logistic-listnet": logistic_listnet,
    "mse": log_mse,
}
LOSSES: Mapping[str, Loss] = {name: Loss(function, PREDICTS[name]) for name, function in _FUNCTIONS.items()}
"""Name in `TrainSpec.loss` to loss."""


def find_loss(name: str) -> Loss:
    """Returns the loss called `name` in `LOSSES`, or a user's own.

    Raises:
        ChoiceError: if there is none of this name.
        ParamsError: as `user_loss`.
    """
    return user_loss(name) if is_part(name) else choose(LOSSES, name, "loss")


_SIGNATURE = "(costs [K, C], runtime_ns [K, C], mask [K, C]) to one number that costs have a gradient of"


def user_loss(text: str) -> Loss:
    """Returns the loss that a dotted path names: a function, or a class of which arguments make one.

    It maps costs, runtimes and the mask of real decisions, [K, C] each, to a number, as the others do. Its
    attribute `predicts` says what a network trained with it predicts: `score` where it has none, or
    `log_runtime_ns`.

    Raises:
        ParamsError: if it cannot be imported, or fails on two kernels with two and three decisions.
    """
    part = load_part(text, "loss")
    with part.checked(_SIGNATURE):
        is_class = inspect.isclass(part.value)
        function = part.value(**part.arguments) if is_class else partial(part.value, **part.arguments)
    predicts = getattr(function if is_class else part.value, "predicts", "score")
    if predicts not in get_args(Predicts):
        raise part.refuse(f"predicts is {predicts!r}", f"one of {', '.join(get_args(Predicts))}")

    def checked(costs: Tensor, runtime_ns: Tensor, mask: Tensor) -> Tensor:
        with part.checked(_SIGNATURE):
            loss: object = function(costs, runtime_ns, mask)
        if not isinstance(loss, Tensor) or loss.dim() or not loss.requires_grad:
            shape = f"{list(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
            problem = f"gives {shape}" if shape != "[]" else "gives a number without gradient"
            raise part.refuse(problem, _SIGNATURE)
        return loss

    costs = torch.tensor([[0.3, 0.1, 0.0], [0.2, 0.5, 0.4]], requires_grad=True)
    runtime_ns = torch.tensor([[2e3, 1e3, 1.0], [3e5, 2e5, 1e5]], dtype=torch.float64)
    with torch.enable_grad():
        checked(costs, runtime_ns, torch.tensor([[True, True, False], [True, True, True]]))
    return Loss(checked, cast(Predicts, predicts))


def layout_loss(spec: LayoutTrainSpec) -> Loss:
    """Returns the loss that the training of a layout network minimises.

    Raises:
        ParamsError: as `user_loss`.
    """
    if is_part(spec.loss):
        return user_loss(spec.loss)
    functions: Mapping[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
        "hinge": partial(pairwise_hinge, margin=spec.margin, grows=spec.margin_grows),
        "listmle": listmle_per_config,
        "logistic": pairwise_logistic,
        "mse": log_mse,
    }
    return Loss(functions[spec.loss], LAYOUT_PREDICTS[spec.loss])


def listmle_per_config(costs: Tensor, runtime_ns: Tensor, mask: Tensor) -> Tensor:
    """Returns the mean over graphs of `listmle` over the graph's number of configs.

    Graphs with fewer than two configs are left out; where all are, the loss is 0.

    Shape: costs, runtime_ns and mask [K, C].
    """
    counts = mask.sum(dim=1)
    losses = [
        listmle(costs[None, row], runtime_ns[None, row], mask[None, row]) / counts[row]
        for row in torch.nonzero(counts > 1).squeeze(1).tolist()
    ]
    return torch.stack(losses).mean() if losses else costs.new_zeros(())
