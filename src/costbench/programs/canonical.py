"""From a JAX function to a canonical program: lowering, XLA's target-independent passes, normal form.

Lowered for a CPU a function would be another program: random numbers are drawn by other instructions, and
linear algebra becomes calls of LAPACK. No array is allocated and nothing is compiled or run.

XLA's passes run through the compiler's public hook: jaxlib lets a callback see the module late in the CPU
pipeline. Every pass that makes the module a CPU program (layout assignment, fusion, copy insertion, widening
of bfloat16, library rewrites, expansion of sorts, random numbers, gathers) is switched off by name, so what
the callback sees is the module after inlining, common-subexpression and dead-code elimination, algebraic
simplification and canonicalisation of dots: the form in which a TPU compiler would start to fuse it. The
callback then raises, which ends the compilation before any code is generated.

In a module's normal form provenance is removed. Instruction and computation numbers depend on what a process
compiled before, names and metadata on the folder it ran in. Here computations are numbered in the order in
which a depth-first traversal from the entry's root finishes them (callees first, as readers of the format
expect), instructions 0, 1, 2, ... through the whole module in the same traversal, and names follow from the
numbers. Two modules that differ in numbering only become equal bytes.
"""

from __future__ import annotations

import importlib.util
import os
import re
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.metadata import version
from typing import Any

from google.protobuf.message import DecodeError

from costbench.errors import DataError, HloError
from costbench.execution.dotted import errors_of, load_dotted
from costbench.hlo.proto import hlo_pb2
from costbench.hlo.shape import ElementType, Shape, parse_shape
from costbench.installation import install_line

_KINDS = {"S": "int", "U": "uint", "F": "float", "BF": "bfloat", "C": "complex"}
_PLAIN = re.compile(r"(S|U|F|BF|C)(\d+)")
_SMALL_FLOAT = re.compile(r"F(\d)E(\w+)")


# Passes are switched off by their names, and names change: canonical programs belong to one jaxlib.
JAXLIB_VERSION = "0.10.2"

DISABLED_PASSES: tuple[str, ...] = (
    # The TPU has native bfloat16, random bits, top-k, sort, gather, scatter and wide reduce-windows.
    "result_caster", "operand_upcaster", "change-op-data-type", "float-normalization-bf16",
    "rng-expander", "rng-bit-generator-expander", "topk-decomposer", "comparison-expander",
    "logistic-expander", "gather_expander", "scatter_expander", "select_and_scatter_expander",
    "cholesky_expander", "qr_expander", "eigh_expander", "triangular_solve_expander", "scan_expander",
    "reduce-window-rewriter", "reduce-window-resizer", "tree_reduction_rewriter",
    "convolution-group-converter", "convolution-canonicalization", "dot-library-rewriter",
    "all-reduce-promotion", "sub-byte-size-setter",
    # Layouts, fusion and copies are decisions that are studied here, not inputs.
    "layout-assignment", "simplification after layout assignment", "hlo normalization",
    "literal-canonicalizer", "shape-canonicalizer", "reshape-decomposer", "reduce-decomposer",
    "broadcast_canonicalizer", "reshape-mover", "fusion", "fusion-wrapper", "cpu_multi_output_fusion",
    "cpu_scatter_fusion", "copy-insertion", "cpu-parallel-task-assigner",
    # These move loop-invariant work across `while` for the sake of the CPU's caches.
    "while-loop-constant-sinking", "small-while-loop-hoisting",
)  # fmt: skip

_PASS_NAME = "costbench-capture"
# The hook is one per process, so captures must not overlap.
_HOOK_LOCK = threading.Lock()
_PROVENANCE = (
    "metadata", "sharding", "frontend_attributes", "statistics_viz", "original_value", "is_composite",
)  # fmt: skip
"""Fields of an instruction that only say where it comes from: nothing computes with them."""


def lower_function(name: str, shapes: Sequence[str]) -> bytes:
    """Returns the serialised HloModuleProto that JAX hands to XLA for a function.

    Args:
        name: `module:function`, of the current folder or installed.
        shapes: shapes of its arguments, such as `f32[32,784]`. Without any, the function is called and
            returns what is lowered: a pair of a function and its arguments, trees of arrays or
            `jax.ShapeDtypeStruct`.

    Raises:
        DataError: without JAX; for a wrong name or shape; or where the user's code fails, naming its line.
    """
    if importlib.util.find_spec("jax") is None:
        raise DataError("JAX is not installed", where=name, expected=install_line("jax"))
    # Nothing is run, so JAX need not look for accelerators.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax

    function, arguments = load_dotted(name), tuple(_argument(shape) for shape in shapes)
    if not callable(function):
        raise DataError(f"is a {type(function).__name__}", where=name, expected="a function")
    if not shapes:
        function, arguments = _example(function, name)
    with errors_of(name):
        lowered = jax.jit(function).trace(*arguments).lower(lowering_platforms=("tpu",))
        proto: bytes = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    return proto


def _argument(text: str) -> Any:
    import jax
    import jax.numpy as jnp

    struct: Any = jax.ShapeDtypeStruct
    try:
        shape = parse_shape(text)
        dtype = jnp.dtype(_dtype(shape))
    except (HloError, TypeError) as error:
        raise DataError(f"no shape of an array: {text!r}", expected="e.g. f32[32,784] or s32[]") from error
    if (lowered := jax.dtypes.canonicalize_dtype(dtype)) != dtype:
        raise DataError(
            f"JAX makes {lowered} of {text!r}",
            expected="at most 32 bits, or JAX_ENABLE_X64=1 before the command",
        )
    return struct(shape.dimensions, dtype)


def _dtype(shape: Shape) -> str:
    """Returns NumPy's name of an element type; XLA's own where there is none."""
    name = shape.element_type.name
    if shape.element_type is ElementType.PRED:
        return "bool"
    if (plain := _PLAIN.fullmatch(name)) is not None:
        return _KINDS[plain[1]] + plain[2]
    if (small := _SMALL_FLOAT.fullmatch(name)) is not None:
        return f"float{small[1]}_e{small[2].lower()}"
    return name


def _example(function: Any, name: str) -> tuple[Any, tuple[Any, ...]]:
    with errors_of(name):
        example = function()
    is_pair = isinstance(example, tuple) and len(example) == 2
    if is_pair and callable(example[0]) and isinstance(example[1], tuple):
        pair: tuple[Any, tuple[Any, ...]] = example
        return pair
    expected = (
        "shapes of its arguments, or a function that returns a pair: what to lower, a tuple of arguments"
    )
    raise DataError(
        f"without arguments it returned a {type(example).__name__}", where=name, expected=expected
    )


class _CapturedError(Exception):
    """Ends a compilation once the module has been seen."""


def canonicalize(proto: bytes) -> bytes:
    """Returns the module after XLA's target-independent passes, serialised.

    Args:
        proto: serialised HloModuleProto, as lowered.

    Raises:
        DataError: the installed jaxlib is not the one whose pass names are listed here.
        HloError: XLA refuses the module; its own message is given.
    """
    import jax
    from jax.extend import xla as hook

    if version("jaxlib") != JAXLIB_VERSION:
        raise DataError(f"jaxlib {version('jaxlib')} is installed", expected=f"jaxlib {JAXLIB_VERSION}")
    captured: list[bytes] = []

    def capture(module: bytes) -> None:
        captured.append(module)
        raise _CapturedError

    device = jax.local_devices(backend="cpu")[0]
    with _HOOK_LOCK:
        hook.register_hlo_module_transformation(capture, name=_PASS_NAME, platforms="cpu")
        try:
            _compile(proto, device)
        except jax.errors.JaxRuntimeError as error:
            if not captured:
                raise HloError(f"XLA refuses the module: {str(error).splitlines()[0]}") from error
        finally:
            hook.clear_hlo_module_transformation(_PASS_NAME, platforms="cpu")
    if not captured:
        raise HloError("XLA compiled the module without running the capturing pass")
    return captured[0]


def _compile(proto: bytes, device: Any) -> None:
    from jaxlib import _jax, xla_client

    # jaxlib's type stubs leave this module out.
    hlo: Any = import_module("jaxlib._hlo")
    options = xla_client.CompileOptions()
    options.env_option_overrides = [("xla_disable_hlo_passes", ",".join(DISABLED_PASSES))]
    module = _jax.mlir.xla_computation_to_mlir_module(hlo.XlaComputation(proto))
    device.client.compile_and_load(module, _jax.DeviceList((device,)), options)


def normalize(proto: bytes, name: str) -> bytes:
    """Returns the normal form of a serialised HloModuleProto, under module name `name`.

    Raises:
        HloError: the bytes are no HloModuleProto, or an instruction refers to one that is not there.
    """
    try:
        module = hlo_pb2.HloModuleProto.FromString(proto)
    except DecodeError as error:
        raise HloError(f"not an HloModuleProto: {error}") from error
    order = _computations_callees_first(module)
    out = hlo_pb2.HloModuleProto(name=name, host_program_shape=module.host_program_shape)
    _name_parameters(out.host_program_shape)
    computation_ids = {computation.id: number for number, computation in enumerate(order, start=1)}
    next_id = 0
    for computation in order:
        target = out.computations.add()
        next_id = _renumber(computation, target, computation_ids, next_id)
    entry = out.computations[-1]
    out.entry_computation_name, out.entry_computation_id = entry.name, entry.id
    return out.SerializeToString(deterministic=True)


def count_instructions(proto: bytes) -> int:
    """Returns the number of instructions in all computations of a serialised HloModuleProto."""
    module = hlo_pb2.HloModuleProto.FromString(proto)
    return sum(len(computation.instructions) for computation in module.computations)


def _computations_callees_first(module: hlo_pb2.HloModuleProto) -> list[hlo_pb2.HloComputationProto]:
    """Returns computations reachable from the entry, each after everything that it calls, the entry last."""
    by_id = {computation.id: computation for computation in module.computations}
    done: dict[int, hlo_pb2.HloComputationProto] = {}

    def calls(computation: hlo_pb2.HloComputationProto) -> Iterator[int]:
        return (
            called
            for instruction in _operands_first(computation)
            for called in instruction.called_computation_ids
        )

    if module.entry_computation_id not in by_id:
        raise HloError("the entry computation is missing", field="entry_computation_id")
    stack = [(module.entry_computation_id, calls(by_id[module.entry_computation_id]))]
    while stack:
        number, pending = stack[-1]
        called = next(pending, None)
        if called is None:
            done[number] = by_id[number]
            stack.pop()
        elif called not in by_id:
            raise HloError(f"computation {called} is missing", field="called_computation_ids")
        elif called not in done:
            stack.append((called, calls(by_id[called])))
    return list(done.values())


def _operands_first(
    computation: hlo_pb2.HloComputationProto,
) -> list[hlo_pb2.HloInstructionProto]:
    """Returns parameters by number, then the rest in depth-first finishing order, from the root first."""
    by_id = {instruction.id: instruction for instruction in computation.instructions}
    parameters = [inst for inst in computation.instructions if inst.opcode == "parameter"]
    done = {inst.id: inst for inst in sorted(parameters, key=lambda inst: inst.parameter_number)}
    # Instructions that the root does not depend on (side effects) keep the order that XLA's passes gave them.
    for start in [computation.root_id, *by_id]:
        stack = [] if start in done else [(start, _predecessors(by_id, start, computation.name))]
        while stack:
            number, pending = stack[-1]
            predecessor = next((other for other in pending if other not in done), None)
            if predecessor is None:
                done[number] = by_id[number]
                stack.pop()
            else:
                stack.append((predecessor, _predecessors(by_id, predecessor, computation.name)))
    return list(done.values())


def _predecessors(by_id: dict[int, hlo_pb2.HloInstructionProto], number: int, where: str) -> Iterator[int]:
    if number not in by_id:
        raise HloError(f"instruction {number} is missing", where=where, field="operand_ids")
    return iter((*by_id[number].operand_ids, *by_id[number].control_predecessor_ids))


def _renumber(
    computation: hlo_pb2.HloComputationProto,
    target: hlo_pb2.HloComputationProto,
    computation_ids: dict[int, int],
    next_id: int,
) -> int:
    """Copies `computation` into `target` with numbers from `next_id` on; returns the first unused number."""
    instructions = _operands_first(computation)
    new_ids = {inst.id: number for number, inst in enumerate(instructions, start=next_id)}
    target.id = computation_ids[computation.id]
    target.name = f"c{target.id}"
    target.program_shape.CopyFrom(computation.program_shape)
    _name_parameters(target.program_shape)
    target.root_id = new_ids[computation.root_id]
    for inst in instructions:
        copy = target.instructions.add()
        copy.CopyFrom(inst)
        for field in _PROVENANCE:
            copy.ClearField(field)
        if inst.opcode != "while":  # whose trip count it holds
            copy.ClearField("backend_config")
        copy.id = new_ids[inst.id]
        copy.name = f"{inst.opcode}.{copy.id}"
        copy.operand_ids[:] = [new_ids[operand] for operand in inst.operand_ids]
        copy.control_predecessor_ids[:] = [new_ids[other] for other in inst.control_predecessor_ids]
        copy.called_computation_ids[:] = [computation_ids[called] for called in inst.called_computation_ids]
    return next_id + len(instructions)


def _name_parameters(shape: hlo_pb2.ProgramShapeProto) -> None:
    # XLA's parser wants exactly one name for each parameter.
    shape.parameter_names[:] = [f"p{number}" for number in range(len(shape.parameters))]
