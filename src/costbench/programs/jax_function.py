"""Lowers a JAX function of a user's own for a TPU, without a TPU.

Lowered for a CPU it would be another program: random numbers are drawn by other instructions, and linear
algebra becomes calls of LAPACK. No array is allocated and nothing is compiled or run.
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Sequence
from typing import Any

from costbench.errors import DataError, HloError
from costbench.execution.dotted import errors_of, load_dotted
from costbench.hlo.shape import ElementType, Shape, parse_shape

_INSTALL = "pip install 'costbench[corpus]'"
_KINDS = {"S": "int", "U": "uint", "F": "float", "BF": "bfloat", "C": "complex"}
_PLAIN = re.compile(r"(S|U|F|BF|C)(\d+)")
_SMALL_FLOAT = re.compile(r"F(\d)E(\w+)")


def lower_function(name: str, shapes: Sequence[str]) -> bytes:
    """Returns the serialised HloModuleProto that JAX hands to XLA for a function.

    Args:
        name: `module:function`, of the current folder or installed.
        shapes: of its arguments, such as `f32[32,784]`. Without any, the function is called and returns what
            is lowered: a pair of a function and its arguments, trees of arrays or `jax.ShapeDtypeStruct`.

    Raises:
        DataError: without JAX; for a wrong name or shape; or where the user's code fails, naming its line.
    """
    if importlib.util.find_spec("jax") is None:
        raise DataError("JAX is not installed", where=name, expected=_INSTALL)
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

    described: Any = jax.ShapeDtypeStruct
    try:
        shape = parse_shape(text)
        return described(shape.dimensions, jnp.dtype(_dtype(shape)))
    except (HloError, TypeError) as error:
        raise DataError(f"no shape of an array: {text!r}", expected="e.g. f32[32,784] or s32[]") from error


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
        made = function()
    if isinstance(made, tuple) and len(made) == 2 and callable(made[0]) and isinstance(made[1], tuple):
        return made
    expected = (
        "shapes of its arguments, or a function that returns a pair: what to lower, a tuple of arguments"
    )
    raise DataError(f"without arguments it returned a {type(made).__name__}", where=name, expected=expected)
