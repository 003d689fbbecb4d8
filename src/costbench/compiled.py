"""Functions compiled to machine code: the same arithmetic as Python's, without its overhead.

Compiled code is kept on disk beside the module (or in the user's cache folder where that is read-only), so
only the first run after a change compiles. No fast-math and no threads: results do not depend on the machine's
load, nor on how many processes run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function over arrays, numbers and named tuples of these, on its first call."""
    return cast(Function, njit(cache=True)(function))
