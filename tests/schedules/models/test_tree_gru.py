from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from costbench import rng
from costbench_schedules.features.context import FEATURE_NAMES, context_features
from costbench_schedules.features.trees import LoopTrees, loop_trees
from costbench_schedules.models.learner import Objective, samples_of
from costbench_schedules.models.training import TrainingSpec
from costbench_schedules.models.tree_gru import TreeGru, TreeGruLearner, TreeGruSpec, tree_batch
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.spaces.nest import nest_batch
from costbench_schedules.spaces.space import ScheduleSpace

SPECS = [TreeGruSpec(True, 8, 6, 3), TreeGruSpec(False, 8, 6)]


def some_trees(count: int = 12, workload: str = "C6") -> LoopTrees:
    space = ScheduleSpace(parse_operator(workload))
    rows = space.sample(rng.stream(0, "tree gru", workload), count)
    return loop_trees(context_features(nest_batch(space, rows)))


def network(spec: TreeGruSpec) -> TreeGru:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return TreeGru(spec).eval()


def by_recursion(net: TreeGru, trees: LoopTrees, tree: int) -> Tensor:
    """The cost of one tree, node by node as the paper's figure 3 draws it."""
    states: dict[int, Tensor] = {}
    real = np.flatnonzero(trees.depths[tree]).tolist()

    def state(node: int) -> Tensor:
        if node not in states:
            below = [state(child) for child in real if trees.parents[tree, child] == node]
            inside = sum(below, torch.zeros(net.spec.hidden))
            values = (torch.from_numpy(trees.values[tree, node]) - net.mean) / net.deviation
            own = torch.tanh(net.read(values[net._columns]))
            if net.identifiers is not None:
                own = own + net.identifiers.weight[trees.identifiers[tree, node]]
            states[node] = net.cell(own[None], inside[None])[0]
        return states[node]

    if net.slots is None:
        top = [state(node) for node in real if trees.parents[tree, node] < 0]
        return net.cost(sum(top, torch.zeros(net.spec.hidden)))[0]
    summary = torch.zeros(net.spec.slots, net.spec.hidden)
    for node in real:
        for slot, share in enumerate(torch.softmax(net.slots(state(node)), dim=0)):
            summary[slot] = summary[slot] + share * state(node)
    return net.cost(summary.flatten())[0]


@pytest.mark.parametrize("spec", SPECS, ids=["context", "plain"])
def test_batches_equal_the_recursion(spec: TreeGruSpec) -> None:
    trees, net = some_trees(), network(spec)
    net.scale_like(tree_batch(trees).values)
    with torch.inference_mode():
        costs = net(tree_batch(trees))
        expected = [float(by_recursion(net, trees, tree)) for tree in range(len(trees))]
    assert costs.numpy() == pytest.approx(np.array(expected), abs=1e-5)


def test_the_trees_of_a_nest_by_hand() -> None:
    """for i0 < 2: (init: for j3 < 4), (for r0 < 2: for j3 < 4)."""
    space = ScheduleSpace(parse_operator("matmul:m=2,n=4,k=2"))
    tiles = {"tile i": (2, 1, 1, 1), "tile j": (1, 1, 1, 4), "tile r": (2, 1)}
    rest = {"cache": "none", "vectorize": 0, "unroll": 0, "parallel": "none", "padding": "none"}
    row = space.row_of({**tiles, "order": "S0 S1 R0 R1 S2 S3", **rest})
    trees = loop_trees(context_features(nest_batch(space, row[None])))
    assert trees.depths[0].tolist() == [1, 2, 3, 2, 3, 4]
    assert trees.parents[0].tolist() == [-1, 0, 1, 0, 3, 4]
    columns = [FEATURE_NAMES.index(name) for name in ("extent", "init", "compute")]
    extents = np.log2([3.0, 5.0, 1.0, 3.0, 5.0, 1.0])
    assert trees.values[0][:, columns[0]] == pytest.approx(extents)
    assert trees.values[0][:, columns[1]].tolist() == [0, 1, 1, 0, 0, 0]
    assert trees.values[0][:, columns[2]].tolist() == [1, 0, 0, 1, 1, 1]
    # The innermost loops have the same variable, and every other node one of its own.
    assert trees.identifiers[0, 1] == trees.identifiers[0, 4]
    assert len(set(trees.identifiers[0].tolist())) == 5


def test_a_loop_without_a_context_of_its_own_is_read_by_its_name() -> None:
    """Without context two programs that differ in touched sizes only cost the same; with it they do not."""
    trees = some_trees(1)
    column = FEATURE_NAMES.index("touched_first")
    values = trees.values.copy()
    values[:, :, column] += 1.0
    other = LoopTrees(values, trees.parents, trees.depths, trees.identifiers)
    with torch.inference_mode():
        plain, context = (
            [float(network(spec)(tree_batch(one))[0]) for one in (trees, other)] for spec in SPECS[::-1]
        )
    assert plain[0] == plain[1]
    assert context[0] != context[1]


@pytest.mark.parametrize("objective", ["rank", "regression"])
@pytest.mark.parametrize("context", [True, False])
def test_training_learns_the_order_and_repeats(objective: Objective, context: bool) -> None:
    trees = some_trees(32, "matmul-256")
    # Slow where no loop is vectorised.
    vectorised = trees.values[:, :, FEATURE_NAMES.index("vectorize")].max(axis=1)
    runtimes = 10.0 - 5.0 * vectorised.astype(np.float64)
    learner = TreeGruLearner(objective, TreeGruSpec(context, 16, 16), TrainingSpec(epochs=15, batch=16))
    first, second = (learner.fit(trees, samples_of(runtimes), 5) for _ in range(2))
    costs = first.predict(trees)
    assert np.array_equal(costs, second.predict(trees))
    assert not np.array_equal(costs, learner.fit(trees, samples_of(runtimes), 6).predict(trees))
    assert (costs[vectorised == 0][:, None] > costs[vectorised == 1]).mean() > 0.95


def test_starting_costs_are_added_in_training() -> None:
    """What an earlier model says already is not learned again."""
    trees = some_trees(32, "matmul-256")
    runtimes = 1.0 + trees.values[:, :, FEATURE_NAMES.index("unroll")].max(axis=1).astype(np.float64)
    speed = runtimes.min() / runtimes
    learner = TreeGruLearner("regression", TreeGruSpec(True, 16, 16), TrainingSpec(epochs=25, batch=16))
    left = learner.fit(trees, samples_of(runtimes, start=-speed), 0).predict(trees)
    assert np.abs(left).max() < 0.2


def test_training_leaves_torchs_generator_alone() -> None:
    trees = some_trees(4, "matmul-256")
    before = torch.random.get_rng_state()
    TreeGruLearner(training=TrainingSpec(epochs=1)).fit(trees, samples_of(np.arange(1.0, 5.0)), 0)
    assert torch.equal(before, torch.random.get_rng_state())
