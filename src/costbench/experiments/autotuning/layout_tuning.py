"""Tunes the layouts of a program: searches on a model, then measures its best configs; or measures alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np

from costbench.arrays import F64, I16
from costbench.autotuning.budget import Charging, minutes
from costbench.autotuning.evaluators import Evaluation, Source
from costbench.autotuning.fusion import NUM_RUNS
from costbench.autotuning.search import Shortlist, TuningProblem, measure_best, tune
from costbench.autotuning.trace import Subject
from costbench.compiler.analytical_model import AnalyticalModel
from costbench.compiler.fingerprints import module_fingerprint
from costbench.compiler.layout.rules import NodeLayouts
from costbench.compiler.layout.space import LayoutSpace
from costbench.compiler.lowering.loop_nest import LoopNest, LoweredKernels
from costbench.compiler.tile_space import nest_tile_space
from costbench.datasets.layout_pricing import KernelPrices, ProgramPricer
from costbench.experiments.autotuning.session import Change, Session, Step, TuningResult, program_result
from costbench.hardware.device import Device
from costbench.search.space import VectorSearchSpace

_STRATEGY = "genetic"
PREDICTING, MEASURING = Step("predicted", "predicting"), Step("measured", "measuring")
PREDICTION_S = 5e-3
"""Seconds charged for predicting a config: compiling one and placing its copies takes milliseconds."""
_MEMORY_GIB = 16.0


class EstimatedPrices(KernelPrices):
    """Runtimes of kernels as the compiler's own model estimates them."""

    def _measured(
        self, number: int, lowered: LoweredKernels, names: Sequence[str], attempts: int | None
    ) -> F64:
        """Returns estimated nanoseconds of kernels on a chip, [kernels]; infinite where no tile fits."""
        model = self._models[number]
        return np.array([_estimate(lowered.nest(kernel), model, attempts) for kernel in range(len(names))])


def _estimate(nest: LoopNest, model: AnalyticalModel, attempts: int | None) -> float:
    """Returns estimated nanoseconds of a kernel; without a limit of attempts, with the room that it needs."""
    space = nest_tile_space(nest, model.architecture)
    if not space.has_legal_tile:
        if attempts is not None:
            return float("inf")
        larger = replace(model.architecture, scratchpad_bytes=2 * model.architecture.scratchpad_bytes)
        return _estimate(nest, replace(model, architecture=larger), None)
    extents = model.choose(space)
    return float(model.predict_nest(nest, nest.tile_sizes(extents[None]))[0])


@dataclass(frozen=True)
class LayoutModelEvaluator:
    """Predicts runtimes of a program under layout configs; an `Evaluator` of int16 [n, m].

    Attributes:
        pricer: adds up estimated costs of kernels.
        name: name of the model.
    """

    pricer: ProgramPricer
    name: str

    source: ClassVar[Source] = "model"

    def evaluate(self, decisions: I16) -> Evaluation:
        """Returns predicted nanoseconds; infinite where a kernel or the memory does not fit."""
        scores = self.pricer.total_ns(decisions)
        return Evaluation(scores, np.full(len(decisions), PREDICTION_S))

    def recall(self, decisions: I16) -> None:
        """Does nothing: every prediction is charged the same."""


@dataclass(frozen=True)
class LayoutDeviceEvaluator:
    """Measures a program under layout configs; an `Evaluator` of int16 [n, m].

    Attributes:
        pricer: adds up measured runtimes of kernels.
        name: name of the chip.
        compile_s: seconds charged for compiling the program.
    """

    pricer: ProgramPricer
    name: str
    compile_s: float

    source: ClassVar[Source] = "device"

    def evaluate(self, decisions: I16) -> Evaluation:
        """Returns measured nanoseconds; infinite where the program does not compile."""
        scores = self.pricer.measure(decisions, np.zeros(len(decisions), dtype=np.int64))
        run_s = np.where(np.isfinite(scores), NUM_RUNS * 1e-9 * scores, 0.0)
        return Evaluation(scores, self.compile_s + run_s)

    def recall(self, decisions: I16) -> None:
        """Does nothing: every config is compiled."""


def tune_layouts(space: LayoutSpace, session: Session, name: str, *, has_model: bool) -> TuningResult:
    """Searches for a layout config from the compiler's default; without a model, on hardware alone.

    Args:
        space: layout configs of the program.
        session: the run.
        name: name of the program.
        has_model: whether the compiler's own model ranks configs first.

    Raises:
        UnsupportedKernelError: for a kernel that cannot be lowered.
        DataError: if the traces to resume are of another search.
    """
    options = session.options
    devices = [Device(session.target, options.seed)]
    pricer = ProgramPricer(space, devices, _MEMORY_GIB)
    vectors = VectorSearchSpace(space)
    subject = Subject("layout", session.target.name, name, module_fingerprint(space.module), vectors.size)
    problem = TuningProblem(subject, vectors)
    charge = Charging(compile_s=options.compile_s).measuring(space.module.num_instructions)
    compile_s = max(charge.compile_s, charge.repeat_s)
    device = LayoutDeviceEvaluator(pricer, session.target.name, compile_s)
    hardware = minutes(options.minutes)
    predicted = None
    if has_model:
        estimates = ProgramPricer(space, devices, _MEMORY_GIB, EstimatedPrices)
        evaluator = LayoutModelEvaluator(estimates, options.model)
        budget = minutes(options.model_minutes)
        plan, step = session.plan(vectors, _STRATEGY, budget, PREDICTION_S, PREDICTING)
        predicted = session.search(replace(step, limited=True), partial(tune, problem, evaluator, plan))
        assert predicted is not None  # only an earlier search could have been interrupted
        shortlist = Shortlist(None, distinct=True, budget=hardware)
        measured = session.search(MEASURING, partial(measure_best, problem, predicted, device, shortlist))
    else:
        plan, step = session.plan(vectors, _STRATEGY, hardware, compile_s, MEASURING)
        measured = session.search(step, partial(tune, problem, device, plan))
    default_ns = float(pricer.measure(space.default[None], np.zeros(1, dtype=np.int64))[0])

    def describe(number: int) -> tuple[dict[str, object], tuple[Change, ...]]:
        config = problem.decode(number)[0]
        nodes = _describe(space, config, session.origins)
        return {"nodes": nodes}, tuple(_changes(space, config, session.origins))

    default = vectors.numbers(space.default[None])[0]
    return program_result(name, default, default_ns, predicted, measured, describe)


def _changes(space: LayoutSpace, config: I16, origins: Mapping[str, str]) -> Iterator[Change]:
    """Yields the nodes whose layouts differ from the compiler's."""
    choices = zip(space.nodes, space.decode(space.default), space.decode(config), strict=True)
    for node, before, after in choices:
        if before != after:
            name = space.module.computations[node.computation].instructions[node.position].name
            title = f"{name} ({origins[name]})" if name in origins else name
            yield Change(title, layouts_text(before), layouts_text(after))


def layouts_text(layouts: NodeLayouts) -> str:
    """Returns orders as XLA writes them, fastest axis first: `{1,0} from {1,0} {0,1}`."""
    orders = [f"{{{','.join(map(str, order))}}}" for order in (layouts.output, *layouts.operands)]
    return f"{orders[0]} from {' '.join(orders[1:])}"


def _describe(space: LayoutSpace, config: I16, origins: Mapping[str, str]) -> list[dict[str, object]]:
    """Returns the configurable nodes with their default and chosen layouts."""
    nodes: list[dict[str, object]] = []
    for node, default, chosen in zip(
        space.nodes, space.decode(space.default), space.decode(config), strict=True
    ):
        body = space.module.computations[node.computation]
        name = body.instructions[node.position].name
        layouts = {
            key: {"output": list(value.output), "operands": [list(order) for order in value.operands]}
            for key, value in (("default", default), ("chosen", chosen))
        }
        nodes.append(
            {"computation": body.name, "instruction": name, "op_name": origins.get(name, ""), **layouts}
        )
    return nodes
