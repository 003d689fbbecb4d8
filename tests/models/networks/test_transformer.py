from __future__ import annotations

import math

import torch
from torch import nn
from torch.func import functional_call

from costbench.models.networks.layers import initialize
from costbench.models.networks.transformer import EncoderLayer, KernelTransformer, Sequences, attention
from costbench.models.spec import NetSpec

SPEC = NetSpec(hidden=8, transformer_heads=2, transformer_width=12)


CPU = torch.device("cpu")
ATTEND = nn.functional.scaled_dot_product_attention


def test_attention_by_hand() -> None:
    # One head of width 1, a kernel of two nodes and one of one. Keys 0 and log 3: the query 1 weighs the
    # values 4 and 8 by 1 : 3, the query 0 alike; the node alone has its own value, 5.
    projected = torch.tensor([[1.0, 0.0, 4.0], [0.0, math.log(3.0), 8.0], [2.0, 9.0, 5.0]])
    attended = attention(projected, 1, Sequences((2, 1), 1, CPU), ATTEND)
    torch.testing.assert_close(attended.flatten(), torch.tensor([7.0, 6.0, 5.0]))


def test_sequences_of_equal_length_and_back() -> None:
    """Kernels of 2, 1 and 2 nodes, two decisions; a state is node and decision, as 10 n + c."""
    sequences = Sequences((2, 1, 2), 2, CPU)
    states = torch.tensor([[[10.0 * n + c] for c in (1, 2)] for n in range(5)])
    rows = sequences.rows_of(states)
    assert rows.flatten().tolist() == [1, 11, 2, 12, 21, 22, 31, 41, 32, 42]
    groups = list(sequences.of_equal_length(rows))
    assert [group[..., 0].tolist() for group in groups] == [
        [[21], [22]],
        [[1, 11], [2, 12], [31, 41], [32, 42]],
    ]
    assert torch.equal(sequences.in_order(groups), rows)
    assert sequences.sums(rows)[..., 0].tolist() == [[12, 14], [21, 22], [72, 74]]


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
    states = torch.randn(4, 2, 8, generator=torch.Generator().manual_seed(0))
    parts = [part.transpose(0, 1) for part in states.split([3, 1])]
    expected = torch.cat([functional_call(module, weights, (part,)).transpose(0, 1) for part in parts])
    sequences = Sequences((3, 1), 2, CPU)
    rows = layer(sequences.rows_of(states), sequences, ATTEND)
    torch.testing.assert_close(rows, sequences.rows_of(expected))


def test_decisions_and_kernels_do_not_mix() -> None:
    net = KernelTransformer(SPEC)
    initialize(net, 0)
    states = torch.randn(5, 3, 8, generator=torch.Generator().manual_seed(0))
    whole = net(states, (4, 1))
    assert whole.shape == (2, 3, 8)
    torch.testing.assert_close(net(states[:4, 1:2], (4,)), whole[:1, 1:2])
    torch.testing.assert_close(net(states[4:], (1,)), whole[1:])
