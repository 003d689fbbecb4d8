"""Compares cost models with profiles of a real machine: imports profiles, predicts their kernels, scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from costbench.compiler.analytical_model import AnalyticalModel
from costbench.datasets.measured_kernels import CompiledPrograms, MeasuredKernels, fusion_parts
from costbench.datasets.profiles.importing import ImportedProfiles
from costbench.errors import DataError
from costbench.execution.dotted import is_dotted
from costbench.experiments.autotuning.program_tuning import model_folder
from costbench.experiments.autotuning.session import ANALYTICAL
from costbench.experiments.evaluation.fusion import evaluate_fusions
from costbench.experiments.evaluation.program import (
    ALL_KERNELS,
    BEST,
    Checkpoint,
    EvaluateParams,
    ProgramTask,
)
from costbench.experiments.grid.cells import MAIN
from costbench.features.feature_shards import feature_path, write_features
from costbench.features.graph_tensors import program_features
from costbench.models.baselines.fitting import classes_of
from costbench.models.user_model import load_user_model
from costbench.target import Target, load_target

_FEATURES = "features"


@dataclass(frozen=True)
class ProfileScore:
    """Metrics of a model on the kernels of a program.

    Attributes:
        program: name of the program.
        model: the model as it was named; of fitted baselines folder and name.
        metrics: those of the fusion task by name (`mape`, `kendall_tau`, both also `_ge5us` and `_lt5us`);
            undefined ones are left out.
        kernels: number of kernels that they are over: those with a choice of tile sizes.
        kernels_ge5us: number of them that take 5 us or more.
    """

    program: str
    model: str
    metrics: dict[str, float]
    kernels: int
    kernels_ge5us: int


def score_profiles(folder: Path, imported: ImportedProfiles, models: Sequence[str]) -> list[ProfileScore]:
    """Predicts the kernels of imported profiles by models and compares with their runtimes.

    Args:
        folder: folder of the data set; features are written into it.
        imported: profiles in it.
        models: `analytical`, folders of trained networks or of fitted baselines, addresses in the registry,
            or classes of the user's own as `module:Class`.

    Raises:
        DataError: for a model that cannot be read, is of another task, or predicts what is not finite; if
            no kernel has a choice of tile sizes.
        UnsupportedKernelError: for an opcode without a cost rule.
    """
    target, scores = load_target(imported.tiles_of), []
    for model in models:
        if is_dotted(model):
            load_user_model(model, target.architecture).for_task("fusion")
    for program in imported.programs:
        _write_program_features(folder, imported.chip, program.name, target)
        for model in models:
            scores += _score(_task(folder, imported, program.name, model), model)
    if not scores:
        problem = "no kernel has a choice of tile sizes, so none is predicted"
        raise DataError(problem, where=folder, expected="a profile of larger arrays")
    return scores


def _write_program_features(folder: Path, chip: str, program: str, target: Target) -> None:
    programs = CompiledPrograms(folder, 1)
    samples = MeasuredKernels(fusion_parts(folder, chip, program), programs, target.architecture)
    write_features(
        feature_path(folder / _FEATURES, "fusion", chip, program),
        [samples.kernel(index) for index in range(len(samples))],
        program_features(programs.module(program)),
        AnalyticalModel(target.architecture),
        {"program": program, "application": samples.application, "task": "fusion", "chip": chip},
    )


def _task(folder: Path, imported: ImportedProfiles, program: str, model: str) -> ProgramTask:
    names: tuple[str, ...] = (model,)
    checkpoints: tuple[Checkpoint, ...] = ()
    fitted = None
    if model != ANALYTICAL and not is_dotted(model):
        names = _fitted(Path(model))
        if names:
            fitted = Path(model)
        else:
            trained = model_folder(model, "fusion", imported.chip)
            checkpoints = (Checkpoint(model, MAIN, 0, trained),)
    return ProgramTask(
        data=folder,
        features=folder / _FEATURES,
        chip=imported.chip,
        program=program,
        checkpoints=checkpoints,
        models=names,
        params=EvaluateParams(models=names or (ANALYTICAL,), top_k=(1,), random_seeds=(0,)),
        seen=frozenset(),
        fitted=fitted,
        chip_file=imported.tiles_of,
    )


def _fitted(folder: Path) -> tuple[str, ...]:
    """Returns the baselines of the fusion task that are in a folder."""
    return tuple(name for name in classes_of("fusion") if (folder / f"{name}.json").is_file())


def _score(task: ProgramTask, model: str) -> list[ProfileScore]:
    by_model = dict(evaluate_fusions(task).metrics.get(ALL_KERNELS, {}))
    counts = by_model.pop((BEST, MAIN, 0), {})
    return [
        ProfileScore(
            program=task.program,
            model=model if len(by_model) == 1 else f"{model}/{name}",
            metrics=metrics,
            kernels=int(counts["kernels"]),
            kernels_ge5us=int(counts["kernels_ge5us"]),
        )
        for (name, _, _), metrics in by_model.items()
    ]
