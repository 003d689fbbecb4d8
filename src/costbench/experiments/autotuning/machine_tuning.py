"""Tunes the fusions of a program on this processor, where XLA compiles and runs it.

The searches are those of the simulated chips: on hardware alone, or on a model first, whose best configs are
then measured. What differs is that a measurement is a compilation and runs of the whole program, charged by
the time that they take, and that the default is XLA's own: it is no config of the space, so a search starts
from the config that is nearest to it. What a search chooses is run anew in new processes, beside XLA's own
default, and its results are compared with those of the default. Where it is not faster there, XLA's own
fusions are kept: no program becomes slower by being tuned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np

from costbench.arrays import I16
from costbench.artifacts import read_bytes, write_bytes, write_text
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
from costbench.hardware.xla_cpu.backend import (
    DISABLED_PASSES,
    GIVEN_FLAGS,
    OWN_FLAGS,
    Backend,
    require_jax,
)
from costbench.hardware.xla_cpu.comparison import OWN, Comparison, compare
from costbench.hardware.xla_cpu.comparison import Gain as MachineGain
from costbench.hardware.xla_cpu.device import ProgramRunner
from costbench.hardware.xla_cpu.fusion_machine import FusionMachine
from costbench.hardware.xla_cpu.own_default import OWN_FUSED
from costbench.hardware.xla_cpu.program import CHIP, MachineProgram
from costbench.hardware.xla_cpu.reading import machine_program, read_program_proto
from costbench.hlo.call_inlining import SEPARATOR
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
_FROM_MODULE = FUNCTIONS.index("# Where XLA")
OWN_FUNCTIONS = FUNCTIONS[:_FROM_MODULE] + "tuned = default  # nothing faster was found\n"
"""The same where XLA's own fusions are kept."""
SCRIPT = """# Runs the program with XLA's own fusions and with the tuned ones in JAX: python {script}
import time, timeit, jax, numpy as np
from tuned_program import default, parameters, tuned
rng = np.random.default_rng(0)
values = [(rng.random(shape) + 0.5) / max(1, np.prod(shape[:-1])) for shape, _ in parameters]
inputs = [jax.numpy.asarray(value, dtype) for value, (_, dtype) in zip(values, parameters)]
for a, b in zip(*[[np.asarray(x, float) for x in run(*inputs)] for run in (default, tuned)]):
    assert np.linalg.norm(a - b) <= {tolerance} * np.linalg.norm(a), "other results"
def seconds(run):
    return timeit.timeit(lambda: jax.block_until_ready(run(*inputs)), timer=time.process_time, number=1)
before, after = np.median([[seconds(default), seconds(tuned)] for _ in range(9)], axis=0) * 1e3
"""
GAIN = (
    "print(f\"XLA's own fusions {{before:.3f}} ms, tuned {{after:.3f}} ms:"
    ' {{before / after:.3f}} times as fast")\n'
)
OWN_GAIN = """print(f"XLA's own fusions {{before:.3f}} ms: nothing faster was found")
"""


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
        own_ns: runtime with XLA's own fusions, measured as those of the searches are.

    Raises:
        DataError: if JAX is not installed, or XLA's own fusions change the results of the program.
        LeftOutError: if XLA does not compile the program, or a run takes too long.
    """

    def __init__(self, program: MachineProgram, folder: Path, seed: int = 0) -> None:
        self.program, self._folder = program, folder
        self.problem: TuningProblem[I16] = fusion_problem(program.space, CHIP)
        self._numbers = VectorSearchSpace(program.space)
        self._runner = ProgramRunner(program, Backend(GIVEN_FLAGS), seed, folder)
        self._machine = FusionMachine(self._runner)
        self.data = self._runner.data
        self.own_ns = self._machine.own_ns()

    @property
    def nearest(self) -> int:
        """Number of the config that is nearest to XLA's own fusions."""
        return self.number(self._runner.own_default.fused)

    @property
    def num_refused(self) -> int:
        """Configs that XLA refused, or whose runs took too long."""
        return self._machine.num_refused

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

    def own_module(self) -> bytes:
        """Returns the serialised module with XLA's own fusions, at the same point of compilation."""
        return read_bytes(self._folder / OWN_FUSED)

    def text_of(self, module: bytes) -> str:
        """Returns a serialised module as text."""
        return self._runner.backend.text_of(module)

    def compare(self, modules: dict[str, bytes], *, processes: int = 5, seconds: float = 60.0) -> Comparison:
        """Runs the program with the fusions of modules and with XLA's own in new processes."""
        folder = self._folder / "comparison"
        return compare(self.data, modules, folder, processes=processes, seconds=seconds)


def best_of(measured: SearchTrace | None) -> int | None:
    """Returns the number of the fastest config of a search; None if nothing could be measured."""
    if measured is None or not len(measured) or not math.isfinite(min(measured.scores)):
        return None
    return measured.best_decision


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
        KeyboardInterrupt: on Ctrl-C before a config was measured that can be chosen.
    """
    options = session.options
    require_jax()
    proto = read_program_proto(options.file)
    program = machine_program(proto, options.file, name)
    session.origins |= inlined_names(program, op_names(proto))
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
        search = partial(tune, tuner.problem, predictor, plan)
        predicted = session.search(step, search, lambda: session.keep_costs(predictor.pricer.known))
        assert predicted is not None  # only an earlier search could have been interrupted
        shortlist = Shortlist(None, distinct=True, budget=budget)
        search = partial(measure_best, tuner.problem, predicted, tuner.device(), shortlist)
        measured = session.search(MEASURING, search)
    best = best_of(measured)
    if best is None:
        raise KeyboardInterrupt if session.interrupted else _nothing_to_choose(tuner, measured)
    return _finish(tuner, session, folder, best, predicted, measured)


def inlined_names(program: MachineProgram, origins: Mapping[str, str]) -> dict[str, str]:
    """Returns what the user's code calls the instructions of a program, those of inlined calls too."""
    names = (inst.name for body in program.module.computations for inst in body.instructions)
    originals = {name: name.rpartition(SEPARATOR)[2] for name in names}
    return {name: origins[original] for name, original in originals.items() if original in origins}


def _nothing_to_choose(tuner: MachineTuner, measured: SearchTrace | None) -> DataError:
    """Returns the error of a search that ends without a config that can be chosen."""
    name = tuner.program.name
    if measured is None or not len(measured):
        return DataError("nothing was measured", where=name, expected="a larger --budget")
    counts = f"{tuner.num_different} changed results, XLA refused {tuner.num_refused} or they took too long"
    return DataError(f"none of {len(measured)} configs can be chosen: {counts}", where=name, expected="one")


def _finish(
    tuner: MachineTuner,
    session: Session,
    folder: Path,
    best: int,
    predicted: SearchTrace | None,
    measured: SearchTrace | None,
) -> tuple[TuningResult, str]:
    """Measures the chosen config and XLA's own fusions anew, and writes what is faster.

    Returns:
        The result and a sentence about the gain.
    """
    assert measured is not None
    module = tuner.module_of(best)
    comparison = tuner.compare({_TUNED: module})
    own_ns, tuned_ns = (float(np.median(comparison.runtime_ns[name])) for name in (OWN, _TUNED))
    searched = comparison.gain(_TUNED)
    is_own = searched.estimate <= 1.0
    gain = MachineGain(1.0, 1.0, 1.0) if is_own else searched
    _write_module(folder, tuner, tuner.own_module() if is_own else module, comparison.tolerance, is_own)
    known = {} if predicted is None else dict(zip(predicted.decisions, predicted.scores, strict=True))
    space, nearest = tuner.program.space, tuner.problem.decode(tuner.nearest)[0]
    config = nearest if is_own else tuner.problem.decode(best)[0]
    best_ns, predicted_ns = (own_ns, None) if is_own else (tuned_ns, known.get(best))
    spent = measured.spent_seconds.tolist()
    result = TuningResult(
        program=tuner.program.name,
        default_ns=own_ns,
        best_ns=best_ns,
        num_predicted=0 if predicted is None else len(predicted),
        num_measured=len(measured),
        hardware_seconds=spent[-1],
        decisions=describe_fusions(space, config)
        | {"is_own": is_own, "gain": asdict(gain), "gain_of_search": asdict(searched)},
        gains=(Gain("the program", 1, own_ns, predicted_ns, best_ns),),
        rows=tuple(cost_rows(measured, predicted)),
        curve=tuple(zip(spent, measured.best_so_far.tolist(), strict=True)),
        changes=tuple(describe_changes(space, nearest, config, session.origins)),
    )
    return result, _sentence(tuner, comparison, searched, is_own)


def _sentence(tuner: MachineTuner, comparison: Comparison, gain: MachineGain, is_own: bool) -> str:
    verdict = "more than the noise" if gain.is_faster or gain.is_slower else "within the noise"
    runs = len(comparison.runtime_ns[_TUNED])
    default = "them" if is_own else "XLA's own fusions"
    sentence = (
        f"{gain.estimate:.3f} times as fast as with {default}, 95% interval {gain.low:.3f} to"
        f" {gain.high:.3f} over {runs} processes: {verdict}; results differ by"
        f" {comparison.difference[_TUNED]:.1g} of their norm (allowed: {comparison.tolerance:g})"
    )
    if is_own:
        sentence = f"XLA's own fusions are kept, as the best that was found is {sentence}"
    if tuner.num_different:
        sentence += f"; {tuner.num_different} configs changed the results and were passed over"
    return sentence


def _write_module(folder: Path, tuner: MachineTuner, module: bytes, tolerance: float, is_own: bool) -> None:
    write_bytes(folder / PROGRAM_FILE, tuner.data)
    write_bytes(folder / MODULE_FILE, module)
    write_text(folder / TEXT_FILE, tuner.text_of(module))
    names = {"script": SCRIPT_FILE, "program": PROGRAM_FILE, "module": MODULE_FILE}
    settings = {"flags": OWN_FLAGS, "passes": DISABLED_PASSES, "tolerance": tolerance}
    functions, shown = (OWN_FUNCTIONS, OWN_GAIN) if is_own else (FUNCTIONS, GAIN)
    for name, text in ((FUNCTIONS_FILE, functions), (SCRIPT_FILE, SCRIPT + shown)):
        write_text(folder / name, text.format(**names, **settings))
