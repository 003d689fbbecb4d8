"""The interface of cost models: a thing, and some decisions about it, to a predicted cost for each.

Formulas, trained networks and measuring devices all implement it, so that evaluation and search treat them
alike. Training, files and hardware therefore do not appear here.
"""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

from costbench.arrays import F64
from costbench.compiler.kernel import Kernel
from costbench.compiler.spaces import TileSizes

_Subject = TypeVar("_Subject", contravariant=True)
_Decisions = TypeVar("_Decisions", contravariant=True)


class Predictor(Protocol[_Subject, _Decisions]):
    """Predicts the costs of decisions about one subject at a time.

    The subject is a kernel and its decisions are tile sizes (`CostModel`), or a program and its decisions are
    rows of its table of layout configs (`models.layout.model.LayoutModel`).
    """

    def predict(self, subject: _Subject, decisions: _Decisions, /) -> F64:
        """Returns the cost of each decision, float64 [len(decisions)]; lower is faster.

        Costs of one subject can be compared with each other; whether they are times, and whether they can be
        compared between subjects, depends on the model. Up to rounding, the cost of a decision does not
        depend on the other decisions of the call, but for networks that say so. Every cost is finite.

        Raises:
            UnsupportedKernelError: if the model cannot price the kernel.
        """
        ...


@runtime_checkable
class CostModel(Predictor[Kernel, TileSizes], Protocol):
    """Predicts the costs of tile sizes of one kernel at a time; a fused kernel has one tile size."""
