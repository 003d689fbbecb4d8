"""TVM behind one module: schedules become machine code of this processor. Nothing else imports TVM.

TVM renames its interface between minor versions, so the extra `cpu` pins it, and what this project asks of it
is here: build, run, print. TVM must not start threads of its own in a process that measures: set
TVM_NUM_THREADS=1 before this module is imported.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import s_tir, te, tirx

from costbench.arrays import F32
from costbench.errors import ChoiceError, DataError
from costbench.installation import install_line
from costbench_schedules.devices.host import this_processor
from costbench_schedules.operators.operators import DTYPE, PADDED, Axis, Operator
from costbench_schedules.spaces.nest import LANES
from costbench_schedules.spaces.space import (
    CACHES,
    ORDERS,
    PADDINGS,
    PARALLEL,
    SPATIAL_LEVELS,
    Value,
    tile_name,
)

BROKEN_FFI = ("0.1.15",)
"""Versions of apache-tvm-ffi that crash in `tvm.ir.save_json`; pip would choose them unpinned."""
TARGETS = ("native", "generic")
ENTRY = "main"
KERNEL = "main_compute_"
"""Function of the loops in a built program; those around it check arguments."""
_BLOCK = "compute"


@dataclass(frozen=True)
class HostToolchain:
    """What machine code is made for and by.

    Attributes:
        processor: model name, as the operating system has it.
        architecture: instruction set family, such as x86_64.
        mcpu: LLVM's name of the processor.
        features: instruction set extensions that decide the width of vectors, sorted.
        versions: versions of TVM, its ffi and LLVM.
    """

    processor: str
    architecture: str
    mcpu: str
    features: tuple[str, ...]
    versions: Mapping[str, str]


def check_versions() -> None:
    """Raises DataError if the installed apache-tvm-ffi is one that crashes."""
    if tvm_ffi.__version__.startswith(BROKEN_FFI):
        expected = install_line("cpu")
        raise DataError(f"apache-tvm-ffi {tvm_ffi.__version__} crashes with this TVM", expected=expected)


@cache
def host() -> HostToolchain:
    """Returns what this machine is."""
    versions = {"tvm": tvm.__version__, "tvm_ffi": tvm_ffi.__version__}
    versions["llvm"] = str(tvm.target.codegen.llvm_version_major())
    processor = this_processor()
    return HostToolchain(
        processor.name,
        processor.architecture,
        str(tvm.target.codegen.llvm_get_system_cpu()),
        processor.features,
        versions,
    )


@cache
def target_of(name: str) -> Any:
    """Returns TVM's target for a processor by name.

    "native" is all of this processor, "generic" the least of its family; other names are LLVM's.

    Raises:
        ChoiceError: if LLVM does not know the name.
    """
    mcpu = {"native": host().mcpu, "generic": _generic()}.get(name, name)
    plain = tvm.target.Target({"kind": "llvm", "mcpu": host().mcpu})
    known = {str(cpu) for cpu in tvm.target.codegen.llvm_get_cpu_archlist(plain)}
    if mcpu not in known:
        raise ChoiceError(f"unknown processor {name!r}", expected="native, generic or a name of LLVM's -mcpu")
    return tvm.target.Target({"kind": "llvm", "mcpu": mcpu, "num-cores": 1})


def _generic() -> str:
    return "x86-64" if platform.machine() in ("x86_64", "AMD64") else "generic"


class Program:
    """Machine code of one schedule; call it with the operator's arrays."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._call = library[ENTRY]

    def __call__(self, arrays: Sequence[Any]) -> None:
        """Runs once on arrays of `device_arrays`."""
        self._call(*arrays)

    def llvm_ir(self) -> str:
        """Returns the optimised LLVM IR as text; its kernel is the function `KERNEL`."""
        return str(self._library.inspect_source("ll"))


def device_arrays(arrays: Sequence[F32]) -> list[Any]:
    """Returns copies of arrays as a `Program` takes them."""
    return [tvm.runtime.tensor(array, device=tvm.cpu()) for array in arrays]


def to_numpy(array: Any) -> F32:
    """Returns a copy of an array of `device_arrays`."""
    return np.asarray(array.numpy())


def build(operator: Operator, choices: Mapping[str, Value], target: str) -> Program:
    """Returns the machine code of a schedule.

    Args:
        operator: operator that is computed.
        choices: choice of each knob, see `ScheduleSpace.choices`.
        target: name of the target, see `target_of`.

    Raises:
        Exception: whatever TVM raises where it cannot build.
    """
    module = schedule_operator(operator, choices).mod
    return Program(tvm.tirx.build(module, target=target_of(target)))


def write_program(module: Any, path: Path) -> None:
    """Writes a module as TVM's JSON, for `build_program`."""
    path.write_text(tvm.ir.save_json(module), encoding="utf-8")


def build_program(path: Path, target: str) -> Program:
    """Returns the machine code of a module in a file of `write_program`. Raises: whatever TVM raises."""
    module = tvm.ir.load_json(path.read_text(encoding="utf-8"))
    return Program(tvm.tirx.build(module, target=target_of(target)))


def module_of(operator: Operator) -> Any:
    """Returns TVM's module of an operator before scheduling, arguments are its inputs, then the output."""
    placeholders = {name: te.placeholder(operator.tensors[name], DTYPE, name) for name in operator.inputs}
    tensors = dict(placeholders)
    for name, (source, before) in operator.padding.items():
        tensors[name] = _padded(tensors[source], operator.tensors[name], before)
    reduce_axes = {axis.name: te.reduce_axis((0, axis.extent), axis.name) for axis in operator.reduce}
    reads = [access for access in operator.accesses if not access.write]

    def body(*indices: Any) -> Any:
        values = dict(zip((axis.name for axis in operator.spatial), indices, strict=True)) | reduce_axes
        terms = []
        for access in reads:
            index = [
                sum((values[axis] * factor for axis, factor in dim[1:]), values[dim[0][0]] * dim[0][1])
                for dim in access.strides
            ]
            terms.append(tensors[access.tensor](*index))
        return te.sum(reduce(lambda left, right: left * right, terms), axis=list(reduce_axes.values()))

    shape = tuple(axis.extent for axis in operator.spatial)
    output = te.compute(shape, body, name=_BLOCK)
    return tvm.IRModule({ENTRY: te.create_prim_func([*placeholders.values(), output])})


def _padded(source: Any, shape: tuple[int, ...], before: tuple[int, ...]) -> Any:
    def body(*indices: Any) -> Any:
        inner = [index - pad for index, pad in zip(indices, before, strict=True)]
        bounds = [
            (index >= pad, index < pad + extent.value)
            for index, pad, extent in zip(indices, before, source.shape, strict=True)
            if pad
        ]
        conditions = [condition for pair in bounds for condition in pair]
        return tirx.if_then_else(tirx.all(*conditions), source(*inner), tirx.const(0.0, source.dtype))

    return te.compute(shape, body, name=_stage_name(source.op.name + PADDED))


def _stage_name(tensor: str) -> str:
    return tensor.replace(".", "_")


class _Loops:
    """The loops of the computation while it is scheduled."""

    def __init__(self, schedule: Any, operator: Operator, choices: Mapping[str, Value]) -> None:
        self.schedule = schedule
        self.num_spatial = len(operator.spatial)
        block = schedule.get_sblock(_BLOCK)
        loops = dict(zip(operator.axes, schedule.get_loops(block), strict=True))
        parts = {axis: self._split(loop, axis, choices) for axis, loop in loops.items()}
        levels = {f"S{i}": [parts[axis][i] for axis in operator.spatial] for i in range(SPATIAL_LEVELS)}
        levels |= {f"R{i}": [parts[axis][i] for axis in operator.reduce] for i in range(2)}
        order = ORDERS[str(choices["order"])]
        self.loops = [loop for name in order for loop in levels[name]]
        schedule.reorder(*self.loops)
        self.first_reduce = order.index("R0") * self.num_spatial
        self.vector = levels["S3"][-1]
        first = 1 + next((i for i, a in enumerate(operator.spatial) if a.extent > 1), self.num_spatial - 1)
        counts = dict(zip(PARALLEL, (0, first, self.num_spatial, 2 * self.num_spatial), strict=True))
        self.num_parallel = counts[str(choices["parallel"])]

    def _split(self, loop: Any, axis: Axis, choices: Mapping[str, Value]) -> list[Any]:
        factors = choices[tile_name(axis)]
        assert isinstance(factors, tuple)
        return list(self.schedule.split(loop, factors=list(factors)))

    def fuse(self) -> None:
        """Fuses the parallel loops and marks them."""
        if not self.num_parallel:
            return
        head, tail = self.loops[: self.num_parallel], self.loops[self.num_parallel :]
        fused = self.schedule.fuse(*head) if len(head) > 1 else head[0]
        self.schedule.parallel(fused)
        self.loops = [fused] * self.num_parallel + tail

    def inside(self, levels: int) -> Any:
        """Returns the innermost loop of the outermost spatial levels."""
        return self.loops[levels * self.num_spatial - 1]


def schedule_operator(operator: Operator, choices: Mapping[str, Value]) -> Any:
    """Returns TVM's schedule of a configuration: `.mod` is the program, `.trace` how it came about."""
    schedule = s_tir.Schedule(module_of(operator), debug_mask="none")
    block = schedule.get_sblock(_BLOCK)
    loops = _Loops(schedule, operator, choices)
    vectorize = choices["vectorize"] == 1
    loops.fuse()
    if choices["cache"] != CACHES[0]:
        levels = loops.first_reduce // loops.num_spatial
        if choices["cache"] == CACHES[2]:
            levels = 2 if choices["parallel"] == PARALLEL[3] else 1
        copy = schedule.cache_write(block, 0, "local")
        schedule.reverse_compute_at(copy, loops.inside(levels), preserve_unit_loops=True)
        _vectorize_copy(schedule, copy, len(operator.spatial), vectorize)
    for name, (source, _) in operator.padding.items():
        stage = schedule.get_sblock(_stage_name(source + PADDED))
        _place_padding(
            schedule, stage, str(choices["padding"]), loops, len(operator.tensors[name]), vectorize
        )
    _annotate(schedule, block, loops, vectorize, choices)
    return schedule


def _place_padding(schedule: Any, stage: Any, choice: str, loops: _Loops, rank: int, vectorize: bool) -> None:
    if choice == PADDINGS[0]:
        schedule.compute_inline(stage)
        return
    if choice == PADDINGS[2]:
        schedule.compute_at(stage, loops.inside(2), preserve_unit_loops=True)
    _vectorize_copy(schedule, stage, rank, vectorize)


def _vectorize_copy(schedule: Any, block: Any, rank: int, vectorize: bool) -> None:
    last = schedule.get_loops(block)[-rank:][-1]
    extent = int(schedule.get(last).extent)
    lanes = max((width for width in range(1, LANES + 1) if extent % width == 0), default=1)
    if vectorize and lanes > 1:
        _, inner = schedule.split(last, factors=[extent // lanes, lanes])
        schedule.vectorize(inner)


def _annotate(
    schedule: Any, block: Any, loops: _Loops, vectorize: bool, choices: Mapping[str, Value]
) -> None:
    vectorize = vectorize and int(schedule.get(loops.vector).extent) > 1
    if vectorize:
        # Of a reduction that is decomposed TVM does not see any more that it may be vectorised.
        schedule.vectorize(loops.vector)
    init = schedule.decompose_reduction(block, loops.loops[loops.first_reduce])
    if vectorize:
        schedule.vectorize(schedule.get_loops(init)[-1])
    if choices["unroll"]:
        schedule.annotate(loops.loops[0], "pragma_auto_unroll_max_step", choices["unroll"])
        schedule.annotate(loops.loops[0], "pragma_unroll_explicit", 1)


def script(operator: Operator, choices: Mapping[str, Value]) -> str:
    """Returns the scheduled program as readable code."""
    return str(schedule_operator(operator, choices).mod.script())


def trace(operator: Operator, choices: Mapping[str, Value]) -> list[object]:
    """Returns the schedule's trace in JSON; `tvm.s_tir.Trace.apply_json_to_schedule` applies it again."""
    plain = _plain(schedule_operator(operator, choices).trace.as_json())
    assert isinstance(plain, list)
    return plain


def _plain(value: Any) -> object:
    """Returns TVM's containers and numbers as those of JSON."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, (bool, int, float)) or value is None:
        return value
    if isinstance(value, tvm.tirx.IntImm):
        return int(value)
    return [_plain(item) for item in value]
