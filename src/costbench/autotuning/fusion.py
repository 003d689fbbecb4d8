"""The fusion search problem: decisions are the fused edges of a program, scored by the program's runtime.

The cost of a program is the sum over its kernels of cost times executions (lpm2021, sections 2.1 and 3).
Kernel costs are cached across configs, so scoring a config prices only its new kernels; the rest of the work
is cutting the program into kernels (`compiler.fusion.space`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from costbench.arrays import F64, I16
from costbench.autotuning.budget import ProgramCharge
from costbench.autotuning.evaluators import Evaluation, Source
from costbench.autotuning.kernel_costs import KernelCosts
from costbench.autotuning.search import TuningProblem
from costbench.autotuning.trace import Subject
from costbench.compiler.fingerprints import module_fingerprint
from costbench.compiler.fusion.space import NO_KERNEL, CutConfig, FusionCuts, FusionSpace
from costbench.compiler.kernel import Kernel
from costbench.errors import UnsupportedKernelError
from costbench.search.space import VectorSearchSpace

NUM_RUNS = 3
"""Runs of a program per measurement, the fastest of which counts (lpm2021, section 4)."""


def fusion_problem(space: FusionSpace, chip: str) -> TuningProblem[I16]:
    """Returns the search problem over the fusion configs of a program."""
    vectors = VectorSearchSpace(space)
    fingerprint = module_fingerprint(space.module)
    return TuningProblem(Subject("fusion", chip, space.name, fingerprint, vectors.size), vectors)


def default_number(space: FusionSpace) -> int:
    """Returns the number of the compiler's own config in `fusion_problem`."""
    return VectorSearchSpace(space).numbers(space.default[None])[0]


class SharedCuts(FusionCuts):
    """Cuts shared by several pricers of one program: each kernel is built once and kept for all of them."""

    def __init__(self, space: FusionSpace) -> None:
        super().__init__(space)
        self._kept: dict[int, Kernel] = {}

    def take(self, number: int) -> Kernel:
        """Returns a kernel; unlike the base class, any number of times."""
        if number not in self._kept:
            self._kept[number] = super().take(number)
        return self._kept[number]


class ProgramPricer:
    """Computes a program's cost under fusion configs; a kernel is priced when it first occurs.

    Args:
        space: the fusion configs.
        kernels: prices kernels.
        known: costs by hash of kernel, from `known` of an earlier pricer. A network's costs depend on the
            batch in the last digits, so a resumed search needs the costs computed before.
        cuts: shared with other pricers of the program.
    """

    def __init__(
        self,
        space: FusionSpace,
        kernels: KernelCosts,
        known: Mapping[int, float] | None = None,
        cuts: SharedCuts | None = None,
    ) -> None:
        self._cuts = FusionCuts(space) if cuts is None else cuts
        self._kernels = kernels
        self._earlier = dict(known or {})
        self._costs = np.array([0.0])

    @property
    def known(self) -> dict[int, float]:
        """Costs in nanoseconds by hash of kernel."""
        priced = np.flatnonzero(~np.isnan(self._costs))
        priced = priced[priced != NO_KERNEL]
        hashes = self._cuts.hashes[priced].tolist()
        return {**self._earlier, **dict(zip(hashes, self._costs[priced].tolist(), strict=True))}

    @property
    def num_priced(self) -> int:
        """Kernels priced so far."""
        return int(np.count_nonzero(~np.isnan(self._costs))) - 1

    def cut(self, configs: I16) -> list[CutConfig]:
        """Cuts the program under configs [n, m] into kernels, without pricing them."""
        return [self._cuts.cut(config) for config in configs]

    def total_ns(self, cuts: list[CutConfig]) -> F64:
        """Returns the cost of each program, float64 [n]; infinite where a kernel cannot run."""
        self._price(cuts)
        totals = [
            sum(
                trips * float(self._costs[numbers].sum())
                for numbers, trips in zip(cut.kernels, cut.trip_counts, strict=True)
            )
            for cut in cuts
        ]
        return np.array(totals, dtype=np.float64)

    def _price(self, cuts: list[CutConfig]) -> None:
        """Prices the new kernels in one batch."""
        more = len(self._cuts) - len(self._costs)
        self._costs = np.concatenate([self._costs, np.full(more, np.nan)])
        met = np.unique(np.concatenate([np.zeros(0, np.int64), *(n for cut in cuts for n in cut.kernels)]))
        new = met[np.isnan(self._costs[met])].tolist()
        hashes = self._cuts.hashes if self._earlier else None
        missing = []
        for number in new:
            kernel = self._cuts.take(number)
            if hashes is not None and int(hashes[number]) in self._earlier:
                self._costs[number] = self._earlier[int(hashes[number])]
            else:
                missing.append((number, kernel))
        if missing:
            costs = self._kernels.costs([kernel for _, kernel in missing])
            self._costs[[number for number, _ in missing]] = costs


def default_runtime_ns(pricer: ProgramPricer, space: FusionSpace) -> float:
    """Returns the cost of a program under its default config, in nanoseconds.

    Raises:
        UnsupportedKernelError: for a program of which a kernel cannot run.
    """
    default_ns = float(pricer.total_ns(pricer.cut(space.default[None]))[0])
    if not math.isfinite(default_ns):
        expected = "kernels of which a tile fits into the scratchpad"
        raise UnsupportedKernelError("the default config does not run", where=space.name, expected=expected)
    return default_ns


@dataclass(frozen=True, eq=False)
class FusionModelEvaluator:
    """Predicts what a program costs under fusion configs; an `Evaluator` of `ChoiceArray`.

    Attributes:
        pricer: adds up predicted costs of kernels.
        name: name of the model.
        evaluation_s: seconds charged per config, a rate measured once.
    """

    pricer: ProgramPricer
    name: str
    evaluation_s: float = 0.0

    source: ClassVar[Source] = "model"

    def evaluate(self, decisions: I16) -> Evaluation:
        """Returns predicted nanoseconds of a run of the program; infinite where no tile of a kernel fits."""
        scores = self.pricer.total_ns(self.pricer.cut(decisions))
        return Evaluation(scores, np.full(len(decisions), self.evaluation_s))

    def recall(self, decisions: I16) -> None:
        """Does nothing: every prediction is charged the same."""


@dataclass(frozen=True, eq=False)
class FusionDeviceEvaluator:
    """Measures a program under fusion configs; an `Evaluator` of `ChoiceArray`.

    Many configs give the same kernels. The compiler detects this after fusing, and the program is neither
    compiled nor run again.

    Attributes:
        pricer: adds up measured costs of kernels.
        name: name of the device.
        charge: seconds charged for a measurement.
    """

    pricer: ProgramPricer
    name: str
    charge: ProgramCharge
    _compiled: set[bytes] = field(default_factory=set)

    source: ClassVar[Source] = "device"

    def evaluate(self, decisions: I16) -> Evaluation:
        """Returns nanoseconds of a run of the program; infinite where no tile of a kernel fits."""
        cuts = self.pricer.cut(decisions)
        scores = self.pricer.total_ns(cuts)
        run_s = np.where(np.isfinite(scores), NUM_RUNS * 1e-9 * scores, 0.0)
        new = np.array([self._is_new(cut) for cut in cuts], dtype=bool)
        return Evaluation(scores, np.where(new, self.charge.compile_s + run_s, self.charge.repeat_s))

    def recall(self, decisions: I16) -> None:
        """Marks the programs of these configs as compiled, so that they are charged as repeats."""
        for cut in self.pricer.cut(decisions):
            self._is_new(cut)

    def _is_new(self, cut: CutConfig) -> bool:
        new = cut.key not in self._compiled
        self._compiled.add(cut.key)
        return new
