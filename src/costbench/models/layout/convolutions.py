"""Graph convolutions of layout networks, on states that vary with the config and states that do not.

States that vary are [rows, configs, hidden], fixed ones [rows, hidden]. A convolution that is linear before
its ReLU (GraphSAGE with the mean, GCN) is computed on both apart:

x'_varying = relu(sum_k A_k[varying, varying] x_varying W_k + sum_k A_k[varying, fixed] x_fixed W_k + b)

where the second sum has no config axis. The plain form of the same network is `network.plain_scores`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from costbench.models.layout.plan import LayerPlan, SparseMatrix
from costbench.models.networks.pyg_convolutions import DirectedConvolution, copy_edges
from costbench.models.spec import LayoutNetSpec


class LinearConvolution(nn.Module):
    """x' = x + relu(sum_k A_k x W_k + b), the residual being optional; A_k are `plan.aggregations`.

    Args:
        num_matrices: K.
        hidden: width of the states.
        residual: whether x is added.
    """

    def __init__(self, num_matrices: int, hidden: int, *, residual: bool) -> None:
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(hidden, hidden, bias=False) for _ in range(num_matrices))
        self.bias = nn.Parameter(torch.zeros(hidden))
        self.residual = residual

    def weight(self) -> Tensor:
        """Returns W_1 ... W_K, [K, hidden, hidden]; states are multiplied from the left."""
        return torch.stack([part.weight.t() for part in self.parts])  # type: ignore[operator]

    def sum_fixed(self, matrix: SparseMatrix, states: Tensor) -> Tensor:
        """Returns sum_k A_k x W_k + b of fixed states: [f, hidden] to [rows, hidden]."""
        products = _Products.apply(states, self.weight())  # type: ignore[no-untyped-call]
        return matrix.times(products.flatten(0, 1)) + self.bias

    def update_fixed(self, plan: LayerPlan, states: Tensor) -> Tensor:
        """Returns the fixed states of the next layer: [f, hidden] to [f', hidden]."""
        after = torch.relu(self.sum_fixed(plan.fixed, states))
        return after + states[plan.fixed_before] if self.residual else after

    def update_varying(
        self, plan: LayerPlan, states: Tensor, from_fixed: Tensor, newly_varying: Tensor
    ) -> Tensor:
        """Returns the varying states of the next layer: [v, c, hidden] to [v', c, hidden].

        Args:
            plan: plan of this layer.
            states: varying states.
            from_fixed: [v', hidden], `sum_fixed(plan.into_varying, fixed states)`.
            newly_varying: [v' - u, hidden], states before this layer of rows that were fixed then.
        """
        after = self.activate_varying(plan, states, from_fixed)
        return self.add_residual(plan, after, states, newly_varying) if self.residual else after

    def activate_varying(self, plan: LayerPlan, states: Tensor, from_fixed: Tensor) -> Tensor:
        """Returns what the ReLU gives in varying rows, [v', c, hidden], without residuals."""
        configs, hidden = states.shape[1:]
        if plan.transform_first:
            products = _Products.apply(states.flatten(0, 1), self.weight())  # type: ignore[no-untyped-call]
            sums = plan.varying.times(products.view(-1, configs, hidden))
        else:
            aggregated = plan.varying.times(states).view(plan.num_matrices, -1, hidden)
            sums = _SumOfProducts.apply(aggregated, self.weight())  # type: ignore[no-untyped-call]
            sums = sums.view(-1, configs, hidden)
        # In place: `sums` is new, and a ReLU needs its result alone for the gradient.
        activated: Tensor = sums.add_(from_fixed[:, None]).relu_()
        return activated

    def add_residual(self, plan: LayerPlan, after: Tensor, states: Tensor, newly_varying: Tensor) -> Tensor:
        """Returns `after` plus the states before the layer; arguments as of `update_varying`."""
        before = states if plan.varying_before is None else states[plan.varying_before]
        if len(newly_varying):
            before = torch.cat([before, newly_varying[:, None].expand(-1, states.shape[1], -1)])
        return after + before


class PygConvolution(nn.Module):
    """A convolution of PyG by name (`networks.pyg_convolutions`), one for each direction of messages, summed.

    Args:
        spec: `encoder` names it.

    Raises:
        ParamsError, ChoiceError: if there is none of that name or it cannot be built.

    Shape: states [n, c, hidden] kept.
    """

    def __init__(self, spec: LayoutNetSpec) -> None:
        super().__init__()
        self.ways = DirectedConvolution(spec.encoder, spec.hidden, directed=spec.directed)

    def forward(self, states: Tensor, edge_indices: Sequence[Tensor]) -> Tensor:
        sums: Tensor = self.ways(states, [copy_edges(edges, states.shape[1]) for edges in edge_indices])
        return sums


class _Products(torch.autograd.Function):
    """Returns x W_k for every k: [r, h] and [K, h, h] to [K, r, h], without copies of x."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(states, weight)
        out = states.new_empty(len(weight), *states.shape)
        for matrix, product in zip(weight, out, strict=True):
            torch.mm(states, matrix, out=product)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor]:
        states, weight = ctx.saved_tensors
        (gradient,) = gradients
        d_states = sum_of_products(gradient, weight.transpose(1, 2)) if ctx.needs_input_grad[0] else None
        return d_states, torch.stack([states.t() @ part for part in gradient])


class _SumOfProducts(torch.autograd.Function):
    """Returns sum_k x_k W_k: [K, r, h] and [K, h, h] to [r, h]."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(states, weight)
        return sum_of_products(states, weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor]:
        states, weight = ctx.saved_tensors
        (gradient,) = gradients
        d_states = None
        if ctx.needs_input_grad[0]:
            d_states = torch.empty_like(states)
            for matrix, out in zip(weight, d_states, strict=True):
                torch.mm(gradient, matrix.t(), out=out)
        return d_states, torch.stack([part.t() @ gradient for part in states])


def sum_of_products(states: Tensor, weight: Tensor) -> Tensor:
    """Returns sum_k x_k W_k, [r, h], of x [K, r, h] and W [K, h, h], without a gradient."""
    total = states[0] @ weight[0]
    for part, matrix in zip(states[1:], weight[1:], strict=True):
        total.addmm_(part, matrix)
    return total
