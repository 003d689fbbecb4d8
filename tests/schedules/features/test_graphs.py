"""Program order and edges of schedules by hand, and against the program written statement by statement."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from costbench import rng
from costbench_schedules.features.context import FEATURE_NAMES, context_features
from costbench_schedules.features.trees import DATA_FLOW, LOOP, loop_graphs, loop_trees
from costbench_schedules.features.vectors import REPRESENTATIONS
from costbench_schedules.operators.operators import parse_operator
from costbench_schedules.spaces.nest import STATEMENTS, ScheduledNest, nest_batch, schedule_at
from costbench_schedules.spaces.space import ScheduleSpace

EXTENT = FEATURE_NAMES.index("extent")
Node = tuple[str, int]


def test_a_small_nest_by_hand() -> None:
    """for i0 < 2: (for j3 < 4: init), (for r0 < 2: for j3 < 4: compute)."""
    space = ScheduleSpace(parse_operator("matmul:m=2,n=4,k=2"))
    tiles = {"tile i": (2, 1, 1, 1), "tile j": (1, 1, 1, 4), "tile r": (2, 1)}
    rest = {"cache": "none", "vectorize": 0, "unroll": 0, "parallel": "none", "padding": "none"}
    row = space.row_of({**tiles, "order": "S0 S1 R0 R1 S2 S3", **rest})
    graphs = loop_graphs(REPRESENTATIONS["tree"](space, np.stack([row, row])))
    assert graphs.counts.tolist() == [6, 6]
    init, compute = (1 + STATEMENTS.index(name) for name in ("init", "compute"))
    assert graphs.kinds.tolist() == [LOOP, LOOP, init, LOOP, LOOP, compute] * 2
    assert graphs.values[:6, EXTENT] == pytest.approx(np.log2([3.0, 5.0, 1.0, 3.0, 5.0, 1.0]))
    inside = {(0, 1), (1, 2), (0, 3), (3, 4), (4, 5)}
    flow = {(2, 5)}
    own = inside | flow
    assert sorted(map(tuple, graphs.edges.T.tolist())) == sorted(own | {(a + 6, b + 6) for a, b in own})


def written(nest: ScheduledNest) -> tuple[list[tuple[Node, float]], set[tuple[Node, Node]]]:
    """The nodes of a program with their extents in the order in which it is written, and its edges."""
    children: dict[Node, list[Node]] = {("", -1): []}
    extents: dict[Node, float] = {}
    for statement in nest.statements:
        above = ("", -1)
        for index, loop in enumerate(statement.loops):
            node = ("compute" if index < statement.shared else statement.name, index)
            if node not in children:
                children[node] = []
                children[above].append(node)
                extents[node] = float(loop.extent)
            above = node
        leaf = (f"{statement.name} itself", 0)
        children[above].append(leaf)
        children[leaf], extents[leaf] = [], 0.0

    def below(node: Node) -> Iterator[Node]:
        for child in children[node]:
            yield child
            yield from below(child)

    order = list(below(("", -1)))
    edges = {(node, child) for node in order for child in children[node]}
    names = [statement.name for statement in nest.statements]
    flow = {((f"{a} itself", 0), (f"{b} itself", 0)) for a, b in DATA_FLOW if a in names and b in names}
    return [(node, extents[node]) for node in order], edges | flow


@pytest.mark.parametrize("workload", ["C2", "C6", "C8", "matmul-256", "depthwise-256", "batch-matmul-12"])
def test_graphs_are_those_of_the_program_as_it_is_written(workload: str) -> None:
    space = ScheduleSpace(parse_operator(workload))
    nests = nest_batch(space, space.sample(rng.stream(0, "graphs", workload), 60))
    graphs = loop_graphs(loop_trees(context_features(nests)))
    first = 0
    for position, count in enumerate(graphs.counts.tolist()):
        nodes, edges = written(schedule_at(nests, position))
        assert count == len(nodes)
        own = slice(first, first + count)
        expected = np.log2(1.0 + np.array([extent for _, extent in nodes]))
        np.testing.assert_allclose(graphs.values[own, EXTENT], expected, rtol=1e-6)
        kinds = [
            STATEMENTS.index(name.split()[0]) + 1 if "itself" in name else LOOP for (name, _), _ in nodes
        ]
        assert graphs.kinds[own].tolist() == kinds
        number = {node: first + at for at, (node, _) in enumerate(nodes)}
        mine = graphs.edges[:, (graphs.edges[1] >= first) & (graphs.edges[1] < first + count)]
        assert sorted(map(tuple, mine.T.tolist())) == sorted((number[a], number[b]) for a, b in edges)
        first += count
    assert (graphs.edges[0] < graphs.edges[1]).all()
    assert first == len(graphs.kinds)
