"""Cost models of kernels on a machine that exists, which have no tile sizes, for searches over fusions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from costbench.arrays import F32, F64
from costbench.autotuning.kernel_costs import KernelCosts
from costbench.compiler.kernel import Kernel
from costbench.compiler.spaces import TileSizes
from costbench.datasets.machine_recording import processor_name, recorded_processor
from costbench.datasets.machine_records import MACHINE, MachineRecords, machines, open_records
from costbench.errors import DataError
from costbench.execution.dotted import is_dotted
from costbench.experiments.autotuning.program_tuning import model_folder
from costbench.experiments.autotuning.session import ANALYTICAL, NO_MODEL
from costbench.features.decision_features import static_performance, tile_features
from costbench.features.graph_tensors import ProgramFeatureCache
from costbench.features.roofline import Roofline, even_weights, fit_roofline, read_roofline
from costbench.features.schema import NUM_LOOP_FEATURES
from costbench.hardware.xla_cpu.program import CHIP
from costbench.hlo.cost_analysis import CostAnalysis
from costbench.hlo.module import HloModule
from costbench.hlo.reader import read_module
from costbench.models.user_model import UserModel, load_user_model
from costbench.target import load_target

if TYPE_CHECKING:
    from costbench.models.learned import LearnedCostModel

RECORDS = Path("data") / CHIP
_KERNELS_PER_PROGRAM = 100
_NO_TILE = TileSizes(np.zeros((1, 0), np.int64), np.zeros((1, 0), np.int64))
_FEATURES_CHIP = "tpu_v3"


@dataclass(frozen=True, eq=False)
class RooflineKernels:
    """Kernel costs by a roofline.

    Attributes:
        roofline: its constants.
        analysis: cost analysis of the program.
    """

    roofline: Roofline
    analysis: CostAnalysis

    def costs(self, kernels: Sequence[Kernel]) -> F64:
        """Returns estimated nanoseconds, float64 [k]."""
        static = [static_performance(kernel, self.analysis) for kernel in kernels]
        return self.roofline.estimate(np.array(static, np.float64).reshape(-1, 4))


@dataclass(frozen=True, eq=False)
class UserKernels:
    """Kernel costs by a model of the user's own, which is given no tile sizes.

    Attributes:
        model: predicts nanoseconds.
    """

    model: UserModel

    def costs(self, kernels: Sequence[Kernel]) -> F64:
        """Returns predicted nanoseconds, float64 [k]."""
        return np.array([self.model.predict_ns(kernel, _NO_TILE) for kernel in kernels], np.float64)


@dataclass(frozen=True, eq=False)
class NetworkKernels:
    """Kernel costs by a network that was trained on runtimes of the machine.

    Attributes:
        model: predicts nanoseconds.
        roofline: makes the estimates that a hybrid corrects; None for other networks.

    Raises:
        DataError: for a model of relative scores, which cannot be summed over kernels, or a hybrid without a
            roofline.
    """

    model: LearnedCostModel
    roofline: Roofline | None
    _features: ProgramFeatureCache = field(default_factory=lambda: ProgramFeatureCache(1))

    def __post_init__(self) -> None:
        if self.model.predicts != "log_runtime_ns":
            expected = "log_runtime_ns: a model of the fusion task"
            raise DataError("costs of kernels do not add up", field="predicts", expected=expected)
        if self.model.net.spec.residual != "none" and self.roofline is None:
            expected = "a network that was trained on this machine"
            raise DataError("corrects the estimates of a compiler", field="residual", expected=expected)

    def costs(self, kernels: Sequence[Kernel]) -> F64:
        """Returns predicted nanoseconds, float64 [k]; all kernels form one batch."""
        from costbench.models.graph_batch import KernelSamples

        no_tile: F32 = np.concatenate(
            [tile_features(_NO_TILE), np.ones((1, NUM_LOOP_FEATURES), np.float32)], axis=1
        )
        samples = []
        for kernel in kernels:
            graph = self.model.graph(kernel, self._features)
            estimate = None
            if self.roofline is not None:
                estimate = self.roofline.estimate(graph.static_features[None].astype(np.float64))
            samples.append(KernelSamples(graph, no_tile, np.ones(1), "", estimate))
        predicted = self.model.predict_kernels(samples)
        return np.array([float(costs[0]) for costs in predicted])


def machine_model(name: str, module: HloModule, program: str, records: Path = RECORDS) -> KernelCosts | None:
    """Returns the cost model of a search over a program's fusions; None for hardware alone.

    Args:
        name: `analytical`, a roofline fitted to recorded kernels of other applications; the folder of a
            network that was trained on the machine, or its address in the registry; a class of the user's
            own as `module:Class`; `none`.
        module: the program, layouts assigned.
        program: its name, which says whose recorded kernels are left out.
        records: folder of recorded runtimes.

    Raises:
        DataError: for a model that cannot be loaded or is of another task, or if nothing is recorded.
    """
    if name == NO_MODEL:
        return None
    if name == ANALYTICAL:
        return RooflineKernels(recorded_roofline(records, program), CostAnalysis(module))
    if is_dotted(name):
        architecture = load_target(_FEATURES_CHIP).architecture
        return UserKernels(load_user_model(name, architecture).for_task("fusion"))
    from costbench.models.checkpoint import load_checkpoint

    folder = model_folder(name, "fusion", CHIP)
    return NetworkKernels(load_checkpoint(folder), read_roofline(folder))


def recorded_roofline(folder: Path, program: str) -> Roofline:
    """Returns a roofline fitted to recorded kernels of all applications but that of a program.

    Args:
        folder: folder of the records of one machine, or of several: then those of this processor count, and
            without any the first machine's.
        program: name of the program.

    Raises:
        DataError: if nothing is recorded.
    """
    records = _records_in(folder)
    entry = records.entries.get(program)
    table = records.kernels
    if entry is not None:
        table = table[table["application"] != entry.application]
    static, runtimes, applications = [], [], []
    for name, rows in table.groupby("program", sort=True, observed=True):
        some = rows.iloc[:: -(-len(rows) // _KERNELS_PER_PROGRAM)]
        static += _static_features(records, str(name), some.to_dict("records"))
        runtimes += some["first_ns"].tolist()
        applications += some["application"].tolist()
    return fit_roofline(
        np.array(static, np.float64).reshape(-1, 4),
        np.array(runtimes, np.float64),
        even_weights(applications),
    )


def _records_in(folder: Path) -> MachineRecords:
    if (folder / MACHINE).is_file():
        return open_records(folder.parent, folder.name)
    names = machines(folder) if folder.is_dir() else ()
    if not names:
        expected = "recorded runtimes, or --model none, or a trained model"
        raise DataError("no records of a machine", where=folder, expected=expected)
    here = processor_name()
    of_here = [name for name in names if len(names) > 1 and recorded_processor(folder / name) == here]
    return open_records(folder, (of_here or names)[0])


def _static_features(records: MachineRecords, program: str, rows: Sequence[Mapping[Any, Any]]) -> list[F32]:
    module = read_module(records.programs_folder / records.entries[program].file)
    analysis = CostAnalysis(module)
    features = []
    for row in rows:
        instructions, inputs, outputs = (
            tuple(map(int, row[part])) for part in ("instructions", "inputs", "outputs")
        )
        kernel = Kernel(module, int(row["computation"]), instructions, inputs, outputs)
        features.append(static_performance(kernel, analysis))
    return features
