"""GNN and LSTM of schedules: batches, orders that are learned, equal fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from costbench import rng
from costbench.features.graph_tensors import KernelGraph
from costbench.models.learned import LearnedCostModel
from costbench.models.spec import NetSpec
from costbench_schedules.features.context import FEATURE_NAMES
from costbench_schedules.features.trees import LoopTrees, loop_graphs
from costbench_schedules.features.vectors import REPRESENTATIONS
from costbench_schedules.models.graph_network import GNN, LSTM, GraphLearner
from costbench_schedules.models.learner import Objective, samples_of
from costbench_schedules.models.training import TrainingSpec
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.spaces.space import ScheduleSpace

SPECS = {name: replace(spec, hidden=16) for name, spec in (("gnn", GNN), ("lstm", LSTM))}
every_net = pytest.mark.parametrize("spec", list(SPECS.values()), ids=list(SPECS))


def some_trees(count: int = 32, workload: str = "matmul-256") -> LoopTrees:
    space = ScheduleSpace(parse_operator(workload))
    return REPRESENTATIONS["tree"](space, space.sample(rng.stream(0, "graph network", workload), count))


@every_net
def test_a_schedule_costs_what_its_graph_costs_alone(spec: NetSpec) -> None:
    trees = some_trees(12, "C6")
    model = GraphLearner(spec=spec, training=TrainingSpec(epochs=1)).fit(
        trees, samples_of(np.arange(1.0, 13.0)), 0
    )
    plain = LearnedCostModel(model.net, model.scaling, "score")
    expected = []
    for index in range(len(trees)):
        one = loop_graphs(trees[np.array([index])])
        graph = KernelGraph(one.kinds, one.values, one.edges, np.zeros(1, np.float32))
        expected.append(plain.predict_graph(graph, np.zeros((1, 1), np.float32))[0])
    assert model.predict(trees) == pytest.approx(np.array(expected), rel=1e-4, abs=1e-5)
    assert len(set(expected)) > 1


@every_net
@pytest.mark.parametrize("objective", ["rank", "regression"])
def test_training_learns_the_order_and_repeats(spec: NetSpec, objective: Objective) -> None:
    trees = some_trees()
    # Slow where no loop is vectorised.
    vectorised = trees.values[:, :, FEATURE_NAMES.index("vectorize")].max(axis=1)
    samples = samples_of(10.0 - 5.0 * vectorised.astype(np.float64))
    learner = GraphLearner(objective, spec, TrainingSpec(epochs=25, batch=16))
    first, second = (learner.fit(trees, samples, 5) for _ in range(2))
    costs = first.predict(trees)
    assert np.array_equal(costs, second.predict(trees))
    assert not np.array_equal(costs, learner.fit(trees, samples, 6).predict(trees))
    assert (costs[vectorised == 0][:, None] > costs[vectorised == 1]).mean() > 0.95


@every_net
def test_starting_costs_are_added_in_training(spec: NetSpec) -> None:
    """What an earlier model says already is not learned again."""
    trees = some_trees()
    runtimes = 1.0 + trees.values[:, :, FEATURE_NAMES.index("unroll")].max(axis=1).astype(np.float64)
    speed = runtimes.min() / runtimes
    learner = GraphLearner("regression", spec, TrainingSpec(epochs=25, batch=16))
    left = learner.fit(trees, samples_of(runtimes, start=-speed), 0).predict(trees)
    assert np.abs(left).max() < 0.2


def test_the_order_of_the_program_matters_to_the_lstm_only() -> None:
    """Without edges between them, a graph network cannot tell which of two loops is written first."""
    trees = some_trees(8)
    samples = samples_of(np.arange(1.0, 9.0))
    for name, spec in SPECS.items():
        model = GraphLearner(spec=spec, training=TrainingSpec(epochs=1)).fit(trees, samples, 0)
        real = int((trees.depths[0] > 0).sum())
        turned = np.arange(trees.depths.shape[1])
        turned[:real] = turned[:real][::-1]
        back = np.argsort(turned)
        parents = trees.parents[:1, turned]
        other = LoopTrees(
            trees.values[:1, turned],
            np.where(parents >= 0, back[parents], -1),
            trees.depths[:1, turned],
            trees.identifiers[:1, turned],
        )
        costs = [model.predict(one)[0] for one in (trees[np.array([0])], other)]
        # A batch sorts nodes so that an edge leads forwards: what is left is the order of siblings.
        assert (abs(costs[0] - costs[1]) < 1e-4) == (name == "gnn")


def test_training_leaves_torchs_generator_and_threads_alone() -> None:
    trees = some_trees(4)
    before, threads = torch.random.get_rng_state(), torch.get_num_threads()
    GraphLearner(training=TrainingSpec(epochs=1)).fit(trees, samples_of(np.arange(1.0, 5.0)), 0)
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.get_num_threads() == threads


def test_no_schedules_have_no_costs() -> None:
    trees = some_trees(4)
    model = GraphLearner(training=TrainingSpec(epochs=1)).fit(trees, samples_of(np.arange(1.0, 5.0)), 0)
    assert model.predict(trees[np.zeros(0, np.int64)]).shape == (0,)
