"""The fusion autotuner of lpm2021 (section 7.3, figure 5) and lpm2020 (section 6.3, figure 4) on one program.

Simulated annealing from the compiler's default or from a random config, several times over:

- on hardware alone, for some minutes of hardware; the best of a much longer run is 'best known';
- on a model first, for some minutes of a CPU, then the best on hardware in the order of their predictions.

A search does not know its budget, so a shorter one is the first part of a longer one and all times are read
off one trace. Speed-up is runtime of the default config over that of the best config that was measured. It
needs the default's runtime, so searches from there end with it if they find nothing faster; one from a random
config for which the budget measured nothing ends where it began.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from costbench.autotuning.charging import Charging, minutes
from costbench.autotuning.fusion import (
    FusionDeviceEvaluator,
    FusionModelEvaluator,
    ProgramPricer,
    default_number,
    fusion_problem,
)
from costbench.autotuning.kernel_costs import KernelCosts
from costbench.autotuning.search import TuningProblem
from costbench.autotuning.search_space import Vectors
from costbench.autotuning.trace import SearchTrace
from costbench.autotuning.tuning import Plan, Shortlist, measure_best, tune
from costbench.compiler.fusion_space import FusionSpace
from costbench.compiler.spaces import ChoiceArray
from costbench.rng import stream
from costbench.target import Target

Start = Literal["default", "random"]
Arm = Literal["hardware", "model and hardware", "best known"]


@dataclass(frozen=True)
class AutotuneFusionParams:
    """How fusion autotuners are compared.

    Attributes:
        starts: where searches set out from.
        hardware_minutes: budgets of hardware time.
        best_known_minutes: of the search on hardware alone that says what is possible.
        model_minutes: CPU time of the search on the model.
        repeats: searches of each kind, with seeds 0, 1, 2, ...
        model_strategy: that searches on the model.
        hardware_strategy: that searches on hardware.
        charging: seconds of each step.
    """

    starts: tuple[Start, ...] = ("default", "random")
    hardware_minutes: tuple[float, ...] = (1.0, 10.0)
    best_known_minutes: float = 240.0
    model_minutes: float = 60.0
    repeats: int = 10
    model_strategy: str = "annealing-1"
    hardware_strategy: str = "annealing-1"
    charging: Charging = field(default_factory=Charging)

    def __post_init__(self) -> None:
        if not self.starts or not self.hardware_minutes or self.repeats < 1:
            raise ValueError("starts, hardware_minutes, repeats: at least one")
        if min(*self.hardware_minutes, self.best_known_minutes, self.model_minutes, math.inf) <= 0.0:
            raise ValueError("hardware_minutes, best_known_minutes, model_minutes: above 0")


@dataclass(frozen=True)
class FusionBar:
    """One bar of figure 5.

    Attributes:
        program: by name.
        chip: by name.
        start: where the searches set out from.
        arm: what they had.
        hardware_minutes: of budget.
        speedups: over the default config, one per repeat.
        num_measured: programs that were measured, likewise.
        hardware_seconds: charged, likewise.
        num_predicted: configs that the model scored, likewise.
    """

    program: str
    chip: str
    start: Start
    arm: Arm
    hardware_minutes: float
    speedups: tuple[float, ...]
    num_measured: tuple[int, ...]
    hardware_seconds: tuple[float, ...]
    num_predicted: tuple[int, ...]

    @property
    def median(self) -> float:
        """Of the speed-ups."""
        return float(np.median(self.speedups))

    @property
    def lowest(self) -> float:
        """Smallest speed-up."""
        return min(self.speedups)

    @property
    def highest(self) -> float:
        """Largest speed-up."""
        return max(self.speedups)


@dataclass(frozen=True, eq=False)
class FusionTuner:
    """A program, a machine and a model.

    Attributes:
        space: fusion configs of the program.
        target: the chip.
        machine: measures kernels.
        model: predicts their costs.
        model_name: for traces.
        params: how to search.
    """

    space: FusionSpace
    target: Target
    machine: KernelCosts
    model: KernelCosts
    model_name: str
    params: AutotuneFusionParams

    def bars(self) -> list[FusionBar]:
        """All bars of the program: by start, hardware alone, then the model, then best known."""
        arms = _Arms(self)
        found = []
        for start in self.params.starts:
            alone = [arms.on_hardware(start, seed) for seed in range(self.params.repeats)]
            helped = [arms.by_model(start, seed) for seed in range(self.params.repeats)]
            for number in self.params.hardware_minutes:
                found.append(arms.bar(start, "hardware", number, [(None, trace) for trace in alone]))
            for number in self.params.hardware_minutes:
                found.append(arms.bar(start, "model and hardware", number, helped))
        longest = arms.on_hardware("default", self.params.repeats, self.params.best_known_minutes)
        found.append(arms.bar("default", "best known", self.params.best_known_minutes, [(None, longest)]))
        return found


class _Arms:
    """The searches of one program; prices of kernels are shared by all of them."""

    def __init__(self, tuner: FusionTuner) -> None:
        self._tuner = tuner
        self._problem: TuningProblem[ChoiceArray] = fusion_problem(tuner.space, tuner.target.name)
        self._measured = ProgramPricer(tuner.space, tuner.machine)
        self._predicted = ProgramPricer(tuner.space, tuner.model)
        self._default_ns = self._runtime_ns(default_number(tuner.space))

    def on_hardware(self, start: Start, seed: int, number: float = 0.0) -> SearchTrace:
        """Hardware alone, for the longest of the budgets or the minutes given."""
        params = self._tuner.params
        budget = minutes(number or max(params.hardware_minutes))
        plan = Plan(params.hardware_strategy, budget, seed, (self._start(start, seed),))
        return tune(self._problem, self._device(), plan)

    def by_model(self, start: Start, seed: int) -> tuple[SearchTrace, SearchTrace]:
        """A search on the model, and measurements of its best for the longest of the budgets."""
        params, tuner = self._tuner.params, self._tuner
        plan = Plan(params.model_strategy, minutes(params.model_minutes), seed, (self._start(start, seed),))
        seconds = params.charging.predicting_s(tuner.space.module.num_instructions)
        model = FusionModelEvaluator(self._predicted, tuner.model_name, seconds)
        predicted = tune(self._problem, model, plan)
        shortlist = Shortlist(None, distinct=True, budget=minutes(max(params.hardware_minutes)))
        return predicted, measure_best(self._problem, predicted, self._device(), shortlist)

    def bar(
        self,
        start: Start,
        arm: Arm,
        number: float,
        searches: Sequence[tuple[SearchTrace | None, SearchTrace]],
    ) -> FusionBar:
        """What the searches had found after some minutes of hardware."""
        speedups, counts, seconds = [], [], []
        for seed, (_, measured) in enumerate(searches):
            count = measured.affordable(60.0 * number)
            found_ns = min(measured.scores[:count], default=math.inf)
            if start == "default" or not math.isfinite(found_ns):
                found_ns = min(found_ns, self._runtime_ns(self._start(start, seed)))
            speedups.append(self._default_ns / found_ns)
            counts.append(count)
            seconds.append(float(np.sum(measured.seconds[:count])))
        return FusionBar(
            program=self._tuner.space.name,
            chip=self._tuner.target.name,
            start=start,
            arm=arm,
            hardware_minutes=number,
            speedups=tuple(speedups),
            num_measured=tuple(counts),
            hardware_seconds=tuple(seconds),
            num_predicted=tuple(0 if predicted is None else len(predicted) for predicted, _ in searches),
        )

    def _device(self) -> FusionDeviceEvaluator:
        size = self._tuner.space.module.num_instructions
        charge = self._tuner.params.charging.measuring(size)
        return FusionDeviceEvaluator(self._measured, self._tuner.target.name, charge)

    def _start(self, start: Start, seed: int) -> int:
        space = self._tuner.space
        if start == "default":
            return default_number(space)
        # Every edge is fused or not with equal chance, the same in all searches of a repeat; it compiles.
        rng = stream(seed, "autotuning", "random start", space.name)
        while True:
            config = rng.integers(2, size=(1, len(space.default))).astype(np.int16)
            if np.isfinite(self._measured.total_ns(self._measured.cut(config))[0]):
                return Vectors(space).numbers(config)[0]

    def _runtime_ns(self, number: int) -> float:
        rows = Vectors(self._tuner.space).rows([number])
        return float(self._measured.total_ns(self._measured.cut(rows.astype(np.int16)))[0])
