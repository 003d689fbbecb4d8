"""TreeGRU and context-encoded TreeGRU (autotvm2018, Figure 3): recursive networks over the tree of loops.

A gated recurrent unit goes from the leaves of trees to their roots, a batch of trees at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from costbench import rng
from costbench.arrays import F64
from costbench_schedules.features.context import FEATURE_NAMES, NUM_FEATURES
from costbench_schedules.features.trees import NUM_IDENTIFIERS, LoopTrees
from costbench_schedules.models.learner import Objective, Samples
from costbench_schedules.models.training import SampleLoss, TrainingSpec, predict_in_chunks, train

_LOOP_FEATURES = ("extent", "parallel", "vectorize", "unroll")


@dataclass(frozen=True)
class TreeGruSpec:
    """Size of a network.

    Attributes:
        context: whether a loop is read through its context features, and the program as a sum over all loops;
            else a loop is read as its variable's own embedding, its extent and annotation, and the program
            as the state of the root.
        embedding: size of a node's input.
        hidden: size of a node's state, which knows its children.
        slots: m, number of memory slots of the sum over loops.

    Raises:
        ValueError: for a size below 1.
    """

    context: bool = True
    embedding: int = 32
    hidden: int = 32
    slots: int = 4

    def __post_init__(self) -> None:
        for name in ("embedding", "hidden", "slots"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least 1")


@dataclass(frozen=True, eq=False)
class TreeBatch:
    """Trees as tensors: M nodes of n trees, those without children first.

    Attributes:
        values: context features, float32 [M, F].
        identifiers: variable or statement that a node is, int64 [M].
        parents: node (or M + tree for the root) that each is a child of, int64 [M].
        trees: index of each node's tree, int64 [M].
        ends: nodes as deep as the deepest or as the next one, and so on; a running sum.
        count: n, the number of trees.
    """

    values: Tensor
    identifiers: Tensor
    parents: Tensor
    trees: Tensor
    ends: tuple[int, ...]
    count: int


def tree_batch(trees: LoopTrees, device: torch.device | str = "cpu") -> TreeBatch:
    """Returns the real nodes of trees, deepest first."""
    count, width = trees.depths.shape
    depths = trees.depths.reshape(-1)
    order = np.argsort(-depths, kind="stable")[: int((depths > 0).sum())]
    number = np.empty(len(depths), dtype=np.int64)
    number[order] = np.arange(len(order))
    tree = order // max(width, 1)
    parents = trees.parents.reshape(-1)[order]
    above = np.where(parents >= 0, number[tree * width + np.maximum(parents, 0)], len(order) + tree)
    sizes = np.bincount(depths[order], minlength=1)[:0:-1]
    return TreeBatch(
        torch.from_numpy(trees.values.reshape(len(depths), -1)[order]).to(device),
        torch.from_numpy(trees.identifiers.reshape(-1)[order]).to(device),
        torch.from_numpy(above).to(device),
        torch.from_numpy(tree).to(device),
        tuple(np.cumsum(sizes).tolist()),
        count,
    )


class TreeGru(nn.Module):
    """A TreeGRU: h = GRU(x, sum of h over children), one cell for all nodes.

    Sums as in the child-sum TreeLSTM of Tai et al. (2015).

    Every node of the same depth is one batch for the cell, whatever tree it is of. With context, loops and
    statements are summed up by out_i = sum over nodes of softmax(W h)_i h for i = 1 to m (autotvm2018,
    section 4).
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, spec: TreeGruSpec) -> None:
        super().__init__()
        self.spec = spec
        columns = (
            list(range(NUM_FEATURES))
            if spec.context
            else [FEATURE_NAMES.index(name) for name in _LOOP_FEATURES]
        )
        self._columns = columns
        self.register_buffer("mean", torch.zeros(NUM_FEATURES))
        self.register_buffer("deviation", torch.ones(NUM_FEATURES))
        self.read = nn.Linear(len(columns), spec.embedding)
        self.identifiers = None if spec.context else nn.Embedding(NUM_IDENTIFIERS, spec.embedding)
        self.cell = nn.GRUCell(spec.embedding, spec.hidden)
        self.slots = nn.Linear(spec.hidden, spec.slots, bias=False) if spec.context else None
        self.cost = nn.Linear(spec.hidden * (spec.slots if spec.context else 1), 1)

    def scale_like(self, values: Tensor) -> None:
        """Scales features from now on by the mean and standard deviation of nodes [M, F]."""
        deviation, mean = torch.std_mean(values, dim=0, correction=0)
        self.mean.copy_(mean)
        self.deviation.copy_(torch.where(deviation > 1e-6, deviation, torch.ones_like(deviation)))

    def forward(self, batch: TreeBatch) -> Tensor:
        """Returns the cost of each tree, [n]."""
        scaled = ((batch.values - self.mean) / self.deviation)[:, self._columns]
        inputs = torch.tanh(self.read(scaled))
        if self.identifiers is not None:
            inputs = inputs + self.identifiers(batch.identifiers)
        sums = inputs.new_zeros(len(inputs) + batch.count, self.spec.hidden)
        states, start = [], 0
        for end in batch.ends:
            state = self.cell(inputs[start:end], sums[start:end])
            sums = sums.index_add(0, batch.parents[start:end], state)
            states.append(state)
            start = end
        if self.slots is None:
            summary = sums[len(inputs) :]
        else:
            summary = self._sum_over_loops(torch.cat(states), batch)
        costs: Tensor = self.cost(summary).squeeze(1)
        return costs

    def _sum_over_loops(self, states: Tensor, batch: TreeBatch) -> Tensor:
        """Returns out for every tree, [n, m hidden]."""
        assert self.slots is not None
        shares = torch.softmax(self.slots(states), dim=1)
        spread = (shares.unsqueeze(2) * states.unsqueeze(1)).flatten(1)
        return spread.new_zeros(batch.count, spread.shape[1]).index_add(0, batch.trees, spread)


@dataclass(frozen=True)
class TreeGruLearner:
    """A `Learner` of `LoopTrees`.

    Attributes:
        objective: what the costs are fitted to.
        spec: size of the network.
        training: length and pace of the training.
        device: torch device that trains and predicts.
    """

    objective: Objective = "rank"
    spec: TreeGruSpec = field(default_factory=TreeGruSpec)
    training: TrainingSpec = field(default_factory=TrainingSpec)
    device: str = "cpu"

    def fit(self, features: LoopTrees, samples: Samples, seed: int, /) -> TrainedTreeGru:
        """Returns a trained network."""
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(int(rng.stream(seed, "tree_gru", "weights").integers(2**31)))
            net = TreeGru(self.spec).to(self.device)
        net.scale_like(tree_batch(features, self.device).values)
        loss = SampleLoss(
            samples, self.objective, lambda indices: net(tree_batch(features[indices], self.device))
        )
        train(net, loss, self.training, rng.stream(seed, "tree_gru", "batches"))
        return TrainedTreeGru(net.eval(), self.device)


@dataclass(frozen=True, eq=False)
class TrainedTreeGru:
    """A `ScheduleModel` of `LoopTrees`.

    Attributes:
        net: trained network.
        device: torch device that holds it.
    """

    net: TreeGru
    device: str = "cpu"

    def predict(self, features: LoopTrees, /) -> F64:
        """Returns costs, float64 [n]."""
        return predict_in_chunks(lambda indices: self._costs(features[indices]), len(features))

    @torch.inference_mode()
    def _costs(self, trees: LoopTrees) -> F64:
        costs: Tensor = self.net(tree_batch(trees, self.device))
        return costs.cpu().numpy().astype(np.float64)
