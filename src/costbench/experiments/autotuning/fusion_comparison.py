"""The fusion autotuner of lpm2021 (section 7.3, figure 5) and lpm2020 (section 6.3, figure 4) on one program.

Simulated annealing starts from the compiler's default or from a random config and is repeated with several
seeds, in two kinds:

- on hardware alone, with a budget in minutes of hardware, and once with a much larger one;
- on a model first, with a budget in CPU minutes; the configs with the lowest predictions are then measured on
  hardware, in the order of their predictions.

A search does not know its budget, so a shorter one is the first part of a longer one and all times are read
off one trace. Speed-up is the runtime of the default config divided by that of the best measured config. It
needs the default's runtime, so a search from the default that finds nothing faster ends with the default; a
search from a random config whose budget allowed no measurement ends with that config.

'Best known' is the fastest config of all these searches and of one more that starts from it, on the simulated
machine free of charge, which no budget on a real one would allow. How much faster it is than the default is
the program's headroom: what a search can gain at least.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from costbench.arrays import F64, I16
from costbench.autotuning.budget import Charging, MeasurementBudget, minutes
from costbench.autotuning.fusion import (
    FusionDeviceEvaluator,
    FusionModelEvaluator,
    ProgramPricer,
    SharedCuts,
    default_number,
    default_runtime_ns,
    fusion_problem,
)
from costbench.autotuning.kernel_costs import KernelCosts
from costbench.autotuning.search import Plan, Shortlist, TuningProblem, measure_best, tune
from costbench.autotuning.trace import SearchTrace
from costbench.compiler.fusion.space import FusionSpace
from costbench.experiments.evaluation.program import ByModel, ModelKey
from costbench.rng import stream
from costbench.search.space import VectorSearchSpace
from costbench.target import Target

Start = Literal["default", "random"]
HARDWARE = "hardware"
BEST_KNOWN: ModelKey = ("best known", "all", 0)
"""The best of all searches of a program."""
_DRAWS = 100
"""Configs that are drawn before more edges keep the default."""


@dataclass(frozen=True)
class AutotuneFusionParams:
    """Settings of the comparison of fusion autotuners.

    Attributes:
        starts: configs that searches start from.
        hardware_minutes: budgets of hardware time in minutes.
        best_known_minutes: hardware minutes of the long search on hardware alone, from the default.
        free_evaluations: configs that the search free of charge tries, from the best that others found.
        model_minutes: CPU minutes of the search on the model.
        repeats: searches of each kind, with seeds from 0 on
        model_repeats: searches of each kind on a model, where one takes minutes; 0 for as many as `repeats`.
        model_strategy: strategy of the searches on a model.
        hardware_strategy: strategy of the searches on hardware.
        charging: seconds of each step.
        curve_points: number of points of a best-so-far curve, evenly spaced over the longest hardware budget.
    """

    starts: tuple[Start, ...] = ("default", "random")
    hardware_minutes: tuple[float, ...] = (1.0, 10.0)
    best_known_minutes: float = 240.0
    free_evaluations: int = 10_000
    model_minutes: float = 60.0
    repeats: int = 10
    model_repeats: int = 0
    model_strategy: str = "annealing-1"
    hardware_strategy: str = "annealing-1"
    charging: Charging = field(default_factory=Charging)
    curve_points: int = 40

    def __post_init__(self) -> None:
        if not self.starts or not self.hardware_minutes or self.repeats < 1 or self.curve_points < 1:
            raise ValueError("starts, hardware_minutes, repeats, curve_points: at least one")
        if min(*self.hardware_minutes, self.best_known_minutes, self.model_minutes, math.inf) <= 0.0:
            raise ValueError("hardware_minutes, best_known_minutes, model_minutes: above 0")
        if self.free_evaluations < 1 or self.model_repeats < 0:
            raise ValueError("free_evaluations: at least 1; model_repeats: at least 0")
        # Searches of results go by start and minutes.
        if len(set(self.starts)) < len(self.starts):
            raise ValueError(f"starts are {list(self.starts)}, must be different ones")
        named = list(map(_name_minutes, self.hardware_minutes))
        if len(set(named)) < len(named):
            raise ValueError(
                f"hardware_minutes are {', '.join(named)}, must be different ones, in six digits"
            )
        longest = _name_minutes(self.best_known_minutes)
        if "default" in self.starts and longest in named:
            raise ValueError(f"best_known_minutes is {longest}, must not be one of hardware_minutes")


def _name_minutes(minutes: float) -> str:
    return f"{minutes:g}"


@dataclass(frozen=True)
class FusionCurve:
    """Best-so-far speed-up of one kind of search against hardware seconds.

    Attributes:
        start: config that the searches start from.
        arm: kind of search: `hardware`, or a model's name followed by `and hardware`.
        seconds: seconds of hardware charged, from 0 to the longest budget.
        median: speed-up over the default config of the best so far, of the repeats.
        lowest: likewise.
        highest: likewise.
    """

    start: Start
    arm: str
    seconds: tuple[float, ...]
    median: tuple[float, ...]
    lowest: tuple[float, ...]
    highest: tuple[float, ...]


@dataclass(frozen=True)
class FusionResult:
    """Metrics and curves of all searches of a program.

    Attributes:
        metrics: by start, hardware alone, then with each model; then the long search on hardware alone. Those
            of a search are by repeat, after each budget (`default-1m`): `speedup` over the default,
            `slowdown` over the best known config, 0 if as fast, `num_measured` programs, `hardware_seconds`
            charged, `num_predicted` configs that the model scored. Last those of the fastest config of all:
            `speedup`, `slowdown`, `num_measured` configs that the search free of charge tried, and
            `free_gain`, its speed-up over the best that the other searches found, at least 1.
        curves: in the same order, without the long search.
    """

    metrics: ByModel
    curves: tuple[FusionCurve, ...]


@dataclass(frozen=True)
class _Search:
    """A search of one repeat: its predictions, None on hardware alone, and its measurements."""

    predicted: SearchTrace | None
    measured: SearchTrace


class FusionTuner:
    """Runs the fusion searches of one program on one machine with several models, which share kernel costs.

    Args:
        space: fusion configs of the program.
        target: the chip.
        machine: measures kernels.
        models: predict their costs; their names name the arms, as in `model and hardware`. Repeats take the
            networks of a model in turn.
        params: settings of the searches.

    Raises:
        UnsupportedKernelError: for a program whose default config does not run.
    """

    def __init__(
        self,
        space: FusionSpace,
        target: Target,
        machine: KernelCosts,
        models: Mapping[str, Sequence[KernelCosts]],
        params: AutotuneFusionParams,
    ) -> None:
        self.space, self.target, self.params = space, target, params
        self._problem: TuningProblem[I16] = fusion_problem(space, target.name)
        cuts = SharedCuts(space)
        self._measured = ProgramPricer(space, machine, cuts=cuts)
        self._predicted = {
            name: [ProgramPricer(space, costs, cuts=cuts) for costs in networks]
            for name, networks in models.items()
        }
        self._random_starts: dict[int, tuple[int, float]] = {}
        self._default_ns = default_runtime_ns(self._measured, space)

    def search(self) -> FusionResult:
        """Runs all searches of the program and returns their metrics and curves."""
        params = self.params
        metrics, curves = ByModel(), []
        traces: list[SearchTrace] = []
        for start in params.starts:
            arms = {HARDWARE: [self._search_hardware(start, seed) for seed in range(params.repeats)]}
            for name, networks in self._predicted.items():
                arms[f"{name} and hardware"] = [
                    self._search_model(name, networks[seed % len(networks)], start, seed)
                    for seed in range(params.model_repeats or params.repeats)
                ]
            for arm, searches in arms.items():
                for budget in params.hardware_minutes:
                    metrics |= self._metrics(start, arm, budget, searches)
                curves.append(self._curve(start, arm, searches))
                traces += [search.measured for search in searches]
        longest = self._search_hardware("default", params.repeats, params.best_known_minutes)
        metrics |= self._metrics("default", HARDWARE, params.best_known_minutes, [longest])
        best = self._best_known([*traces, longest.measured])
        for of_search in metrics.values():
            of_search["slowdown"] = best["speedup"] / of_search["speedup"] - 1.0
        metrics[BEST_KNOWN] = best
        return FusionResult(metrics, tuple(curves))

    def _device(self) -> FusionDeviceEvaluator:
        """Returns the machine of one search, which has compiled no program yet."""
        charge = self.params.charging.measuring(self.space.module.num_instructions)
        return FusionDeviceEvaluator(self._measured, self.target.name, charge)

    def _runtime_ns(self, configs: I16) -> float:
        return float(self._measured.total_ns(self._measured.cut(configs))[0])

    def _best_known(self, searches: Sequence[SearchTrace]) -> dict[str, float]:
        """Searches on from the best of other searches, free of charge; returns the fastest config of all."""
        candidates = [(self._default_ns, default_number(self.space))]
        candidates += [(runtime_ns, number) for number, runtime_ns in self._random_starts.values()]
        candidates += [
            (trace.best_score, trace.best_decision) for trace in searches if np.isfinite(trace.scores).any()
        ]
        best_ns, number = min(candidates)
        free = MeasurementBudget(evaluations=self.params.free_evaluations)
        plan = Plan(self.params.hardware_strategy, free, self.params.repeats + 1, (number,))
        trace = tune(self._problem, self._device(), plan)
        lowest_ns = min(best_ns, trace.best_score)
        return {
            "speedup": self._default_ns / lowest_ns,
            "slowdown": 0.0,
            "free_gain": best_ns / lowest_ns,
            "num_measured": float(len(trace)),
        }

    def _search_hardware(self, start: Start, seed: int, hardware_minutes: float = 0.0) -> _Search:
        """Searches on hardware alone, for the given minutes or, where these are 0, the longest budget."""
        budget = minutes(hardware_minutes or max(self.params.hardware_minutes))
        plan = Plan(self.params.hardware_strategy, budget, seed, (self._start(start, seed)[0],))
        return _Search(None, tune(self._problem, self._device(), plan))

    def _search_model(self, name: str, costs: ProgramPricer, start: Start, seed: int) -> _Search:
        """Searches on a model, then measures its best configs within the longest of the budgets."""
        params = self.params
        starts = (self._start(start, seed)[0],)
        plan = Plan(params.model_strategy, minutes(params.model_minutes), seed, starts)
        seconds = params.charging.predicting_s(self.space.module.num_instructions)
        predicted = tune(self._problem, FusionModelEvaluator(costs, name, seconds), plan)
        shortlist = Shortlist(None, distinct=True, budget=minutes(max(params.hardware_minutes)))
        return _Search(predicted, measure_best(self._problem, predicted, self._device(), shortlist))

    def _metrics(
        self, start: Start, arm: str, hardware_minutes: float, searches: Sequence[_Search]
    ) -> ByModel:
        """Returns what the searches had reached after some minutes of hardware, by repeat."""
        seconds, metrics = 60.0 * hardware_minutes, ByModel()
        speedups = self._speedups(start, np.array([seconds]), searches)[:, 0].tolist()
        for seed, (search, speedup) in enumerate(zip(searches, speedups, strict=True)):
            count = search.measured.affordable(seconds)
            metrics[arm, f"{start}-{_name_minutes(hardware_minutes)}m", seed] = {
                "speedup": speedup,
                "num_measured": float(count),
                "hardware_seconds": float(np.sum(search.measured.seconds[:count])),
                "num_predicted": 0.0 if search.predicted is None else float(len(search.predicted)),
            }
        return metrics

    def _curve(self, start: Start, arm: str, searches: Sequence[_Search]) -> FusionCurve:
        """Returns the best-so-far speed-ups at evenly spaced times within the longest budget."""
        longest_s = 60.0 * max(self.params.hardware_minutes)
        seconds = np.linspace(0.0, longest_s, self.params.curve_points + 1)
        speedups = self._speedups(start, seconds, searches)
        return FusionCurve(
            start=start,
            arm=arm,
            seconds=tuple(seconds.tolist()),
            median=tuple(np.median(speedups, axis=0).tolist()),
            lowest=tuple(speedups.min(axis=0).tolist()),
            highest=tuple(speedups.max(axis=0).tolist()),
        )

    def _speedups(self, start: Start, seconds: F64, searches: Sequence[_Search]) -> F64:
        """Returns the speed-up of the best so far over the default, float64 [searches, times]."""
        rows = []
        for seed, search in enumerate(searches):
            _, first_ns = self._start(start, seed)
            counts = np.searchsorted(search.measured.spent_seconds, seconds, side="right")
            best_ns = np.concatenate([[np.inf], search.measured.best_so_far])[counts]
            if start == "default":
                best_ns = np.minimum(best_ns, first_ns)
            rows.append(self._default_ns / np.where(np.isfinite(best_ns), best_ns, first_ns))
        return np.array(rows)

    def _start(self, start: Start, seed: int) -> tuple[int, float]:
        """Returns the number of the config that a search starts from, and the program's runtime under it.

        A random start fuses each edge or not with probability 1/2 and is drawn until it runs; all searches
        of a repeat have the same one. Of programs in which next to no such config runs, half of the edges, on
        average, keep the default after 100 draws, then three quarters, and so on.
        """
        if start == "default":
            return default_number(self.space), self._default_ns
        if seed not in self._random_starts:
            rng = stream(seed, "autotuning", "random start", self.space.name)
            runtime_ns, draws = math.inf, 0
            while not math.isfinite(runtime_ns):
                config = rng.integers(2, size=(1, len(self.space.default))).astype(np.int16)
                if halvings := draws // _DRAWS:
                    drawn = rng.random(config.shape) < 0.5**halvings
                    config = np.where(drawn, config, self.space.default)
                runtime_ns, draws = self._runtime_ns(config), draws + 1
            self._random_starts[seed] = VectorSearchSpace(self.space).numbers(config)[0], runtime_ns
        return self._random_starts[seed]
