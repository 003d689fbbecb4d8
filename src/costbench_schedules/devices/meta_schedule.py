"""TVM's own tuner, MetaSchedule, as a reference: its spaces and its search, measured as ours are.

MetaSchedule proposes schedules by rules of its own (multi-level tiling "SSRSRS", cache writes, parallel,
vectorise, unroll) and searches them by an evolutionary algorithm with XGBoost as cost model. Its builder and
its runner are replaced by the worker of `CpuDevice`: the same thread, clock, blocks and check of the output,
the same failures. So two searches differ in what they propose alone. With `tvm_adapter` this is what imports
TVM.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from costbench.errors import DataError
from costbench_schedules.devices.device import CpuDevice
from costbench_schedules.devices.reference_tuner import ReferenceSpec, ReferenceTrial, ReferenceTrials
from costbench_schedules.devices.tvm_adapter import module_of, target_of, write_program
from costbench_schedules.operators.operators import Operator

_NS = 1e9
_PER_BATCH = 64
_PROGRAM = "program.json"


@derived_object
class _Builder(ms.builder.PyBuilder):  # type: ignore[misc]
    """Writes programs; the worker builds them."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder
        self._count = 0

    def build(self, build_inputs: list[Any]) -> list[Any]:
        """Returns the paths of the programs."""
        results = []
        for build_input in build_inputs:
            folder = self._folder / f"{self._count:06d}"
            folder.mkdir(parents=True)
            self._count += 1
            write_program(build_input.mod, folder / _PROGRAM)
            results.append(ms.builder.BuilderResult(str(folder / _PROGRAM), None))
        return results


@derived_object
class _Finished(ms.runner.PyRunnerFuture):  # type: ignore[misc]
    """A measurement that has been made."""

    def __init__(self, trial: ReferenceTrial) -> None:
        super().__init__()
        self._trial = trial

    def done(self) -> bool:
        """Returns True."""
        return True

    def result(self) -> Any:
        """Returns seconds, or the error."""
        if self._trial.runtime_ns is None:
            return ms.runner.RunnerResult(None, self._trial.reason)
        return ms.runner.RunnerResult([self._trial.runtime_ns / _NS], None)


@derived_object
class _Runner(ms.runner.PyRunner):  # type: ignore[misc]
    """Measures programs with a device."""

    def __init__(self, measure: Callable[[Path], ReferenceTrial]) -> None:
        super().__init__()
        self._measure = measure

    def run(self, runner_inputs: list[Any]) -> list[Any]:
        """Returns one finished future per program."""
        return [_Finished(self._measure(Path(runner_input.artifact_path))) for runner_input in runner_inputs]


class _Measured:
    """Measures programs and remembers what came out.

    Attributes:
        trials: trials in order.
    """

    def __init__(self, operator: Operator, device: CpuDevice) -> None:
        self._operator, self._device = operator, device
        self.trials: list[ReferenceTrial] = []

    def __call__(self, program: Path) -> ReferenceTrial:
        measurement = self._device.measure_program(self._operator, program)
        runtime = None if measurement.failed[0] else int(measurement.runtime_ns[0])
        trial = ReferenceTrial(runtime, measurement.reasons[0], str(program))
        self.trials.append(trial)
        return trial


def search_by_meta_schedule(operator: Operator, spec: ReferenceSpec, folder: Path) -> ReferenceTrials:
    """Returns what TVM's tuner finds for an operator; see `reference_tuner.meta_schedule`.

    Raises:
        DataError: if it measured nothing, or see `CpuDevice.measure`.
    """
    # It logs every round, to the root logger; the trials say what is needed.
    logging.getLogger("tvm.s_tir.meta_schedule").setLevel(logging.WARNING)
    with CpuDevice(spec.target) as device:
        measured = _Measured(operator, device)
        ms.tune_tir(
            mod=module_of(operator),
            target=target_of(spec.target),
            work_dir=str(folder),
            max_trials_global=spec.trials,
            num_trials_per_iter=min(_PER_BATCH, spec.trials),
            builder=_Builder(Path(tempfile.mkdtemp(prefix="programs-", dir=folder))),
            runner=_Runner(measured),
            cost_model="xgb",
            strategy="evolutionary",
            seed=spec.seed,
            # The default ones without the one that removes programs: the fastest are measured again.
            measure_callbacks=[ms.measure_callback.AddToDatabase(), ms.measure_callback.UpdateCostModel()],
        )
    if not measured.trials:
        raise DataError("MetaSchedule measured nothing", where=operator.text)
    return ReferenceTrials(tuple(measured.trials))
