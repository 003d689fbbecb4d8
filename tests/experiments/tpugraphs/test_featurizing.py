"""Features of HLO files of any form."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from costbench.datasets.tpugraphs.raw import node_splits, read_layout_tuning
from costbench.errors import HloError
from costbench.experiments.tpugraphs.featurizing import featurize_file
from costbench.features.node import module_edges, module_node_features, tpugraphs_opcodes
from costbench.features.tpugraphs_graphs import layout_graph_of, proto_graph
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.reader import read_module, read_proto
from costbench.hlo.text.parser import proto_from_text

TEXT = """HloModule step

ENTRY main {
  x = f32[512,1024]{1,0} parameter(0)
  y = f32[512,1024]{1,0} tanh(x)
  ROOT z = f32[512,1024]{1,0} add(y, x)
}
"""


def test_text(tmp_path: Path) -> None:
    (tmp_path / "step.hlo.txt").write_text(TEXT)
    assert featurize_file(tmp_path / "step.hlo.txt", tmp_path / "step.npz") == (3, 3)
    with np.load(tmp_path / "step.npz", allow_pickle=False) as graph:
        assert {key: (graph[key].dtype.name, graph[key].shape) for key in graph} == {
            "node_feat": ("float32", (3, 140)),
            "node_opcode": ("int32", (3,)),
            "edge_index": ("int32", (3, 2)),
            "node_splits": ("int64", (2,)),
        }
        assert graph["edge_index"].tolist() == [[1, 0], [2, 0], [2, 1]]
        assert graph["node_feat"][:, 21:23].tolist() == [[512, 1024]] * 3
        assert graph["node_feat"][:, 0].tolist() == [0, 0, 1]


def test_the_same_features_as_those_of_a_verified_module(repository: Path) -> None:
    for name in ("alexnet_b128_train_f32", "wavernn_3_b1_infer_bf16", "ssd_512_b8_train_f32"):
        path = repository / "data" / "programs" / f"{name}.hlo.pb.zst"
        graph, module = proto_graph(read_proto(path), where=name), read_module(path)
        assert np.array_equal(graph.node_features, module_node_features(module))
        assert np.array_equal(graph.opcodes, tpugraphs_opcodes(module))
        assert np.array_equal(graph.edges, module_edges(module))
        assert np.array_equal(graph.node_splits, node_splits(module))


def test_a_program_of_26_000_instructions_has_features(repository: Path, tmp_path: Path) -> None:
    path = repository / "data" / "programs" / "nasnetmobile_b64_train_bf16.hlo.pb.zst"
    nodes, _ = featurize_file(path, tmp_path / "x.npz")
    assert nodes > 25_000


def test_what_is_not_known_stays_zero() -> None:
    proto = proto_from_text(TEXT, where="step")
    entry = proto.computations[0].instructions
    entry[1].opcode, entry[1].shape.element_type = "of-the-future", 33
    entry[2].operand_ids.append(entry[0].id)  # x is read twice
    entry[2].window.dimensions.add(size=3)
    graph = proto_graph(proto, where="step")
    assert graph.opcodes.tolist() == [63, 0, 2]
    assert graph.node_features[1, 2:21].tolist() == [0.0] * 19
    assert graph.edges.tolist() == [[1, 0], [2, 0], [2, 1]]
    # Size 3 and its sum and product; stride and dilations are not set and stay 0, so are their products.
    assert graph.node_features[2, [37, 43, 44, 45, 51, 52]].tolist() == [3, 3, 3, 0, 0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.instructions[1].operand_ids.append(99), r"main/y: operand id 99 does not exist"),
        (lambda c: setattr(c, "root_id", 99), "main: root id 99 does not exist"),
        (lambda c: setattr(c.instructions[1], "id", c.instructions[0].id), "two instructions share an id"),
        (lambda c: c.instructions[1].called_computation_ids.append(99), "called computation id 99"),
    ],
)
def test_broken_messages(change: Callable[[hlo_pb2.HloComputationProto], object], message: str) -> None:
    proto = proto_from_text(TEXT, where="step")
    change(proto.computations[0])
    with pytest.raises(HloError, match=message):
        proto_graph(proto, where="step")


def test_files_that_are_no_program(tmp_path: Path) -> None:
    for name, content in (("a.pb", bytes([255, 0])), ("b.txt", b"no program"), ("c.pb", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(HloError, match=name):
            featurize_file(tmp_path / name, tmp_path / "x.npz")
    with pytest.raises(HloError, match=r"absent\.pb: cannot read"):
        featurize_file(tmp_path / "absent.pb", tmp_path / "x.npz")


def test_a_real_program(shared_data: Path, tmp_path: Path) -> None:
    # The module is the first field of a layout file, where readers of HLO dumps find it.
    source = shared_data / "real_tpu" / "layout_module.pb"
    assert featurize_file(source, tmp_path / "x.npz") == (3163, 5112)
    wanted = layout_graph_of(read_layout_tuning(source), "x", "layout:xla:random")
    with np.load(tmp_path / "x.npz", allow_pickle=False) as graph:
        assert np.array_equal(graph["node_feat"], wanted.node_features)
        assert np.array_equal(graph["node_opcode"], wanted.opcodes)
        assert np.array_equal(graph["edge_index"], wanted.edges)
        assert np.array_equal(graph["node_splits"], wanted.node_splits)
