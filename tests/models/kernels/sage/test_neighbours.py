from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from costbench.models.kernels.sage.messages import MessageMatrix
from costbench.models.kernels.sage.neighbours import transpose
from tests.models.examples import build, csr_matrix

TWO_KERNELS = np.array([[0, 0, 3], [1, 2, 4]])
"""Producers above consumers: 0 -> 1, 0 -> 2, and apart from these 3 -> 4."""


def test_transposed_matrix() -> None:
    matrix = np.array([[0.0, 2.0, 0.0, 3.0], [0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 5.0, 0.0]], np.float32)
    turned, expected = transpose(csr_matrix(matrix), 4), csr_matrix(np.ascontiguousarray(matrix.T))
    for mine, other in zip(turned, expected, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_listeners_of_two_kernels_by_hand() -> None:
    edges = build(TWO_KERNELS, 5)
    graph = MessageMatrix(edges, mean=False).graph(configs=512)
    # Nodes 0 and 3 have consumers, 1, 2 and 4 producers.
    assert graph.nodes.tolist() == [0, 3, 5]
    assert (graph.forth.nodes.tolist(), graph.forth.starts.tolist()) == ([0, 3], [0, 1, 2])
    assert (graph.back.nodes.tolist(), graph.back.starts.tolist()) == ([1, 2, 4], [0, 2, 3])
    # Messages: of 0 forth, of 1 and 2 back, which 0 hears; of 3 forth, of 4 back.
    assert graph.matrix.starts.tolist() == [0, 2, 3, 4, 5, 6]
    assert graph.matrix.columns.tolist() == [1, 2, 0, 0, 4, 3]
    assert graph.transposed.columns.tolist() == [1, 2, 0, 0, 4, 3]


def test_few_decisions_make_one_group_in_which_all_nodes_talk() -> None:
    graph = MessageMatrix(build(TWO_KERNELS, 5), mean=False).graph(configs=1)
    assert graph.nodes.tolist() == [0, 5]
    assert graph.forth.nodes.tolist() == [0, 1, 2, 3, 4]
    assert graph.back.nodes.tolist() == [1, 2, 4]
    assert graph.matrix.columns.tolist() == [5, 6, 0, 0, 7, 3]


@pytest.mark.parametrize("configs", [1, 512])
def test_padding_does_not_talk(configs: int) -> None:
    edges = build(TWO_KERNELS, 5)
    padded = replace(edges, with_producers=torch.tensor([1, 2, 4, 4, 4]))
    graph = MessageMatrix(padded, mean=False).graph(configs)
    assert graph.back.nodes.tolist() == [1, 2, 4]
    for mine, other in zip(graph.matrix, MessageMatrix(edges, mean=False).graph(configs).matrix, strict=True):
        np.testing.assert_array_equal(mine, other)


def test_an_edge_over_other_kernels_joins_their_groups() -> None:
    edges = np.array([[0, 1, 2], [3, 2, 4]])
    graph = MessageMatrix(build(edges, 6), mean=False).graph(configs=512)
    assert graph.nodes.tolist() == [0, 5, 6]
