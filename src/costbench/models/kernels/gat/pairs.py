"""The edges of graph attention in a batch, sorted by receiver and by sender for the compiled kernels.

A pair is a receiver i and a sender j that it attends to. A way is one attention of a hop: directed networks
have two, over producers and over consumers, undirected ones have one.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from costbench.arrays import I64, Bool
from costbench.execution.compiled import compiled
from costbench.models.kernels.components import closed_groups


class Pairs(NamedTuple):
    """P pairs, sorted by receiver and by sender; every node is also paired with itself, once per way.

    A slot is a node i and a way w, with number ways * i + w.

    Attributes:
        starts: int64 [N ways + 1]. Pairs starts[s] to starts[s + 1] have slot s as receiver.
        senders: int64 [P], the sender of each pair.
        by_sender_starts: int64 [N ways + 1]. Entries by_sender_starts[s] to by_sender_starts[s + 1] of the
            next two arrays have slot s as sender.
        by_sender_pairs: int64 [P], numbers of pairs, in order of their senders.
        receivers: int64 [P], the receivers of these pairs.
        groups: int64 [G + 1]. Nodes groups[g] to groups[g + 1] attend only to each other.
    """

    starts: I64
    senders: I64
    by_sender_starts: I64
    by_sender_pairs: I64
    receivers: I64
    groups: I64


@compiled
def pairs_of(receiver: I64, sender: I64, way: Bool, num_nodes: int, ways: int, least: int) -> Pairs:
    """Returns the pairs of M edges. A receiver's senders keep the order of the edges; itself comes last.

    Args:
        receiver: int64 [M].
        sender: int64 [M].
        way: bool [M], True for edges of the second way; not read if there is one way.
        num_nodes: N.
        ways: 1 or 2.
        least: smallest number of nodes in a group, but for the last one.
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
def _pairs_by_sender(starts: I64, senders: I64, by_sender_starts: I64, ways: int) -> tuple[I64, I64]:
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
    """Returns the number of nodes and the number of ways."""
    num_nodes = pairs.groups[-1]
    return num_nodes, (len(pairs.starts) - 1) // num_nodes
