from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from costbench.arrays import F64
from costbench.autotuning.budget import Charging
from costbench.autotuning.fusion import ProgramPricer
from costbench.autotuning.kernel_costs import EstimatedKernels, MeasuredKernels, TiledKernels
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.fusion.space import NO_KERNEL, FusionCuts, FusionSpace, fusion_space
from costbench.compiler.kernel import Kernel
from costbench.compiler.program import PreparedProgram
from costbench.errors import UnsupportedKernelError
from costbench.experiments.autotuning.fusion_comparison import (
    AutotuneFusionParams,
    FusionResult,
    FusionTuner,
)
from costbench.hardware.device import Device
from costbench.hlo.reader import read_module
from costbench.target import load_target
from tests.hlo.builder import ModuleBuilder

NAME = "rnn_char_b64_infer_f32"
PROGRAM = Path(__file__).resolve().parents[3] / "data" / "programs" / f"{NAME}.hlo.pb.zst"
TARGET = load_target("tpu_v3")
PARAMS = AutotuneFusionParams(
    hardware_minutes=(1.0, 4.0),
    best_known_minutes=20.0,
    model_minutes=0.5,
    repeats=3,
    free_evaluations=100,
    charging=Charging(compile_s=10.0, evaluation_s=0.1, evaluation_s_per_instruction=0.0),
)


@dataclass(frozen=True)
class PerKernel:
    """A kernel costs 1 s, and as many more as it holds instructions besides constants."""

    def costs(self, kernels: Sequence[Kernel]) -> F64:
        sizes = [sum(k.instruction(p).opcode.xla_name != "constant" for p in k.instructions) for k in kernels]
        return (1.0 + np.array(sizes)) * 1e9


@dataclass(frozen=True)
class Quadratic:
    """A kernel costs a second for each pair of its instructions besides constants, so large ones are slow."""

    def costs(self, kernels: Sequence[Kernel]) -> F64:
        return ((PerKernel().costs(kernels) - 1e9) / 1e9) ** 2 * 1e9


@dataclass(frozen=True)
class OnlyThose:
    """A kernel costs a second if it is one of some, by its instructions; others do not run."""

    allowed: frozenset[tuple[int, ...]]

    def costs(self, kernels: Sequence[Kernel]) -> F64:
        return np.array([1e9 if tuple(k.instructions) in self.allowed else np.inf for k in kernels])


def diamond() -> FusionSpace:
    """exponential -> (tanh, negate) -> add -> reduce: 10 s apart, 6 s together, as by default."""
    b = ModuleBuilder("diamond")
    e = b.op("exponential", b.parameter("f32[256,1024]"))
    return fusion_space(b.build(b.reduce(b.op("add", b.op("tanh", e), b.op("negate", e)), (1,))), "diamond")


def tuner(params: AutotuneFusionParams = PARAMS) -> FusionTuner:
    program = PreparedProgram(read_module(PROGRAM), NAME)
    tiled = TiledKernels(program.lowering, TARGET.architecture, AnalyticalModel(TARGET.architecture))
    machine = MeasuredKernels(tiled, Device(TARGET), program.fingerprints)
    return FusionTuner(FusionSpace(program), TARGET, machine, {"model": [EstimatedKernels(tiled)]}, params)


@dataclass(frozen=True)
class Bar:
    """All repeats of a bar of figure 5."""

    start: str
    arm: str
    hardware_minutes: float
    speedups: tuple[float, ...]
    num_measured: tuple[float, ...]
    hardware_seconds: tuple[float, ...]
    num_predicted: tuple[float, ...]


def bars_of(found: FusionResult) -> tuple[Bar, ...]:
    repeats: dict[tuple[str, str], list[dict[str, float]]] = {}
    for (arm, budget, seed), metrics in found.metrics.items():
        if arm != "best known":
            of_bar = repeats.setdefault((arm, budget), [])
            assert seed == len(of_bar)
            of_bar.append(metrics)
    names = ("speedup", "num_measured", "hardware_seconds", "num_predicted")
    bars = []
    for (arm, budget), of_bar in repeats.items():
        start, _, minutes = budget.removesuffix("m").partition("-")
        values = (tuple(metrics[name] for metrics in of_bar) for name in names)
        bars.append(Bar(start, arm, float(minutes), *values))
    return tuple(bars)


@pytest.fixture(scope="module")
def found() -> FusionResult:
    return tuner().search()


@pytest.fixture
def bars(found: FusionResult) -> tuple[Bar, ...]:
    return bars_of(found)


def test_the_bars_of_figure_5(bars: tuple[Bar, ...]) -> None:
    expected = [
        (start, arm, minutes)
        for start in ("default", "random")
        for arm in ("hardware", "model and hardware")
        for minutes in (1.0, 4.0)
    ]
    assert [(b.start, b.arm, b.hardware_minutes) for b in bars] == [
        *expected,
        ("default", "hardware", 20.0),
    ]
    assert {len(b.speedups) for b in bars[:-1]} == {3}
    assert all(0.0 < speedup < np.inf for b in bars for speedup in b.speedups)


def test_budgets_hold_and_more_is_never_worse(bars: tuple[Bar, ...]) -> None:
    for bar in bars:
        assert max(bar.hardware_seconds) <= 60.0 * bar.hardware_minutes
    for short, long in zip(bars[0:8:2], bars[1:8:2], strict=True):
        assert all(s <= t for s, t in zip(short.speedups, long.speedups, strict=True))
        assert all(s <= t for s, t in zip(short.num_measured, long.num_measured, strict=True))


def test_the_model_is_asked_as_often_as_its_minutes_allow(bars: tuple[Bar, ...]) -> None:
    # 0.1 s a config and half a minute. The sum of 300 tenths may be a little more than 30.
    for bar in bars:
        assert set(bar.num_predicted) <= ({299, 300} if bar.arm == "model and hardware" else {0})


def test_curves_pass_through_the_bars(found: FusionResult) -> None:
    all_bars = bars_of(found)[:-1]
    bars = {(bar.start, bar.arm, 60.0 * bar.hardware_minutes): bar for bar in all_bars}
    met = set()
    for curve in found.curves:
        assert len(curve.seconds) == PARAMS.curve_points + 1
        assert curve.seconds[0] == 0.0
        assert list(curve.median) == sorted(curve.median)
        for place, seconds in enumerate(curve.seconds):
            bar = bars.get((curve.start, curve.arm, seconds))
            if bar is not None:
                met.add(bar)
                expected = (min(bar.speedups), np.median(bar.speedups), max(bar.speedups))
                assert (curve.lowest[place], curve.median[place], curve.highest[place]) == expected
    # 40 points over 4 minutes meet both budgets.
    assert met == set(all_bars)


def test_nothing_is_above_the_best_known(found: FusionResult) -> None:
    *searches, (key, known) = found.metrics.items()
    assert key == ("best known", "all", 0)
    best = max(speedup for bar in bars_of(found) for speedup in bar.speedups)
    assert known["speedup"] >= best
    assert known["speedup"] == pytest.approx(best * known["free_gain"])
    assert (known["num_measured"], known["slowdown"]) == (PARAMS.free_evaluations, 0.0)
    assert all(one["slowdown"] == known["speedup"] / one["speedup"] - 1.0 for _, one in searches)


def test_the_best_known_of_a_small_program_is_the_best_there_is() -> None:
    # By default every instruction is a kernel of its own in a program whose kernels cost the more the larger
    # they are: all 2^n configs are tried, and cost what they cost alone.
    space = diamond()
    costs = Quadratic()
    pricer = ProgramPricer(space, costs)
    configs = np.array(list(itertools.product((0, 1), repeat=len(space.default))), dtype=np.int16)
    totals = pricer.total_ns(pricer.cut(configs))
    default = pricer.total_ns(pricer.cut(space.default[None]))[0]
    assert totals.min() < default
    params = replace(PARAMS, hardware_minutes=(0.1,), best_known_minutes=0.2, starts=("default",))
    known = FusionTuner(space, TARGET, costs, {}, params).search().metrics["best known", "all", 0]
    assert known["speedup"] == default / totals.min()
    assert known["free_gain"] == known["speedup"]
    assert known["num_measured"] == len(configs)


def test_a_search_from_the_default_ends_no_worse(bars: tuple[Bar, ...]) -> None:
    assert min(min(b.speedups) for b in bars if b.start == "default") >= 1.0
    assert min(min(b.speedups) for b in bars if b.start == "random") < 1.0


def test_where_nothing_can_be_measured_the_start_remains() -> None:
    params = replace(PARAMS, hardware_minutes=(0.1,), model_minutes=0.01, charging=Charging(compile_s=99.0))
    found = bars_of(tuner(replace(params, best_known_minutes=0.2, repeats=1)).search())
    assert {b.num_measured for b in found} == {(0,)}
    assert [b.speedups for b in found if b.start == "default"] == [(1.0,)] * 3
    alone, helped = (b.speedups for b in found if b.start == "random")
    assert alone == helped
    assert alone[0] < 1.0


def test_the_random_start_of_a_program_that_runs_in_few_configs() -> None:
    # Of its 2^n configs those run that cut it as the default does, so no fair coins find one.
    space = FusionSpace(PreparedProgram(read_module(PROGRAM), NAME))
    cuts = FusionCuts(space)
    numbers = np.unique(np.concatenate(cuts.cut(space.default).kernels))
    default = [cuts.take(number) for number in numbers[numbers != NO_KERNEL].tolist()]
    machine = OnlyThose(frozenset(tuple(kernel.instructions) for kernel in default))
    assert len(space.default) > 50
    params = replace(PARAMS, starts=("random",), repeats=1, hardware_minutes=(0.1,), best_known_minutes=0.1)
    found = FusionTuner(space, TARGET, machine, {}, params).search()
    assert {speedup for bar in bars_of(found) for speedup in bar.speedups} == {1.0}


def test_a_program_whose_default_does_not_run() -> None:
    with pytest.raises(UnsupportedKernelError, match="diamond: the default config does not run"):
        FusionTuner(diamond(), TARGET, OnlyThose(frozenset()), {}, PARAMS)


def test_fewer_searches_on_a_model() -> None:
    params = replace(
        PARAMS, model_repeats=2, model_minutes=0.01, hardware_minutes=(1.0,), starts=("default",)
    )
    found = bars_of(FusionTuner(diamond(), TARGET, PerKernel(), {"model": [PerKernel()]}, params).search())
    assert [(b.arm, len(b.speedups)) for b in found[:2]] == [("hardware", 3), ("model and hardware", 2)]


def test_by_hand() -> None:
    # Three runs of 6 s and 2 s of compiling: one minute measures three programs as fast as the default.
    params = replace(PARAMS, hardware_minutes=(1.0,), charging=Charging(compile_s=2.0, evaluation_s=0.1))
    found = bars_of(FusionTuner(diamond(), TARGET, PerKernel(), {"model": [PerKernel()]}, params).search())
    helped = next(b for b in found if (b.start, b.arm) == ("random", "model and hardware"))
    assert helped.speedups == (1.0, 1.0, 1.0)
    # 20 + 23 s are spent on programs of 6 and 7 s; the next takes 26 s.
    assert helped.num_measured == (2, 2, 2)
    assert helped.hardware_seconds == pytest.approx((43.0, 43.0, 43.0))


def test_repeats_take_the_networks_of_a_model_in_turn() -> None:
    alone, apart = PerKernel(), OnlyThose(frozenset())
    params = replace(PARAMS, hardware_minutes=(1.0,), repeats=3, starts=("default",))
    found = bars_of(FusionTuner(diamond(), TARGET, PerKernel(), {"model": [alone, apart]}, params).search())
    helped = next(b for b in found if b.arm == "model and hardware")
    # The second network prices nothing at all, so that it has nothing to measure.
    assert [number > 0 for number in helped.num_measured] == [True, False, True]


def test_equal_params_give_equal_results(found: FusionResult) -> None:
    assert tuner().search() == found


@pytest.mark.parametrize(
    "wrong",
    [
        {"repeats": 0},
        {"starts": ()},
        {"model_minutes": 0.0},
        {"free_evaluations": 0},
        # Two searches would have one name in results.
        {"best_known_minutes": 4.0},
        {"hardware_minutes": (1.0, 1.0000001)},
        {"starts": ("random", "random")},
    ],
    ids=str,
)
def test_impossible_params(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        replace(PARAMS, **wrong)  # type: ignore[arg-type]
