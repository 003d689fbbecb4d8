"""Tunes the fusions of a program: searches on a model, then measures its best configs; or measures alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from costbench.arrays import I16
from costbench.autotuning.budget import Charging, minutes
from costbench.autotuning.fusion import (
    FusionDeviceEvaluator,
    FusionModelEvaluator,
    ProgramPricer,
    default_number,
    default_runtime_ns,
    fusion_problem,
)
from costbench.autotuning.kernel_costs import KernelCosts, MeasuredKernels, TiledKernels
from costbench.autotuning.search import Shortlist, measure_best, tune
from costbench.compiler.fusion.space import FusionSpace
from costbench.compiler.program import PreparedProgram
from costbench.experiments.autotuning.outside_prices import (
    NO_PRICES,
    CostsWithOutside,
    OutsidePrices,
    require_kernels,
)
from costbench.experiments.autotuning.session import Change, Session, Step, TuningResult, program_result
from costbench.hardware.device import Device
from costbench.search.space import VectorSearchSpace

STRATEGY = "annealing-1"
PREDICTING, MEASURING = Step("predicted", "predicting"), Step("measured", "measuring")


def tune_fusion(
    program: PreparedProgram,
    session: Session,
    tiled: TiledKernels,
    model: KernelCosts | None,
    prices: OutsidePrices = NO_PRICES,
) -> TuningResult:
    """Searches for a fusion config from the compiler's default; without a model, on hardware alone.

    Kernels that the chip does not run take what `prices` say, or nothing; the result lists them.

    Raises:
        UnsupportedKernelError: for any other kernel that cannot be lowered, or a program without kernels or
            whose default config does not run.
        DataError: if the traces to resume are of another search.
    """
    require_kernels(program)
    options, space = session.options, FusionSpace(program)
    vectors = VectorSearchSpace(space)
    machine = MeasuredKernels(tiled, Device(session.target, options.seed), program.fingerprints)
    pricer = ProgramPricer(space, CostsWithOutside(machine, prices))
    default_ns = default_runtime_ns(pricer, space)
    charging = Charging(compile_s=options.compile_s)
    size = space.module.num_instructions
    problem = fusion_problem(space, session.target.name)
    device = FusionDeviceEvaluator(pricer, session.target.name, charging.measuring(size))
    predicted = None
    if model is None:
        charge = charging.measuring(size)
        cost_s = max(charge.compile_s, charge.repeat_s)
        plan, step = session.plan(vectors, STRATEGY, minutes(options.minutes), cost_s, MEASURING)
        measured = session.search(step, partial(tune, problem, device, plan))
    else:
        costs = ProgramPricer(space, CostsWithOutside(model, prices), session.known_costs())
        evaluator = FusionModelEvaluator(costs, options.model, charging.predicting_s(size))
        budget = minutes(options.model_minutes)
        plan, step = session.plan(vectors, STRATEGY, budget, evaluator.evaluation_s, PREDICTING)
        search = partial(tune, problem, evaluator, plan)
        predicted = session.search(
            replace(step, limited=True), search, lambda: session.keep_costs(costs.known)
        )
        assert predicted is not None  # only an earlier search could have been interrupted
        shortlist = Shortlist(None, distinct=True, budget=minutes(options.minutes))
        search = partial(measure_best, problem, predicted, device, shortlist)
        measured = session.search(MEASURING, search)

    def describe(number: int) -> tuple[dict[str, object], tuple[Change, ...]]:
        config = problem.decode(number)[0]
        changes = describe_changes(space, space.default, config, session.origins)
        return describe_fusions(space, config), tuple(changes)

    default = default_number(space)
    result = program_result(space.name, default, default_ns, predicted, measured, describe)
    return replace(result, left_out=prices.left_out(program.unique_kernels))


def describe_changes(
    space: FusionSpace, default: I16, config: I16, origins: Mapping[str, str]
) -> Iterator[Change]:
    """Yields the edges that a config fuses and the default does not, or the other way round.

    Args:
        space: fusion configs of a program.
        default: the default [m].
        config: the config [m].
        origins: names of instructions -> what they were called in the user's code.
    """
    choices = zip(space.by_computation(default), space.by_computation(config), strict=True)
    for (part, before), (_, after) in choices:
        instructions = space.module.computations[part.computation].instructions
        for edge in np.flatnonzero(before != after).tolist():
            names = [instructions[end[edge]].name for end in (part.sources, part.users)]
            titles = [f"{name} ({origins[name]})" if name in origins else name for name in names]
            yield Change(
                " → ".join(titles), *("fused" if fused[edge] else "apart" for fused in (before, after))
            )


def describe_fusions(space: FusionSpace, config: I16) -> dict[str, object]:
    """Returns the fused edges and the resulting kernels as names of instructions."""
    edges = []
    for part, fused in space.by_computation(config):
        body = space.module.computations[part.computation]
        names = [inst.name for inst in body.instructions]
        pairs = zip(part.sources[fused].tolist(), part.users[fused].tolist(), strict=True)
        edges.append({"computation": body.name, "fused": [[names[a], names[b]] for a, b in pairs]})
    kernels = [
        {
            "computation": kernel.body.name,
            "instructions": [kernel.instruction(position).name for position in kernel.instructions],
        }
        for kernel in space.compile(config).kernels
    ]
    return {"edges": edges, "kernels": kernels}
