"""Small raw tuning files, written field by field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from costbench.datasets.tpugraphs.proto import tuning_pb2
from costbench.hlo.conversion import module_to_proto
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloComputation, HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.shape import ElementType, Shape


def copy_module(name: str = "copy.1") -> HloModule:
    shape = Shape(ElementType.F32, (16, 256), (1, 0))
    body = HloComputation(
        "main",
        (
            Instruction(name="x", opcode=Opcode.PARAMETER, shape=shape),
            Instruction(name="y", opcode=Opcode.COPY, shape=shape.with_layout((0, 1)), operands=(0,)),
        ),
        root=1,
    )
    return HloModule(name, (body,), entry=0)


def tile_file(
    path: Path, runs: list[dict[str, Any]], module: HloModule | None = None, kernels: int = 1
) -> Path:
    """A raw tile file; a run is output_bounds, time, error and so on."""
    data = tuning_pb2.TuningData()
    for _ in range(kernels):
        entry = data.modules.add(module=module_to_proto(module or copy_module()))
        for run in runs:
            stored = entry.runs.add(error=run.get("error", False), is_default=run.get("default", False))
            stored.profile.compute_time_ns = run.get("time", 100)
            if run.get("tile", True):
                tile = stored.op_config.tile_size_config
                tile.SetInParent()
                for field in ("kernel_bounds", "output_bounds", "input_bounds", "iteration_bounds"):
                    getattr(tile, field).extend(run.get(field, ()))
    path.write_bytes(data.SerializeToString())
    return path


def layout_file(path: Path, nodes: list[int], runs: list[dict[str, Any]]) -> Path:
    """A raw layout file; a run is a list of tensors per node, time, error and so on."""
    data = tuning_pb2.ModuleTuningData(module=module_to_proto(copy_module()), config_index_to_node=nodes)
    for run in runs:
        stored = data.runs.add(error=run.get("error", False), is_default=run.get("default", False))
        stored.profile.compute_time_ns = run.get("time", 100)
        stored.module_config.layout_config.SetInParent()
        for tensors in run["layouts"]:
            node = stored.module_config.layout_config.nodes.add()
            for axes in tensors:
                node.tensors.add(dims=axes)
    path.write_bytes(data.SerializeToString())
    return path
