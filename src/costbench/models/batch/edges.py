"""The edges of a batch, along which nodes send messages to their neighbours.

Data flows from producer to consumer, messages in both directions: a node receives messages of at most
`max_neighbors` of its producers and as many of its consumers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from costbench.arrays import I64
from costbench.execution.compiled import compiled


@dataclass(frozen=True, eq=False)
class Edges:
    """M messages between the N nodes of a batch, in order of `receiver`.

    `to_consumers` and `to_producers` are the same messages as PyG writes edges. The compiled kernels of
    GraphSAGE (`costbench_kernels.graphsage`) read the rest: there the messages of a hop are rows of one table, one
    for every node (its message to consumers) and one for each of S nodes with producers (its message to
    those), and aggregation is a sparse matrix times that table.

    Attributes:
        receiver: int64 [M], the node that aggregates.
        sender: int64 [M], its neighbour.
        message: int64 [M], row of the table: `sender` if that is a producer of the receiver, else N + the
            place of `sender` in `with_producers`.
        backwards: bool [M], whether `sender` is a consumer of `receiver`.
        share: float32 [M], 1 / number of messages of the receiver in the same direction.
        with_producers: int64 [S], ascending.
        num_nodes: N.
    """

    receiver: Tensor
    sender: Tensor
    message: Tensor
    backwards: Tensor
    share: Tensor
    with_producers: Tensor
    num_nodes: int

    @staticmethod
    def build(incoming: I64, outgoing: I64, num_nodes: int, *, even: bool = False) -> Edges:
        """Build edges from pairs [2, m]: incoming (node, its producer) and outgoing (node, its consumer).

        With `even` S is padded to `even_size` by repeating the last node; no node receives the added
        messages.
        """
        receiver, sender, message, backwards, share, with_producers = _sorted_by_receiver(
            np.ascontiguousarray(incoming), np.ascontiguousarray(outgoing), num_nodes
        )
        if even:
            missing = even_size(len(with_producers)) - len(with_producers)
            with_producers = np.append(with_producers, np.full(missing, num_nodes - 1))
        return Edges(
            receiver=torch.from_numpy(receiver),
            sender=torch.from_numpy(sender),
            message=torch.from_numpy(message),
            backwards=torch.from_numpy(backwards),
            share=torch.from_numpy(share),
            with_producers=torch.from_numpy(with_producers),
            num_nodes=num_nodes,
        )

    def to(self, device: torch.device) -> Edges:
        """The same edges on `device`."""
        return Edges(
            receiver=self.receiver.to(device),
            sender=self.sender.to(device),
            message=self.message.to(device),
            backwards=self.backwards.to(device),
            share=self.share.to(device),
            with_producers=self.with_producers.to(device),
            num_nodes=self.num_nodes,
        )

    @cached_property
    def to_consumers(self) -> Tensor:
        """PyG's `edge_index`, int64 [2, E], of messages from producers: senders above receivers."""
        return torch.stack([self.sender, self.receiver])[:, ~self.backwards]

    @cached_property
    def to_producers(self) -> Tensor:
        """PyG's `edge_index`, int64 [2, E], of messages from consumers: senders above receivers."""
        return torch.stack([self.sender, self.receiver])[:, self.backwards]


def even_size(size: int) -> int:
    """Round `size` up to one of a few sizes, eight between a power of two and the next.

    oneDNN generates code for every new shape of a matrix product, which takes longer than most products do.
    Batches of a few different sizes, a few percent too large, therefore run much faster than exact ones.
    """
    step = 1 << max(0, size.bit_length() - 4)
    return -(-size // step) * step


@compiled
def _sorted_by_receiver(incoming: I64, outgoing: I64, num_nodes: int) -> tuple[Any, ...]:
    """Returns the arrays of `Edges`; incoming pairs of a receiver come before outgoing ones, as given."""
    counts = np.zeros((2, num_nodes), np.int64)
    table_row = np.full(num_nodes, -1)
    for receiver in incoming[0]:
        counts[0, receiver] += 1
    for receiver, sender in outgoing.T:
        counts[1, receiver] += 1
        table_row[sender] = 0
    with_producers = np.flatnonzero(table_row + 1)
    table_row[with_producers] = num_nodes + np.arange(len(with_producers))
    ends = np.cumsum(counts[0] + counts[1]) - counts[0] - counts[1]
    size = incoming.shape[1] + outgoing.shape[1]
    receivers, senders, messages = (
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
    )
    backwards, share = np.empty(size, np.bool_), np.empty(size, np.float32)
    for direction, pairs in enumerate((incoming, outgoing)):
        for receiver, sender in pairs.T:
            place = ends[receiver]
            ends[receiver] += 1
            receivers[place], senders[place] = receiver, sender
            messages[place] = table_row[sender] if direction else sender
            backwards[place] = direction == 1
            share[place] = 1.0 / counts[direction, receiver]
    return receivers, senders, messages, backwards, share, with_producers
