"""Functions compiled to machine code: the same arithmetic as Python's, without its overhead.

Compiled code is kept on disk beside the module (or in the user's cache folder where that is read-only), so
only the first run after a change compiles. No fast-math and no threads: results depend neither
on the load of the machine nor on how many processes run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function over arrays, numbers and named tuples of these, on its first call."""
    return cast(Function, njit(cache=True)(function))


def compiled_step(function: Function) -> Function:
    """Compile a step of a compiled loop: a part of it that makes no arrays and divides as NumPy does.

    Arrays that only pass through need no reference counts, which would cost more than the arithmetic.
    """
    options: dict[str, Any] = {"forceinline": True, "error_model": "numpy", "_nrt": False}
    return cast(Function, njit(cache=True, **options)(function))
