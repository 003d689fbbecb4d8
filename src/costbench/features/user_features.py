"""Features of nodes that a user names by dotted path, as further columns behind those of `schema`.

`my_node_features(kernel)` returns a row for each of `kernel.nodes`, the kernel's inputs first: an array
[n, e] of finite numbers, e the same for every kernel. It may look at all of the kernel and at nothing outside
of it, since kernels are priced one by one. Its attribute `version` (1 where it has none) is stored with what
was computed and with models that were trained on it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from costbench.arrays import F32
from costbench.compiler.kernel import Kernel
from costbench.execution.dotted import Part, load_part
from costbench.features.graph_tensors import KernelGraph

_FIELD = "features"
_EXPECTED = "finite numbers [len(kernel.nodes), e], the same e for all kernels"


@dataclass(frozen=True, eq=False)
class UserFeatures:
    """A function of a user's that computes features of nodes.

    Attributes:
        part: the dotted path that names it.
        function: the function.
        version: its version.
    """

    part: Part
    function: Callable[[Kernel], object]
    version: int

    def __call__(self, kernel: Kernel) -> F32:
        """Returns the features of a kernel's nodes, float32 [n, e].

        Raises:
            ParamsError: naming the function, if it fails or returns anything else.
        """
        with self.part.checked(_EXPECTED):
            rows: F32 = np.asarray(self.function(kernel), np.float32)
        if rows.ndim != 2 or len(rows) != len(kernel.nodes):
            problem = f"gives {list(rows.shape)} for a kernel of {len(kernel.nodes)} nodes"
            raise self.part.refuse(problem, _EXPECTED)
        if not np.isfinite(rows).all():
            raise self.part.refuse(f"gives {rows[~np.isfinite(rows)][0]}", _EXPECTED)
        return rows

    def extend(self, graph: KernelGraph, kernel: Kernel) -> KernelGraph:
        """Returns the graph of a kernel with these features behind the others: [n, 140 + e]."""
        return replace(graph, node_features=np.concatenate([graph.node_features, self(kernel)], axis=1))


@lru_cache(maxsize=16)
def load_user_features(text: str) -> UserFeatures:
    """Returns the function that a dotted path names; of a class, the object that its arguments make.

    Raises:
        ParamsError: if it cannot be imported, is no function, or its version is no whole number.
    """
    part = load_part(text, _FIELD)
    function = part.value
    if isinstance(function, type) or part.arguments:
        with part.checked("a function of a kernel, or a class that makes one"):
            function = part.value(**part.arguments)
    if not callable(function):
        raise part.refuse(f"is a {type(function).__name__}", "a function of a kernel")
    version = getattr(function, "version", 1)
    if type(version) is not int:
        raise part.refuse(f"version is {version!r}", "an int")
    return UserFeatures(part, function, version)
