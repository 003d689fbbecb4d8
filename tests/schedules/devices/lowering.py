"""Loops and accesses of a schedule's program as TVM lowers it: what nests are compared with. Needs TVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, sym, tirx

from costbench_schedules.devices import tvm_adapter
from costbench_schedules.operators.operators import Operator
from costbench_schedules.spaces.space import Value


@dataclass(frozen=True)
class LoweredStore:
    """One store of the lowered program.

    Attributes:
        loops: extent and kind of each loop around it, outermost first; kinds are those of TVM: 0 serial,
            1 parallel, 2 vectorized, 3 unrolled.
        accesses: for each load, then the store: the buffer's name and the elements between accesses of
            consecutive iterations of each loop; None where an index is not affine.
    """

    loops: tuple[tuple[int, int], ...]
    accesses: tuple[tuple[str, tuple[int, ...] | None], ...]


def lower_stores(
    operator: Operator, choices: Mapping[str, Value], unrolled: bool = False
) -> list[LoweredStore]:
    """Returns the stores of a schedule's program after lowering, before vectorisation and unrolling.

    Args:
        operator: operator that is computed.
        choices: choice of each knob.
        unrolled: whether the stores after both are returned instead.
    """
    passes = [
        s_tir.transform.CanonicalizeLoop(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.StmtSimplify(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.FlattenBuffer(),
    ]
    if unrolled:
        passes += [tirx.transform.VectorizeLoop(True), tirx.transform.UnrollLoop()]
    module = tvm.transform.Sequential([*passes, tirx.transform.StmtSimplify()])(
        tvm_adapter.schedule_operator(operator, choices).mod
    )
    stores: list[LoweredStore] = []
    _collect(module[tvm_adapter.ENTRY].body, [], stores)
    return stores


def _collect(node: Any, loops: list[Any], stores: list[LoweredStore]) -> None:
    if isinstance(node, tirx.For):
        _collect(node.body, [*loops, node], stores)
    elif isinstance(node, tirx.SeqStmt):
        for part in node:
            _collect(part, loops, stores)
    elif isinstance(node, tirx.IfThenElse):
        _collect(node.then_case, loops, stores)
    elif isinstance(node, tirx.BufferStore):
        stores.append(_store(node, loops))
    elif hasattr(node, "body"):
        _collect(node.body, loops, stores)


def _store(node: Any, loops: list[Any]) -> LoweredStore:
    loads: list[Any] = []
    tvm_ffi.structural_walk(node.value, [(tvm.ir.expr.TensorLoad, loads.append)], order="pre")
    accesses = [(load.source.name, _strides(load.indices, loops)) for load in loads]
    accesses.append((node.buffer.name, _strides(node.indices, loops)))
    sizes = tuple((int(loop.extent), int(loop.kind)) for loop in loops)
    return LoweredStore(sizes, tuple(accesses))


def _strides(indices: Any, loops: list[Any]) -> tuple[int, ...] | None:
    [index] = indices
    coefficients = sym.detect_linear_equation(index, [loop.loop_var for loop in loops])
    return tuple(int(value) for value in list(coefficients)[:-1]) if len(coefficients) else None
