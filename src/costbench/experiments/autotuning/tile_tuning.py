"""Tunes the tile sizes of a program within one budget of hardware time, its most expensive kernels first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from costbench.autotuning.budget import MeasurementBudget, minutes
from costbench.autotuning.evaluators import DeviceEvaluator, ModelEvaluator
from costbench.autotuning.search import Plan, Shortlist, TuningProblem, measure_best, tune
from costbench.autotuning.trace import SearchTrace, Subject
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.program import PreparedProgram, UniqueKernel
from costbench.compiler.tile_space import TileSpace, nest_tile_space
from costbench.errors import UnsupportedKernelError
from costbench.experiments.autotuning.outside_prices import (
    NO_PRICES,
    LeftOut,
    OutsidePrices,
    outside_instruction,
    require_kernels,
)
from costbench.experiments.autotuning.session import (
    CostRow,
    Gain,
    Session,
    Step,
    TuningResult,
    cost_rows,
)
from costbench.hardware.device import Device
from costbench.models.cost_model import CostModel
from costbench.search.space import NumberedSearchSpace


@dataclass(frozen=True, eq=False)
class _Kernel:
    """A kernel with the compiler's own choice of tile size."""

    unique: UniqueKernel
    space: TileSpace
    default: int
    default_ns: float

    @property
    def total_ns(self) -> float:
        """Nanoseconds spent on the kernel in one run of the program with the default tile."""
        return self.unique.runs_per_program * self.default_ns


def tune_tiles(
    program: PreparedProgram,
    session: Session,
    model: CostModel | None,
    prices: OutsidePrices = NO_PRICES,
) -> TuningResult:
    """Searches for the tile sizes of every kernel; without a model, measures tile sizes drawn at random.

    Kernels that the chip does not run, and those that cannot be lowered or of which no tile fits the
    scratchpad, are left out; `prices` says what the former take.

    Raises:
        UnsupportedKernelError: if no kernel is left.
        DataError: if the traces to resume are of another search.
    """
    require_kernels(program)
    device = Device(session.target, session.options.seed)
    kernels, left_out = _kernels(program, device, prices)
    tuning = _KernelSearches(program.name, kernels, session, device, model)
    tuning.tune()
    result = tuning.result()
    outside_ns = sum(kind.total_ns or 0.0 for kind in left_out)
    curve = tuple((second, ns + outside_ns) for second, ns in result.curve)
    return replace(
        result,
        default_ns=result.default_ns + outside_ns,
        best_ns=result.best_ns + outside_ns,
        curve=curve,
        left_out=left_out,
    )


def _kernels(
    program: PreparedProgram, device: Device, prices: OutsidePrices
) -> tuple[list[_Kernel], tuple[LeftOut, ...]]:
    """Returns the kernels that can be tuned, most expensive first, and the others."""
    tiles, tunable, refused = AnalyticalModel(device.target.architecture), [], []
    left_out = prices.left_out(program.unique_kernels)
    problem: UnsupportedKernelError | None = None
    for unique in program.unique_kernels:
        if outside_instruction(unique.kernel) is not None:
            continue
        try:
            tunable.append(_kernel(program, unique, device, tiles))
        except UnsupportedKernelError as error:
            problem = problem or error
            name = unique.kernel.instruction(unique.kernel.outputs[0]).name
            refused.append(LeftOut("", name, unique.runs_per_program, None, error.message()))
    if not tunable and problem is not None:
        raise problem
    return sorted(tunable, key=lambda kernel: -kernel.total_ns), (*left_out, *refused)


def _kernel(
    program: PreparedProgram, unique: UniqueKernel, device: Device, tiles: AnalyticalModel
) -> _Kernel:
    space = nest_tile_space(program.lowering.loop_nest(unique.kernel), device.target.architecture)
    extents = tiles.choose(space)
    measured = device.measure_nest(space.nest, extents[None])
    while measured.failed[0]:
        smaller = space.smaller(extents)
        if smaller is None:
            raise UnsupportedKernelError("no tile size compiles", where=unique.kernel.fingerprint)
        extents = smaller
        measured = device.measure_nest(space.nest, extents[None])
    return _Kernel(unique, space, space.number(extents), float(measured.runtime_ns[0]))


class _KernelSearches:
    """Runs the searches of a program's kernels, one after another."""

    def __init__(
        self,
        program: str,
        kernels: list[_Kernel],
        session: Session,
        device: Device,
        model: CostModel | None,
    ) -> None:
        self._program, self._session, self._device, self._model = program, session, device, model
        self._kernels = kernels
        self._program_ns = sum(kernel.total_ns for kernel in kernels)
        self._left = minutes(session.options.minutes)
        self._measured: dict[str, SearchTrace] = {}
        self._rows: list[CostRow] = []
        self._num_predicted = 0
        self._predicted: dict[tuple[str, int], float] = {}

    def tune(self) -> None:
        """Searches for the tile sizes of the kernels, one after another, with what is left of the budget."""
        count = len(self._kernels)
        for number, kernel in enumerate(self._kernels):
            if kernel.space.size > 1:
                label = f"kernel {number + 1} of {count}"
                self._tune(Step(f"kernel-{number:04d}", label, number, count, self._program_ns), kernel)

    def _tune(self, step: Step, kernel: _Kernel) -> None:
        subject = Subject(
            "tile", self._session.target.name, self._program, kernel.unique.fingerprint, kernel.space.size
        )
        problem = TuningProblem(subject, NumberedSearchSpace(kernel.space, kernel.space.radices))
        device = DeviceEvaluator(kernel.unique.kernel, self._device, self._session.target.name)
        options, measuring = self._session.options, replace(step, name=f"{step.name}-measured")
        if self._model is None:
            max_evaluations = self._left.spent_evaluations + options.top_k
            plan = Plan("random", replace(self._left, evaluations=max_evaluations), options.seed)
            self._record(kernel, None, self._session.search(measuring, partial(tune, problem, device, plan)))
            return
        evaluator = ModelEvaluator(kernel.unique.kernel, self._model, options.model)
        predicting = replace(step, name=f"{step.name}-predicted", limited=True)
        plan = Plan("exhaustive", seed=options.seed)
        if kernel.space.size > options.max_tiles:
            budget = MeasurementBudget(evaluations=options.max_tiles)
            plan = Plan("random", budget, options.seed, (kernel.default,))
        predicted = self._session.search(predicting, partial(tune, problem, evaluator, plan))
        measured = None
        if predicted is not None:
            shortlist = Shortlist(options.top_k, budget=self._left)
            search = partial(measure_best, problem, predicted, device, shortlist)
            measured = self._session.search(measuring, search)
            self._num_predicted += len(predicted)
        self._record(kernel, predicted, measured)

    def _record(self, kernel: _Kernel, predicted: SearchTrace | None, measured: SearchTrace | None) -> None:
        if measured is not None:
            self._left = replace(measured.budget_left, evaluations=None)
            self._measured[kernel.unique.fingerprint] = measured
            saved_ns = kernel.default_ns - min([kernel.default_ns, *measured.scores])
            self._program_ns -= kernel.unique.runs_per_program * saved_ns
            describe = partial(_tile_text, kernel.space)
            self._rows += cost_rows(measured, predicted, self._title(kernel), describe)
        if measured is not None and predicted is not None:
            costs = dict(zip(predicted.decisions, predicted.scores, strict=True))
            name = kernel.unique.fingerprint
            self._predicted |= {(name, number): costs[number] for number in measured.decisions}

    def _origin(self, kernel: _Kernel) -> str:
        """Returns what the user's code calls the kernel's first result that has a name there."""
        view = kernel.unique.kernel
        names = (view.instruction(position).name for position in view.outputs)
        return next(filter(None, (self._session.origins.get(name, "") for name in names)), "")

    def _title(self, kernel: _Kernel) -> str:
        view = kernel.unique.kernel
        count, origin = len(view.instructions), self._origin(kernel)
        size = f"{count} instruction{'s' if count > 1 else ''}"
        return f"{view.instruction(view.outputs[0]).name} ({', '.join(filter(None, (size, origin)))})"

    def result(self) -> TuningResult:
        """Returns the combined result of all searches."""
        default_ns = sum(kernel.total_ns for kernel in self._kernels)
        best_ns, curve, spent = default_ns, [], 0.0
        decisions, gains = [], []
        for kernel in self._kernels:
            trace = self._measured.get(kernel.unique.fingerprint)
            tile, tile_ns = kernel.default, kernel.default_ns
            before_ns, runs = best_ns, kernel.unique.runs_per_program
            tries = () if trace is None else zip(trace.decisions, trace.scores, trace.seconds, strict=True)
            for decision, score, second in tries:
                spent += second
                if score < tile_ns:
                    tile, tile_ns = decision, score
                best_ns = before_ns - runs * (kernel.default_ns - tile_ns)
                curve.append((spent, best_ns))
            decisions.append(_describe(kernel, tile, tile_ns, self._origin(kernel)))
            predicted = self._predicted.get((kernel.unique.fingerprint, tile))
            gains.append(Gain(self._title(kernel), runs, kernel.default_ns, predicted, tile_ns))
        return TuningResult(
            program=self._program,
            default_ns=default_ns,
            best_ns=best_ns,
            num_predicted=self._num_predicted,
            num_measured=len(self._rows),
            hardware_seconds=spent,
            decisions={"kernels": decisions},
            gains=tuple(gains),
            rows=tuple(self._rows),
            curve=tuple(curve),
        )


def _tile_text(space: TileSpace, number: int) -> str:
    """Returns a tile size as text: `output 128x24, kernel 96x24`, in native tiles."""
    tile = _tile(space, number)
    parts = (("output", tile["output_bounds"]), ("kernel", tile["kernel_bounds"]))
    return ", ".join(f"{name} {'x'.join(map(str, bounds))}" for name, bounds in parts if bounds)


def _describe(kernel: _Kernel, number: int, runtime_ns: float, origin: str) -> dict[str, object]:
    view = kernel.unique.kernel
    return {
        "fingerprint": kernel.unique.fingerprint,
        "computation": view.body.name,
        "instructions": [view.instruction(position).name for position in view.instructions],
        "op_name": origin,
        "runs_per_program": kernel.unique.runs_per_program,
        "default": _tile(kernel.space, kernel.default) | {"runtime_ns": kernel.default_ns},
        "chosen": _tile(kernel.space, number) | {"runtime_ns": runtime_ns},
    }


def _tile(space: TileSpace, number: int) -> dict[str, list[int]]:
    sizes = space.decode(np.array([number], dtype=np.int64))
    output, kernel = sizes.output_bounds[0].tolist(), sizes.kernel_bounds[0].tolist()
    return {"output_bounds": output, "kernel_bounds": kernel}
