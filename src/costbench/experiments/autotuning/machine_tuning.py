"""Tunes the fusions of a program on this processor, where XLA compiles and runs it.

The searches are those of the simulated chips: on hardware alone, or on a model first, whose best configs are
then measured. What differs is that a measurement is a compilation and runs of the whole program, charged by
the time that they take, and that the default is XLA's own: it is no config of the space, so a search starts
from the config that is nearest to it. What a search chooses is run anew in new processes, beside XLA's own
default, and its results are compared with those of the default.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from costbench.arrays import I16
from costbench.artifacts import write_bytes, write_text
from costbench.autotuning.budget import Charging, minutes
from costbench.autotuning.fusion import FusionModelEvaluator, ProgramPricer, fusion_problem
from costbench.autotuning.kernel_costs import KernelCosts
from costbench.autotuning.machine_fusion import MachineFusionEvaluator
from costbench.autotuning.search import Plan, Shortlist, TuningProblem, measure_best, tune
from costbench.autotuning.trace import SearchTrace
from costbench.errors import DataError
from costbench.experiments.autotuning.fusion_tuning import (
    MEASURING,
    PREDICTING,
    STRATEGY,
    describe_changes,
    describe_fusions,
)
from costbench.experiments.autotuning.machine_models import machine_model
from costbench.experiments.autotuning.program_tuning import op_names
from costbench.experiments.autotuning.session import Gain, Session, TuningResult, cost_rows
from costbench.hardware.xla_cpu.backend import DISABLED_PASSES, GIVEN_FLAGS, OWN_FLAGS, Backend
from costbench.hardware.xla_cpu.comparison import Comparison, compare
from costbench.hardware.xla_cpu.device import ProgramRunner
from costbench.hardware.xla_cpu.fusion_machine import FusionMachine
from costbench.hardware.xla_cpu.program import CHIP, MachineProgram
from costbench.hlo.conversion import module_from_proto
from costbench.hlo.inlining import inline_fusions
from costbench.hlo.reader import read_proto
from costbench.search.space import VectorSearchSpace

MODULE_FILE, TEXT_FILE, PROGRAM_FILE = "tuned.hlo.pb", "tuned.hlo.txt", "program.hlo.pb"
SCRIPT_FILE, FUNCTIONS_FILE = "run_tuned.py", "tuned_program.py"
_TUNED = "tuned"
FUNCTIONS = '''"""The program with XLA's own fusions (`default`) and with others (`tuned`): of arrays."""
import os
from pathlib import Path
os.environ["XLA_FLAGS"] = "{flags}"  # read once, when JAX starts
import jax
from jax.extend import xla
from jaxlib import _hlo, _jax, xla_client

jax.config.update("jax_enable_x64", True)
folder, device = Path(__file__).parent, jax.devices("cpu")[0]
program = _hlo.XlaComputation((folder / "{program}").read_bytes())
parameters = [(s.dimensions(), s.numpy_dtype()) for s in program.program_shape().parameter_shapes()]

def compiled(**overrides):
    options = xla_client.CompileOptions()
    options.env_option_overrides = list(overrides.items())
    module = _jax.mlir.xla_computation_to_mlir_module(program)
    executable = device.client.compile_and_load(module, _jax.DeviceList((device,)), options)
    def run(*arrays):
        results = executable.execute_sharded([jax.device_put(array, device) for array in arrays])
        return [shards[0] for shards in results.disassemble_into_single_device_arrays()]
    return run

default = compiled()
# Where XLA would fuse, it gets the module with the tuned fusions.
fused = (folder / "{module}").read_bytes()
xla.register_hlo_module_transformation(lambda _: fused, name="tuned", platforms="cpu")
tuned = compiled(xla_disable_hlo_passes="{passes}")
xla.clear_hlo_module_transformation("tuned", platforms="cpu")
'''
SCRIPT = """# Runs the program with XLA's own fusions and with the tuned ones in JAX: python {script}
import timeit, jax, numpy as np
from tuned_program import default, parameters, tuned
rng = np.random.default_rng(0)
values = [(rng.random(shape) + 0.5) / max(1, np.prod(shape[:-1])) for shape, _ in parameters]
inputs = [jax.numpy.asarray(value, dtype) for value, (_, dtype) in zip(values, parameters)]
for a, b in zip(*[[np.asarray(x, float) for x in run(*inputs)] for run in (default, tuned)]):
    assert np.linalg.norm(a - b) <= {tolerance} * np.linalg.norm(a), "other results"
def seconds(run):
    return timeit.timeit(lambda: jax.block_until_ready(run(*inputs)), number=1)
before, after = np.median([[seconds(default), seconds(tuned)] for _ in range(9)], axis=0) * 1e3
print(f"XLA's own fusions {{before:.3f}} ms, tuned {{after:.3f}} ms: {{before / after:.3f}} times as fast")
"""


@dataclass(frozen=True)
class Found:
    """A config that a search chose.

    Attributes:
        number: its number in the fusion space.
        runtime_ns: its runtime in the search.
    """

    number: int
    runtime_ns: float


class MachineTuner:
    """A program on this processor, and what all searches of it share.

    Args:
        program: the program.
        folder: folder of compiled files.
        seed: seed of the inputs.

    Attributes:
        program: the program.
        problem: its search problem.
        data: the program as XLA gets it.

    Raises:
        DataError: if JAX is not installed.
        LeftOutError: if XLA does not compile the program, or takes too long.
    """

    def __init__(self, program: MachineProgram, folder: Path, seed: int = 0) -> None:
        self.program, self._folder = program, folder
        self.problem: TuningProblem[I16] = fusion_problem(program.space, CHIP)
        self._numbers = VectorSearchSpace(program.space)
        self._runner = ProgramRunner(program, Backend(GIVEN_FLAGS), seed, folder)
        self._machine = FusionMachine(self._runner)
        self.data = self._runner.data

    @cached_property
    def own_ns(self) -> float:
        """Runtime with XLA's own fusions, measured as those of the searches are."""
        return self._machine.own_ns()

    @property
    def nearest(self) -> int:
        """Number of the config that is nearest to XLA's own fusions."""
        return self.number(self._runner.own_default.fused)

    @property
    def num_different(self) -> int:
        """Configs whose results differed from those without fusions; none of them is chosen."""
        return self._machine.num_different

    def number(self, config: I16) -> int:
        """Returns the number of a config [m]."""
        return self._numbers.numbers(config[None])[0]

    def device(self) -> MachineFusionEvaluator:
        """Returns the machine of one search, which has compiled no config yet."""
        return MachineFusionEvaluator(self.program.space, self._machine)

    def predictor(
        self, costs: KernelCosts, name: str, known: dict[int, float] | None = None
    ) -> FusionModelEvaluator:
        """Returns what predicts configs by the costs of kernels."""
        charge_s = Charging().predicting_s(self.program.module.num_instructions)
        return FusionModelEvaluator(ProgramPricer(self.program.space, costs, known), name, charge_s)

    def module_of(self, number: int) -> bytes:
        """Returns the serialised module with the fusions of a config."""
        return self._runner.compile(self.problem.decode(number)[0]).executable.module

    def text_of(self, module: bytes) -> str:
        """Returns a serialised module as text."""
        return self._runner.backend.text_of(module)

    def compare(self, modules: dict[str, bytes], *, processes: int = 5, seconds: float = 60.0) -> Comparison:
        """Runs the program with the fusions of modules and with XLA's own in new processes."""
        folder = self._folder / "comparison"
        return compare(self.data, modules, folder, processes=processes, seconds=seconds)


def best_of(measured: SearchTrace | None) -> Found | None:
    """Returns the fastest config of a search; None if nothing could be measured."""
    if measured is None or not len(measured) or not math.isfinite(min(measured.scores)):
        return None
    return Found(measured.best_decision, measured.best_score)


def tune_on_machine(session: Session, name: str, folder: Path) -> tuple[TuningResult, str]:
    """Searches for fusions of a program on this processor and writes the module with the best ones.

    Args:
        session: options, traces and progress of the run.
        name: name of the program.
        folder: folder of the results.

    Returns:
        The result, whose runtimes are those of new processes, and a sentence about the gain.

    Raises:
        HloError: if the file is no HLO module, or XLA refuses it.
        DataError: as `MachineTuner` does; for a model that cannot be loaded; if the chosen fusions change
            the results of the program.
    """
    options = session.options
    proto = read_proto(options.file)
    session.origins |= op_names(proto)
    program = MachineProgram(inline_fusions(module_from_proto(proto, where=str(options.file))), name)
    model = machine_model(options.model, program.module, program.name)
    tuner = MachineTuner(program, folder / "machine", options.seed)
    start, budget = (tuner.nearest,), minutes(options.minutes)
    predicted = None
    if model is None:
        plan = Plan(STRATEGY, budget, options.seed, start)
        measured = session.search(MEASURING, partial(tune, tuner.problem, tuner.device(), plan))
    else:
        predictor = tuner.predictor(model, options.model, session.known_costs())
        plan = Plan(STRATEGY, minutes(options.model_minutes), options.seed, start)
        step = replace(PREDICTING, limited=True)
        predicted = session.search(step, partial(tune, tuner.problem, predictor, plan))
        session.keep_costs(predictor.pricer.known)
        assert predicted is not None  # only an earlier search could have been interrupted
        shortlist = Shortlist(None, distinct=True, budget=budget)
        search = partial(measure_best, tuner.problem, predicted, tuner.device(), shortlist)
        measured = session.search(MEASURING, search)
    best = best_of(measured)
    if best is None:
        raise DataError("nothing was measured", where=program.name, expected="a larger --budget")
    return _finish(tuner, session, folder, best, predicted, measured)


def _finish(
    tuner: MachineTuner,
    session: Session,
    folder: Path,
    best: Found,
    predicted: SearchTrace | None,
    measured: SearchTrace | None,
) -> tuple[TuningResult, str]:
    """Measures the chosen config anew and writes it; returns the result and a sentence about the gain."""
    assert measured is not None
    module = tuner.module_of(best.number)
    comparison = tuner.compare({_TUNED: module})
    own_ns, tuned_ns = (float(np.median(comparison.runtime_ns[name])) for name in ("xla", _TUNED))
    gain = comparison.gain(_TUNED)
    _write_module(folder, tuner, module, comparison.tolerance)
    known = {} if predicted is None else dict(zip(predicted.decisions, predicted.scores, strict=True))
    config, space = tuner.problem.decode(best.number)[0], tuner.program.space
    spent = measured.spent_seconds.tolist()
    result = TuningResult(
        program=tuner.program.name,
        default_ns=own_ns,
        best_ns=tuned_ns,
        num_predicted=0 if predicted is None else len(predicted),
        num_measured=len(measured),
        hardware_seconds=spent[-1],
        decisions=describe_fusions(space, config)
        | {"gain": {"estimate": gain.estimate, "low": gain.low, "high": gain.high}},
        gains=(Gain("the program", 1, own_ns, known.get(best.number), tuned_ns),),
        rows=tuple(cost_rows(measured, predicted)),
        curve=tuple(zip(spent, measured.best_so_far.tolist(), strict=True)),
        changes=tuple(
            describe_changes(space, tuner.problem.decode(tuner.nearest)[0], config, session.origins)
        ),
    )
    verdict = "within the noise"
    if gain.is_faster or gain.is_slower:
        verdict = "more than the noise"
    runs = len(comparison.runtime_ns[_TUNED])
    sentence = (
        f"{gain.estimate:.3f} times as fast as with XLA's own fusions, 95% interval {gain.low:.3f} to"
        f" {gain.high:.3f} over {runs} processes: {verdict}; results differ by"
        f" {comparison.difference[_TUNED]:.1g} of their norm (allowed: {comparison.tolerance:g})"
    )
    if tuner.num_different:
        sentence += f"; {tuner.num_different} configs changed the results and were passed over"
    return result, sentence


def _write_module(folder: Path, tuner: MachineTuner, module: bytes, tolerance: float) -> None:
    write_bytes(folder / PROGRAM_FILE, tuner.data)
    write_bytes(folder / MODULE_FILE, module)
    write_text(folder / TEXT_FILE, tuner.text_of(module))
    names = {"script": SCRIPT_FILE, "program": PROGRAM_FILE, "module": MODULE_FILE}
    settings = {"flags": OWN_FLAGS, "passes": DISABLED_PASSES, "tolerance": tolerance}
    for name, text in ((FUNCTIONS_FILE, FUNCTIONS), (SCRIPT_FILE, SCRIPT)):
        write_text(folder / name, text.format(**names, **settings))
