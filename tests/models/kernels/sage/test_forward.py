from __future__ import annotations

import numpy as np
import pytest

from costbench.models.kernels.sage.forward import SageMatrices, add_up, lie_together, sage_forward
from costbench.models.kernels.sage.messages import MessageMatrix
from costbench.models.kernels.sage.neighbours import CsrMatrix
from tests.models.examples import build, csr_matrix

MATRIX = np.array([[0.0, 2.0, 0.0, 3.0], [0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 5.0, 0.0]], np.float32)


@pytest.mark.parametrize("base", [0, 10])
def test_sums_of_bags_by_hand(base: int) -> None:
    table = np.array([[1.0], [10.0], [100.0], [1000.0]], np.float32)
    sums = csr_matrix(MATRIX)
    out, found = np.empty(1, np.float32), []
    for row in range(3):
        add_up(CsrMatrix(sums.starts, sums.columns + base, sums.weights), row, table, base, out)
        found.append(out.tolist())
    assert found == [[3020.0], [0.0], [501.0]]


@pytest.mark.parametrize(("nodes", "neighbours"), [([3], True), ([3, 4, 5], True), ([3, 5], False)])
def test_nodes_that_lie_together(nodes: list[int], neighbours: bool) -> None:
    assert lie_together(np.array(nodes)) == neighbours


@pytest.mark.parametrize("configs", [1, 16, 40])
@pytest.mark.parametrize("keep", [False, True])
def test_a_hop_by_hand(configs: int, keep: bool) -> None:
    """0 -> 1: unit 0 is sent as it is to consumers and twice to producers, and added to the node's own."""
    edges = build(np.array([[0], [1]]), 2)
    graph = MessageMatrix(edges, mean=False).graph(configs)
    one = np.zeros((16, 16), np.float32)
    one[0, 0] = 1.0
    weights = SageMatrices(one[None], 2.0 * one[None], np.concatenate([one, one], axis=1)[None])
    states = np.zeros((2 * configs, 16), np.float32)
    states[:configs, 0], states[configs:, 0], states[:, 1] = 3.0, 5.0, 7.0
    found = sage_forward(states, weights, graph, keep)
    assert (found.updated[0, :configs, 0] == 3.0 + 2.0 * 5.0).all()
    assert (found.updated[0, configs:, 0] == 5.0 + 3.0).all()
    assert not found.updated[0, :, 1:].any()
