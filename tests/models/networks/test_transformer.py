from __future__ import annotations

import math

import torch
from torch import nn
from torch.func import functional_call

from costbench.models.execution import applied
from costbench.models.execution_spec import Execution
from costbench.models.net_spec import NetSpec
from costbench.models.networks.layers import initialize
from costbench.models.networks.transformer import EncoderLayer, KernelTransformer, attend

SPEC = NetSpec(hidden=8, transformer_heads=2, transformer_width=12)


def test_attention_by_hand() -> None:
    # One head of width 1, keys 0 and log 3: the query 1 weighs the values 1 : 3, the query 0 alike.
    queries, keys, values = (
        torch.tensor(numbers).view(1, 1, 2, 1) for numbers in ([1.0, 0.0], [0.0, math.log(3.0)], [4.0, 8.0])
    )
    torch.testing.assert_close(attend(queries, keys, values).flatten(), torch.tensor([7.0, 6.0]))


def test_attention_gradient_does_not_depend_on_the_matrix_library() -> None:
    given = torch.randn(3, 2, 2, 5, 4, generator=torch.Generator().manual_seed(0))
    gradients = []
    for onednn in (True, False):
        inputs = [tensor.clone().requires_grad_() for tensor in given]
        with applied(Execution(onednn_matmul=onednn)):
            attend(*inputs).square().sum().backward()
        gradients.append(torch.stack([tensor.grad for tensor in inputs if tensor.grad is not None]))
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().max() > 0


def test_attention_equals_its_formula() -> None:
    draw = torch.Generator().manual_seed(0)
    inputs = [torch.randn(2, 2, 5, 4, generator=draw, dtype=torch.float64).requires_grad_() for _ in range(3)]
    queries, keys, values = inputs
    plain = torch.softmax(queries @ keys.transpose(-1, -2) / math.sqrt(4), dim=-1) @ values
    pull = torch.randn(2, 2, 5, 4, generator=draw, dtype=torch.float64)
    found = attend(*inputs)
    torch.testing.assert_close(found, plain)
    ours, theirs = (torch.autograd.grad((out * pull).sum(), inputs) for out in (found, plain))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


def test_layer_equals_torchs_module() -> None:
    """Kernels of 3 and 1 nodes, 2 decisions: torch's layer is given each of the four sequences."""
    layer = EncoderLayer(SPEC)
    initialize(layer, 0)
    module = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True, bias=False)
    weights = {
        "self_attn.in_proj_weight": layer.attention_inputs.weight,
        "self_attn.out_proj.weight": layer.attention_output.weight,
        "linear1.weight": layer.widen.weight,
        "linear2.weight": layer.narrow.weight,
        "norm1.weight": layer.attention_norm.weight,
        "norm2.weight": layer.feed_forward_norm.weight,
    }
    rows = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
    expected = [functional_call(module, weights, (part[None],))[0] for part in rows.split([3, 3, 1, 1])]
    torch.testing.assert_close(layer(rows, (3, 1), 2), torch.cat(expected))


def test_decisions_and_kernels_do_not_mix() -> None:
    net = KernelTransformer(SPEC)
    initialize(net, 0)
    states = torch.randn(5, 3, 8, generator=torch.Generator().manual_seed(0))
    whole = net(states, (4, 1))
    assert whole.shape == (2, 3, 8)
    torch.testing.assert_close(net(states[:4, 1:2], (4,)), whole[:1, 1:2])
    torch.testing.assert_close(net(states[4:], (1,)), whole[1:])
