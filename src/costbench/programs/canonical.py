"""XLA's own target-independent passes, run on any HLO module through the compiler's public hook.

jaxlib lets a callback see the module late in the CPU pipeline. Every pass that makes the module a CPU
program (layout assignment, fusion, copy insertion, widening of bfloat16, library rewrites, expansion
of sorts, random numbers, gathers) is switched off by name, so what the callback sees is the module
after inlining, common-subexpression and dead-code elimination, algebraic simplification and
canonicalisation of dots: the form in which a TPU compiler would start to fuse it. The callback then
raises, which ends the compilation before any code is generated.
"""

from __future__ import annotations

import threading
from importlib import import_module
from importlib.metadata import version
from typing import Any

from costbench.errors import DataError, HloError

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


class _CapturedError(Exception):
    """Ends a compilation once the module has been seen."""


def canonicalize(proto: bytes) -> bytes:
    """The module after XLA's target-independent passes, serialised.

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
