"""Raw files to TpuGraphs' arrays: documented counts, and what goes where."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from costbench.compiler.spaces import TileSizes
from costbench.datasets.layout_graphs import open_layout_graph
from costbench.datasets.tpugraphs.npz import (
    convert_layout_npz,
    read_tile_npz,
    write_layout_npz,
    write_tile_npz,
)
from costbench.datasets.tpugraphs.raw import read_layout_tuning, read_tile_tuning
from costbench.errors import DataError
from costbench.features.tpugraphs_graphs import layout_graph_of, tile_graph, tile_graph_of
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape
from tests.datasets.test_layout_graphs import assert_equal


def test_a_kernel_of_our_own() -> None:
    shape = Shape(ElementType.F32, (16, 256), (1, 0))
    body = HloComputation(
        "k",
        (
            Instruction(name="x", opcode=Opcode.PARAMETER, shape=shape),
            Instruction(name="y", opcode=Opcode.ERF, shape=shape, operands=(0,)),
        ),
        root=1,
    )
    tiles = TileSizes(np.zeros((2, 0), np.int64), np.array([[2, 2], [1, 2]]))
    graph = tile_graph(HloModule("k", (body,), entry=0), tiles, np.array([30, 40]), normalizer_ns=30)
    assert graph.node_opcode.tolist() == [int(Opcode.PARAMETER), 0]
    assert graph.edge_index.tolist() == [[1, 0]]
    assert graph.config_feat[:, 8:16].tolist() == [[2, 2, 0, 0, 0, 0, 4, 4], [1, 2, 0, 0, 0, 0, 3, 2]]
    assert graph.config_runtime.tolist() == [30, 40]
    assert graph.config_runtime_normalizers.tolist() == [30, 30]


def test_real_tiles_survive_a_round_trip(shared_data: Path, tmp_path: Path) -> None:
    kernels = read_tile_tuning(shared_data / "real_tpu" / "tile_calibration.pb")
    for tuning in kernels[1:]:
        graph = tile_graph_of(tuning)
        assert len(graph.node_feat) == tuning.module.num_instructions
        assert (graph.config_runtime_normalizers == tuning.runtime_ns[tuning.is_default][0]).all()
        write_tile_npz(tmp_path / "k.npz", graph)
        again = read_tile_npz(tmp_path / "k.npz")
        for field, array in vars(graph).items():
            np.testing.assert_array_equal(getattr(again, field), array, err_msg=field)


def test_a_kernel_without_a_default_run_cannot_be_normalised(shared_data: Path) -> None:
    # The calibration subset holds no default of this kernel.
    first = read_tile_tuning(shared_data / "real_tpu" / "tile_calibration.pb")[0]
    with pytest.raises(DataError, match=r"fusion\.191: no default run"):
        tile_graph_of(first)


def test_the_real_layout_program_survives_a_round_trip(shared_data: Path, tmp_path: Path) -> None:
    tuning = read_layout_tuning(shared_data / "real_tpu" / "layout_module.pb")
    graph = layout_graph_of(tuning, "unet", "layout:xla:random")
    assert graph.node_features.shape == (3163, 140)
    assert graph.edges.shape == (5112, 2)
    assert len(np.unique(graph.opcodes)) == 41
    assert len(graph.node_splits) == 8
    assert graph.node_splits[[0, -1]].tolist() == [0, 3163]
    features = graph.config_features(slice(None))
    assert features.shape == (112, 62, 18)
    assert features.tolist() == tuning.minor_to_major.reshape(112, 62, 18).tolist()
    chosen = graph.opcodes[graph.node_config_ids]
    assert (chosen == int(Opcode.CONVOLUTION)).sum() == 53
    assert (chosen == int(Opcode.RESHAPE)).sum() == 9
    # Reshapes have no kernel tensor, convolutions have all three.
    assert (features[:, chosen == int(Opcode.RESHAPE), 12:] == -1).all()
    assert (features[:, chosen == int(Opcode.CONVOLUTION)][:, :, [0, 6, 12]] >= 0).all()
    assert int(graph.runtime_ns.min()) == 910_876_401
    assert tuning.normalizer_ns == 910_903_932
    write_layout_npz(tmp_path / "p.npz", graph)
    convert_layout_npz(tmp_path / "p.npz", tmp_path / "p.arrow", name="unet", collection="layout:xla:random")
    assert_equal(open_layout_graph(tmp_path / "p.arrow"), graph)
