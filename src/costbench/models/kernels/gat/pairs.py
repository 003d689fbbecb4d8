"""Pairs of a receiver and a sender of attention in a batch, as compiled kernels read them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from costbench.execution.compiled import compiled
from costbench.models.kernels.components import closed_groups

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


class Pairs(NamedTuple):
    """P pairs of a receiver and a sender, by receiver and by sender; every node attends to itself, too.

    A slot is a node and a way, the ways of a node next to each other: slot ways i + w.

    Attributes:
        starts: int64 [N ways + 1]. Pairs from starts[s] to starts[s + 1] are those of slot s as receiver.
        senders: int64 [P], the node that each receiver attends to.
        by_sender_starts: int64 [N ways + 1], the same places in `by_sender_pairs`, of slot s as sender.
        by_sender_pairs: int64 [P], which pairs these are.
        receivers: int64 [P], the receivers in the order of `by_sender_pairs`.
        groups: int64 [G + 1], nodes from groups[g] to groups[g + 1] attend to none but each other.
    """

    starts: IntArray
    senders: IntArray
    by_sender_starts: IntArray
    by_sender_pairs: IntArray
    receivers: IntArray
    groups: IntArray


@compiled
def pairs_of(
    receiver: IntArray, sender: IntArray, way: BoolArray, num_nodes: int, ways: int, least: int
) -> Pairs:
    """The pairs of edges (receiver, sender), of two ways apart or of one, in their order, then a node itself.

    Args:
        receiver: [M].
        sender: [M].
        way: [M], the second of two ways; not read for one.
        num_nodes: N.
        ways: 1 or 2.
        least: nodes of a group, where there are so many.
    """
    starts = np.ones(num_nodes * ways + 1, np.int64)
    by_sender_starts = np.ones(num_nodes * ways + 1, np.int64)
    starts[0] = by_sender_starts[0] = 0
    for edge in range(len(receiver)):
        node, other = receiver[edge], sender[edge]
        second = int(way[edge]) if ways == 2 else 0
        starts[node * ways + second + 1] += 1
        by_sender_starts[other * ways + second + 1] += 1
    starts, by_sender_starts = np.cumsum(starts), np.cumsum(by_sender_starts)
    senders = np.empty(len(receiver) + num_nodes * ways, np.int64)
    place = starts[:-1].copy()
    for edge in range(len(receiver)):
        slot = receiver[edge] * ways + (int(way[edge]) if ways == 2 else 0)
        senders[place[slot]] = sender[edge]
        place[slot] += 1
    for slot in range(num_nodes * ways):
        senders[place[slot]] = slot // ways
    by_sender_pairs, receivers = _pairs_by_sender(starts, senders, by_sender_starts, ways)
    groups = closed_groups(receiver, sender, num_nodes, least)
    return Pairs(starts, senders, by_sender_starts, by_sender_pairs, receivers, groups)


@compiled
def _pairs_by_sender(
    starts: IntArray, senders: IntArray, by_sender_starts: IntArray, ways: int
) -> tuple[IntArray, IntArray]:
    by_sender_pairs, receivers = np.empty_like(senders), np.empty_like(senders)
    place = by_sender_starts[:-1].copy()
    for slot in range(len(starts) - 1):
        for pair in range(starts[slot], starts[slot + 1]):
            slot_of_sender = senders[pair] * ways + slot % ways
            by_sender_pairs[place[slot_of_sender]], receivers[place[slot_of_sender]] = pair, slot // ways
            place[slot_of_sender] += 1
    return by_sender_pairs, receivers


@compiled
def sizes(pairs: Pairs) -> tuple[int, int]:
    """The number of nodes and that of ways."""
    num_nodes = pairs.groups[-1]
    return num_nodes, (len(pairs.starts) - 1) // num_nodes
