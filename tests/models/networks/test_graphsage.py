"""GraphSAGE on a triangle by hand: 0 -> 1, 0 -> 2, 1 -> 2."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from costbench.models.batch.edges import Edges
from costbench.models.net_spec import NetSpec
from costbench.models.networks.graphsage import SageHop

INCOMING = np.array([[1, 2, 2], [0, 0, 1]])
OUTGOING = np.array([[0, 0, 1], [1, 2, 2]])


def triangle() -> Edges:
    return Edges.build(INCOMING, OUTGOING, num_nodes=3)


def hop(spec: NetSpec) -> SageHop:
    """Width 1: messages are x to consumers and 10 x to producers, the update is 100 x + aggregate."""
    module = SageHop(spec)
    module.to_consumers.first.weight.data = torch.tensor([[1.0]])
    if module.to_producers is not None:
        module.to_producers.first.weight.data = torch.tensor([[10.0]])
    module.update.both.weight.data = torch.tensor([[100.0, 1.0]])
    return module


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        # 0 has consumers 1 and 2: (20 + 30) / 2; 1 has 0 and 2: 1 + 30; 2 has 0 and 1: (1 + 2) / 2.
        (NetSpec(hidden=1), [125.0, 231.0, 301.5]),
        (NetSpec(hidden=1, aggregation="sum"), [150.0, 231.0, 303.0]),
        (NetSpec(hidden=1, aggregation="max"), [130.0, 231.0, 302.0]),
        # The same message both ways: (2 + 3) / 2; 1 + 3; (1 + 2) / 2.
        (NetSpec(hidden=1, directed=False), [102.5, 204.0, 301.5]),
    ],
)
def test_hop_by_hand(spec: NetSpec, expected: list[float]) -> None:
    states = torch.tensor([1.0, 2.0, 3.0]).view(3, 1, 1)
    assert hop(spec)(states, triangle()).flatten().tolist() == expected
    # Decisions do not mix: the second one's states are all 0.
    both = torch.cat([states, 0.0 * states], dim=1)
    assert hop(spec)(both, triangle())[..., 0].tolist() == [[value, 0.0] for value in expected]
