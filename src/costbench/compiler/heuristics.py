"""Programs compiled by a fusion heuristic other than the default.

Data, features and models are of the default, `tpu`. The other one, `published`, follows the rules that XLA
publishes; what it changes is in docs/autotuning.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

from costbench.compiler.fusion.groups import KernelGroups
from costbench.compiler.fusion.heuristic import default_groups
from costbench.compiler.fusion.published import published_groups
from costbench.compiler.program import PreparedProgram
from costbench.compiler.trip_counts import DEFAULT_UNKNOWN_TRIP_COUNT
from costbench.errors import choose
from costbench.hlo.module import HloComputation, HloModule

HEURISTICS: Mapping[str, Callable[[HloComputation], KernelGroups]] = {
    "tpu": default_groups,
    "published": published_groups,
}


class HeuristicProgram(PreparedProgram):
    """A program as `PreparedProgram` has it, whose default fusions a heuristic of `HEURISTICS` chooses.

    Args:
        module: the program (no fusions, layouts ignored).
        name: under which it is known.
        heuristic: a name of `HEURISTICS`.
        unknown_trip_count: iterations of a loop about which nothing is known.

    Raises:
        ChoiceError: for an unknown heuristic.
    """

    def __init__(
        self,
        module: HloModule,
        name: str,
        heuristic: str = "tpu",
        *,
        unknown_trip_count: int = DEFAULT_UNKNOWN_TRIP_COUNT,
    ) -> None:
        super().__init__(module, name, unknown_trip_count=unknown_trip_count)
        self._groups_of = choose(HEURISTICS, heuristic, "fusion heuristic")

    @cached_property
    def fusions(self) -> dict[int, KernelGroups]:
        """Returns the heuristic's groups for every computation that runs."""
        computations = self.module.computations
        return {
            index: self._groups_of(computations[index]) for index, count in enumerate(self.counts) if count
        }
