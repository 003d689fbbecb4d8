from __future__ import annotations

import math

import torch

from costbench.models.execution import applied
from costbench.models.execution_spec import Execution
from costbench.models.kernels.attention import attend, kernel_transformer
from costbench.models.net_spec import NetSpec
from costbench.models.networks.layers import initialize
from costbench.models.networks.transformer import KernelTransformer


def test_attention_by_hand() -> None:
    # One head of width 1, keys 0 and log 3: the query 1 weighs the values 1 : 3, the query 0 alike.
    queries, keys, values = (
        torch.tensor(numbers).view(1, 1, 2, 1) for numbers in ([1.0, 0.0], [0.0, math.log(3.0)], [4.0, 8.0])
    )
    torch.testing.assert_close(attend(queries, keys, values).flatten(), torch.tensor([7.0, 6.0]))


def test_gradient_does_not_depend_on_the_matrix_library() -> None:
    given = torch.randn(3, 2, 2, 5, 4, generator=torch.Generator().manual_seed(0))
    gradients = []
    for onednn in (True, False):
        inputs = [tensor.clone().requires_grad_() for tensor in given]
        with applied(Execution(onednn_matmul=onednn)):
            attend(*inputs).square().sum().backward()
        gradients.append(torch.stack([tensor.grad for tensor in inputs if tensor.grad is not None]))
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().max() > 0


def test_kernels_one_by_one_equal_the_masked_module() -> None:
    net = KernelTransformer(NetSpec(hidden=8, transformer_heads=2, transformer_layers=2)).double()
    initialize(net, 0)
    draw = torch.Generator().manual_seed(0)
    states = torch.randn(9, 3, 8, generator=draw, dtype=torch.float64).requires_grad_()
    pull = torch.randn(3, 3, 8, generator=draw, dtype=torch.float64)
    leaves = [states, *net.parameters()]
    outputs = [kernel_transformer(net, states, (5, 1, 3)), net(states, (5, 1, 3))]
    torch.testing.assert_close(*outputs)
    ours, theirs = (torch.autograd.grad((out * pull).sum(), leaves) for out in outputs)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)
