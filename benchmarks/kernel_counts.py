"""How many kernels the simulated compiler makes of a program, beside XLA:CPU's count for the same program.

    python -m benchmarks.kernel_counts [PROGRAM ...] [--programs data/programs] [--json]

XLA:CPU compiles the canonical program with every pass on, fusion among them; jaxlib's hook after its
scheduler hands the module over and raises, so that nothing goes to LLVM. XLA's kernels are the instructions
of computations that run which become code: fusions, convolutions, dots, custom calls, reductions, copies,
sorts and so on, but not arguments, constants, tuples, bitcasts, loops, calls and conditionals. Kernels of
both compilers are sorted by what is inside, the first of these that fits:

    contraction   a convolution or a dot
    scalar        single elements only, such as a loop's counter (ours are left to the scalar unit)
    convert       nothing but conversions between types
    move          nothing but filling, copying, picking, joining and reordering
    compute       all others
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from costbench.compiler.program import compile_program
from costbench.compiler.trip_counts import execution_counts
from costbench.errors import DataError, HloError
from costbench.hlo.instruction import Instruction
from costbench.hlo.module import HloModule
from costbench.hlo.opcode import Opcode
from costbench.hlo.reader import decompress, module_from_bytes
from costbench.hlo.shape import Shape
from costbench.programs.canonical import JAXLIB_VERSION

PROGRAMS = (
    "densenet201_b32_infer_bf16",
    "dlrm_b2048_train_f32",
    "mobilenet_b32_infer_f32",
    "nmt_small_b64_train_f32",
    "resnet50_b64_train_f32",
    "rnn_gru_b128_train_f32",
    "small_bert_L2_H128_b64_train_bf16",
    "ssd_resnet34_b8_infer_f32",
    "transformer_base_b64_train_bf16",
    "unet2d_b8_train_f32",
    "vgg16_b64_train_bf16",
    "wavernn_1_b8_train_f32",
)
SORTS = ("contraction", "scalar", "convert", "move", "compute")

NO_CODE = frozenset({
    Opcode.PARAMETER, Opcode.CONSTANT, Opcode.TUPLE, Opcode.GET_TUPLE_ELEMENT, Opcode.BITCAST, Opcode.WHILE,
    Opcode.CALL, Opcode.CONDITIONAL, Opcode.AFTER_ALL, Opcode.OPT_BARRIER, Opcode.ADD_DEPENDENCY,
    Opcode.PARTITION_ID, Opcode.REPLICA_ID,
})  # fmt: skip
_CONTRACTIONS = frozenset({Opcode.CONVOLUTION, Opcode.DOT})
_MOVES = frozenset({
    Opcode.BROADCAST, Opcode.IOTA, Opcode.COPY, Opcode.TRANSPOSE, Opcode.RESHAPE, Opcode.CONVERT,
    Opcode.SLICE, Opcode.CONCATENATE, Opcode.PAD, Opcode.REVERSE, Opcode.DYNAMIC_SLICE,
    Opcode.DYNAMIC_UPDATE_SLICE, Opcode.GATHER,
})  # fmt: skip
_HOOK_NAME = "costbench-kernel-counts"


@dataclass(frozen=True)
class Counts:
    """One compiler's kernels of one program.

    Attributes:
        instructions: in computations that run, those inside kernels included.
        by_computation: kernels of every computation that runs and has any, in the compiler's order.
        entry: kernels outside loops and callees.
        by_sort: kernels of each of `SORTS`.
        arrays: that the kernels write.
        epilogues: contraction kernels that compute something else, too.
        runs: kernels times how often their computation runs.
    """

    instructions: int
    by_computation: dict[str, int]
    entry: int
    by_sort: dict[str, int]
    arrays: int
    epilogues: int
    runs: int

    @property
    def kernels(self) -> int:
        """All kernels."""
        return sum(self.by_computation.values())

    def to_dict(self) -> dict[str, Any]:
        """All fields and `kernels`."""
        return vars(self) | {"kernels": self.kernels}


@dataclass(frozen=True)
class _Found:
    """A kernel: its computation, what is inside, arrays it writes, elements of the largest one it touches."""

    computation: int
    opcodes: frozenset[Opcode]
    arrays: int
    largest: int

    @property
    def is_epilogue(self) -> bool:
        """Whether a contraction and other work share the kernel."""
        return self.sort == "contraction" and bool(self.opcodes - NO_CODE - _CONTRACTIONS - _MOVES)

    @property
    def sort(self) -> str:
        """One of `SORTS`."""
        inside = self.opcodes - NO_CODE
        if inside & _CONTRACTIONS:
            return "contraction"
        if self.largest == 1:
            return "scalar"
        if inside == {Opcode.CONVERT}:
            return "convert"
        return "move" if inside <= _MOVES else "compute"


def simulated_counts(module: HloModule, name: str) -> Counts:
    """Kernels that the simulated compiler makes of a canonical program."""
    compiled = compile_program(module, name)
    found = [
        _Found(
            kernel.computation,
            frozenset(kernel.instruction(p).opcode for p in kernel.instructions),
            len(kernel.outputs),
            max(_elements(kernel.instruction(p).shape) for p in kernel.nodes),
        )
        for kernel in compiled.kernels
    ]
    return _counts(compiled.module, found)


def xla_counts(optimized: HloModule) -> Counts:
    """Kernels in a module as `optimized_by_xla` returns it."""
    return _counts(optimized, list(_xla_kernels(optimized)))


def _xla_kernels(module: HloModule) -> Iterator[_Found]:
    for index, runs in enumerate(execution_counts(module)):
        body = module.computations[index]
        for inst in body.instructions if runs else ():
            if inst.opcode not in NO_CODE:
                inside = frozenset(_inside(module, inst))
                arrays = len(inst.shape.tuple_shapes) if inst.shape.is_tuple else 1
                touched = (inst.shape, *(body.instructions[o].shape for o in inst.operands))
                yield _Found(index, inside, arrays, max(map(_elements, touched)))


def _elements(shape: Shape) -> int:
    """Of an array, or of the largest one in a tuple."""
    return max((leaf.num_elements for leaf in shape.leaves()), default=0)


def _inside(module: HloModule, inst: Instruction) -> Iterator[Opcode]:
    """Opcodes with fusions opened, however deep; functions of reductions stay closed."""
    if inst.opcode is not Opcode.FUSION:
        yield inst.opcode
        return
    for callee in inst.called:
        for member in module.computations[callee].instructions:
            yield from _inside(module, member)


def _fused(module: HloModule, index: int) -> int:
    """Instructions of a computation and, for a fusion, of what it calls instead of the fusion itself."""
    return sum(
        sum(_fused(module, callee) for callee in inst.called) if inst.opcode is Opcode.FUSION else 1
        for inst in module.computations[index].instructions
    )


def _counts(module: HloModule, found: Sequence[_Found]) -> Counts:
    runs = execution_counts(module)
    per_computation = Counter(kernel.computation for kernel in found)
    sorts = Counter(kernel.sort for kernel in found)
    return Counts(
        instructions=sum(_fused(module, index) for index, count in enumerate(runs) if count),
        by_computation={module.computations[k].name: n for k, n in sorted(per_computation.items())},
        entry=per_computation[module.entry],
        by_sort={sort: sorts[sort] for sort in SORTS},
        arrays=sum(kernel.arrays for kernel in found),
        epilogues=sum(kernel.is_epilogue for kernel in found),
        runs=sum(runs[kernel.computation] for kernel in found),
    )


class _CapturedError(Exception):
    """Ends a compilation once the module has been seen."""


def optimized_by_xla(proto: bytes) -> bytes:
    """The module after all HLO passes of XLA:CPU, fusion among them, serialised; no code is generated.

    Args:
        proto: serialised HloModuleProto.

    Raises:
        DataError: jaxlib is another one than that of the canonical programs.
        HloError: XLA refuses the module.
    """
    import jax
    from jax.extend import xla as hook
    from jaxlib import _jax, xla_client

    if version("jaxlib") != JAXLIB_VERSION:
        raise DataError(f"jaxlib {version('jaxlib')} is installed", expected=f"jaxlib {JAXLIB_VERSION}")
    captured: list[bytes] = []

    def capture(module: bytes) -> None:
        captured.append(module)
        raise _CapturedError

    device = jax.local_devices(backend="cpu")[0]
    # jaxlib's type stubs leave this module out.
    hlo: Any = import_module("jaxlib._hlo")
    module = _jax.mlir.xla_computation_to_mlir_module(hlo.XlaComputation(proto))
    stage = hook.PipelineStage.POST_SCHEDULER
    hook.register_hlo_module_transformation(capture, name=_HOOK_NAME, stage=stage, platforms="cpu")
    try:
        device.client.compile_and_load(module, _jax.DeviceList((device,)), xla_client.CompileOptions())
    except jax.errors.JaxRuntimeError as error:
        if not captured:
            raise HloError(f"XLA refuses the module: {str(error).splitlines()[0]}") from error
    finally:
        hook.clear_hlo_module_transformation(_HOOK_NAME, stage=stage, platforms="cpu")
    if not captured:
        raise HloError("XLA compiled the module without running the capturing pass")
    return captured[0]


def compare(proto: bytes, name: str) -> tuple[Counts, Counts]:
    """Counts of the simulated compiler and of XLA:CPU for one serialised canonical program."""
    optimized = module_from_bytes(optimized_by_xla(proto), where=f"{name}, compiled by XLA")
    return simulated_counts(module_from_bytes(proto, where=name), name), xla_counts(optimized)


def medians(results: Sequence[tuple[Counts, Counts]]) -> dict[str, float]:
    """Medians over programs of XLA's count over ours: kernels, arrays, and two sorts where we have any."""
    found = {
        "kernels": statistics.median(xla.kernels / ours.kernels for ours, xla in results),
        "arrays": statistics.median(xla.arrays / ours.arrays for ours, xla in results),
    }
    for sort in ("contraction", "compute"):
        ratios = [xla.by_sort[sort] / ours.by_sort[sort] for ours, xla in results if ours.by_sort[sort]]
        found[sort] = statistics.median(ratios) if ratios else float("nan")
    return found


def _line(name: str, ours: Counts, xla: Counts) -> str:
    cells = [f"{ours.instructions:>7}{xla.instructions:>7}"]
    cells += [f"{one.kernels:>6}{one.entry:>6}" for one in (ours, xla)]
    cells.append(f"{xla.kernels / ours.kernels:>6.2f}")
    cells += [f"{ours.by_sort[sort]:>6}{xla.by_sort[sort]:>6}" for sort in SORTS]
    cells += [f"{ours.epilogues:>6}{xla.epilogues:>6}", f"{ours.arrays:>6}{xla.arrays:>6}"]
    return f"{name:<34}" + " ".join(cells)


def _header() -> str:
    titles = (*SORTS, "epilogues", "arrays")
    groups = "".join(f"{title:>13}" for title in titles)
    pairs = "".join(f"{'ours':>7}{'XLA':>6}" for _ in titles)
    first = f"{'':<34}{'instructions':>14} {'ours':>6}{'entry':>6} {'XLA':>6}{'entry':>6} {'ratio':>6}"
    return f"{'':<34}{'':>47}{groups}\n{first}{pairs}"


def main(arguments: Sequence[str]) -> None:
    """Compile, count, print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="PROGRAM", help="programs by name; else twelve of them")
    parser.add_argument("--programs", type=Path, default=Path("data/programs"), help="where they are")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    options = parser.parse_args(arguments)
    if not options.json:
        print(_header())
    results: dict[str, tuple[Counts, Counts]] = {}
    for name in options.names or PROGRAMS:
        path = options.programs / f"{name}.hlo.pb.zst"
        if not path.is_file():
            parser.error(f"no program {path}")
        results[name] = compare(decompress(path.read_bytes(), where=name), name)
        if not options.json:
            print(_line(name, *results[name]), flush=True)
    ratios = medians(list(results.values()))
    if options.json:
        programs = {
            name: {"ours": ours.to_dict(), "xla": xla.to_dict()} for name, (ours, xla) in results.items()
        }
        print(json.dumps({"median_ratio": ratios, "programs": programs}, indent=1, sort_keys=True))
    else:
        print("median of XLA / ours:", ", ".join(f"{key} {value:.2f}" for key, value in ratios.items()))


if __name__ == "__main__":
    main(sys.argv[1:])
