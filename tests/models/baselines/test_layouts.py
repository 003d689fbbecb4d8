"""Layout baselines on graphs whose fastest configs are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from costbench.datasets.layout_graphs import LayoutGraph, open_layout_graph, write_layout_graph
from costbench.errors import DataError
from costbench.experiments.evaluation.unfitted import default_first, random_order
from costbench.features.schema import NODE_FEATURES, column
from costbench.hlo.opcode import Opcode
from costbench.metrics.ranking import kendall_tau
from costbench.models.baselines.layouts import (
    CONFIG_FEATURES,
    LayoutTrees,
    changed_nodes,
    config_rows,
    default_options,
    program_table,
    sample_layouts,
)
from costbench.models.baselines.spec import BaselineSpec, SampleSpec, TreesSpec

SPEC = BaselineSpec(SampleSpec(10, 60), SampleSpec(10, 60), TreesSpec(40, 10, 0.2, 7, 5, 1.0, 0.0))


def graph(seed: int, num_configs: int = 80, name: str = "net") -> LayoutGraph:
    """Nodes of f32[256,100], slow where many have columns in the lanes, which need padding."""
    draw = np.random.Generator(np.random.PCG64(seed))
    nodes = 6
    features = np.zeros((nodes, 140), np.float32)
    for key, value in {
        "shape_element_type_is_f32": 1,
        "shape_dimensions_0": 256,
        "shape_dimensions_1": 100,
        "shape_dimensions_product": 25600,
        "layout_minor_to_major_0": 0,
        "layout_minor_to_major_1": 1,
    }.items():
        features[:, column(NODE_FEATURES, key)] = value
    options = np.full((2 * nodes, 18), -1.0, np.float32)
    options[1::2, :2] = (1, 0)
    chosen = draw.integers(0, 2, size=(num_configs, nodes)).astype(np.int16)
    chosen[0] = 0
    runtime = 1000 + 100 * chosen.sum(axis=1) + draw.integers(0, 30, num_configs)
    return LayoutGraph(
        name=name,
        program=name,
        collection="layout:xla:random",
        node_features=features,
        opcodes=np.array([Opcode.DOT, Opcode.CONVOLUTION] * 3, np.int32),
        edges=np.zeros((0, 2), np.int32),
        node_config_ids=np.arange(nodes, dtype=np.int32),
        option_offsets=np.arange(0, 2 * nodes + 1, 2, dtype=np.int64),
        option_features=options,
        config_options=chosen,
        runtime_ns=runtime.astype(np.int64),
        node_splits=np.array([0, nodes], np.int64),
    )


def feature(rows: np.ndarray, name: str) -> list[float]:
    return rows[:, CONFIG_FEATURES.index(name)].tolist()  # type: ignore[no-any-return]


def test_features_by_hand() -> None:
    one = replace(
        graph(0, 3), config_options=np.array([[0] * 6, [1, 0, 1, 0, 0, 0], [0, 1, 0, 0, 0, 0]], np.int16)
    )
    rows = config_rows(one)
    assert rows.shape == (3, len(CONFIG_FEATURES))
    # Two of six nodes, both dots, with two sixths of the bytes.
    assert feature(rows, "dot_changed") == pytest.approx([0.0, 2 / 6, 0.0])
    assert feature(rows, "convolution_bytes") == pytest.approx([0.0, 0.0, 1 / 6])
    assert feature(rows, "dot_fastest_output") == pytest.approx([0.0, 2 / 6, 0.0])
    assert feature(rows, "dot_fastest_input") == [0.0, 0.0, 0.0]
    # 256 x 100 needs 256 x 104 elements with rows in the lanes, 128 x 256 with columns in them.
    grown = np.log(128 / 100) - np.log(104 / 100)
    assert feature(rows, "dot_padding") == pytest.approx([0.0, 2 / 6 * grown, 0.0], rel=1e-5)
    assert feature(rows, "share_dot") == [0.5] * 3
    assert feature(rows, "other_changed") == [0.0] * 3


def test_chunks_and_choices_of_rows_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    one = graph(1)
    whole = config_rows(one)
    monkeypatch.setattr("costbench.models.baselines.layouts._CHUNK_VALUES", 18)
    assert np.array_equal(config_rows(one), whole)
    assert np.array_equal(config_rows(one, np.array([7, 3])), whole[[7, 3]])
    assert np.array_equal(config_rows(one, slice(5, 8)), whole[5:8])


def test_the_default_is_the_option_that_says_nothing() -> None:
    one = graph(0, 4)
    turned = one.option_features.reshape(6, 2, 18)[:, ::-1].reshape(12, 18)
    assert default_options(one).tolist() == [0] * 6
    assert default_options(replace(one, option_features=turned)).tolist() == [1] * 6
    # Without one, the first option is the default.
    assert default_options(replace(one, option_features=np.ones((12, 18), np.float32))).tolist() == [0] * 6
    assert changed_nodes(one).tolist() == one.config_options.sum(axis=1).tolist()
    assert default_first(one)[0] == 0.0


def test_random_orders_are_repeatable_and_rank_nothing() -> None:
    one = graph(2, 400)
    assert np.array_equal(random_order(one, 0), random_order(one, 0))
    assert not np.array_equal(random_order(one, 0), random_order(one, 1))
    assert not np.array_equal(random_order(one, 0), random_order(replace(one, name="x"), 0))
    assert abs(kendall_tau(random_order(one, 0), one.runtime_ns)) < 0.1


def test_trees_learn_the_order_of_other_programs(tmp_path: Path) -> None:
    paths = {}
    for name, seed in (("a", 1), ("b", 2), ("c", 3)):
        paths[name] = tmp_path / f"{name}.arrow"
        write_layout_graph(paths[name], graph(seed, name=name), {"application": name.upper()})
    train = sample_layouts([paths["b"], paths["a"]], SPEC.training, seed=0)
    validation = sample_layouts([paths["c"]], SPEC.validation, seed=0)
    trees = LayoutTrees.fit(train, validation, SPEC, seed=0)
    assert LayoutTrees.fit(train, validation, SPEC, seed=0) == trees
    unseen = graph(9, name="new")
    costs = trees.predict(program_table(unseen))
    assert kendall_tau(costs, unseen.runtime_ns) > 0.8
    assert np.array_equal(trees.predict(program_table(unseen, np.array([5, 1]))), costs[[5, 1]])


def test_applications_count_the_same_and_programs_and_configs_are_drawn(tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.arrow" for name in "abcd"]
    for place, path in enumerate(paths):
        one = graph(place, 40, name=path.stem)
        write_layout_graph(path, one, {"application": "B" if place < 3 else "A"})
    table = sample_layouts(paths, SampleSpec(kernels=2, configs=7), seed=0)
    assert table.counts.tolist() == [7, 7, 7]
    assert table.applications.tolist() == [0, 1, 1]
    known = {tuple(row) for row in config_rows(open_layout_graph(paths[3])).tolist()}
    assert all(tuple(row) in known for row in table.features[:7].tolist())


def test_without_two_runtimes_there_is_nothing_to_fit(tmp_path: Path) -> None:
    equal = replace(graph(0, 3), runtime_ns=np.array([5, 5, 5], np.int64))
    write_layout_graph(tmp_path / "x.arrow", equal, {"application": "A"})
    with pytest.raises(DataError, match="no layouts to fit"):
        sample_layouts([tmp_path / "x.arrow"], SPEC.training, seed=0)


def test_other_models_are_refused() -> None:
    with pytest.raises(DataError, match="no trees"):
        LayoutTrees("tree")
