"""The import contracts can fail: a small tree with the real configuration, and one with bad imports."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

# Who may import what, so that every package named in a contract occurs in the graph.
ALLOWED = {
    "cli.a": "import costbench.experiments.a, costbench.reports.a",
    "cli.stages": "import corpus",
    "reports.a": "import costbench.metrics.a",
    "experiments.a": "import mlflow, optuna, sqlalchemy, costbench.training.a, costbench.autotuning.a",
    "experiments.evaluation.a": "import costbench.models.a",
    "experiments.stages.evaluate": "import costbench.experiments.evaluation.a, costbench.metrics.rows",
    "experiments.stages.train": "import costbench.experiments.grid.a",
    "experiments.stages.sweep": "import costbench.experiments.sweeps.a",
    "experiments.stages.register": "import costbench.experiments.tracking.a",
    "experiments.grid.a": "import costbench.experiments.tracking.a, costbench.training.a",
    "experiments.sweeps.a": "import optuna, costbench.experiments.grid.a",
    "experiments.tracking.a": "import mlflow",
    "training.a": "import pytorch_lightning, costbench.models.a",
    "autotuning.a": "import costbench.models.a, costbench.hardware.a, costbench.search.a",
    "serving.mlflow_model": "import mlflow, costbench.models.a",
    "models.a": "import torch, torch_geometric, costbench.features.a",
    "models.baselines.trees": "import lightgbm",
    "models.learned": "def f():\n    import costbench_kernels.dispatch",
    "features.a": "import torch, costbench.datasets.records",
    "datasets.records": "import costbench.hlo.a",
    "datasets.generation": "import costbench.hardware.a, costbench.search.a",
    "hardware.a": "import costbench.compiler.a",
    "hardware.xla_cpu.backend": "import jax, jaxlib",
    "search.a": "import costbench.compiler.a",
    "compiler.a": "import costbench.hlo.a, costbench.target",
    "programs.canonical": "import jax, jaxlib, costbench.hlo.a",
    "hlo.a": "import costbench.artifacts, costbench.execution.compiled",
    "hashing": "import costbench.execution.compiled",
    "metrics.a": "import costbench.errors",
    "metrics.rows": "import costbench.artifacts",
    "tasks": "import costbench.metrics.a",
    "baselines": "",
    "target": "import costbench.params",
    "params": "import costbench.errors",
    "artifacts": "import costbench.errors",
    "rng": "",
    "arrays": "import numpy",
    "extensions": "import costbench.errors",
    "store": "import costbench.artifacts, costbench.params, costbench.execution.workers",
    "execution.compiled": "import numba",
    "execution.workers": "import joblib, costbench.artifacts",
    "errors": "import costbench.limits",
    "limits": "",
    "installation": "",
}

OF_SCHEDULES = {
    "cli.a": "import costbench.extensions, costbench_schedules.stage",
    "stage": "import costbench_schedules.experiments.a",
    "reports.a": "import costbench.reports.a, costbench_schedules.section_file",
    "experiments.a": "import costbench_schedules.search.a",
    "search.a": "import costbench.search.a, costbench_schedules.models.a",
    "search.tpe": "import optuna",
    "models.a": "import torch, costbench_schedules.features.a",
    "models.trees": "import lightgbm, xgboost",
    "features.a": "import costbench_schedules.records.a",
    "records.a": "import costbench_schedules.devices.device",
    "crop.a": "import costbench_schedules.devices.device",
    "devices.device": "import costbench_schedules.spaces.a",
    "devices.library": "import torch",
    "devices.meta_schedule": "import tvm",
    "devices.tvm_adapter": "import tvm, tvm_ffi",
    "devices.instrumented.description": "import llvmlite, costbench_schedules.llvm.program",
    "devices.instrumented.engine": "import llvmlite",
    "llvm.program": "import llvmlite",
    "spaces.a": "import costbench_schedules.operators.a",
    "operators.a": "import costbench_schedules.metrics",
    "metrics": "import costbench.metrics.a",
    "section_file": "import costbench.params",
}
"""The same of the package of schedules."""

OF_KERNELS = {
    "dispatch": "import torch, costbench.models.a, costbench_kernels.register_tiles",
    "register_tiles": "import llvmlite, numba, costbench.execution.compiled",
}
"""The same of the package of compiled kernels."""


def check(repository: Path, folder: Path, changes: dict[str, str]) -> subprocess.CompletedProcess[str]:
    packages = {
        "costbench": dict(ALLOWED),
        "costbench_kernels": dict(OF_KERNELS),
        "costbench_schedules": dict(OF_SCHEDULES),
    }
    for name, imports in changes.items():
        first, _, rest = name.partition(".")
        top, module = (first, rest) if first in packages else ("costbench", name)
        packages[top][module] = imports
    for top, modules in packages.items():
        package = folder / "src" / top
        for name, imports in modules.items():
            module = package.joinpath(*name.split(".")).with_suffix(".py")
            module.parent.mkdir(parents=True, exist_ok=True)
            (module.parent / "__init__.py").touch()
            module.write_text(imports + "\n")
        (package / "__init__.py").touch()
    shutil.copy(repository / "pyproject.toml", folder)
    return subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command as main; main(['--no-cache'])",
        ],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_designed_imports_are_accepted(repository: Path, tmp_path: Path) -> None:
    done = check(repository, tmp_path, {})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


FORBIDDEN = (
    ("hlo.b", "import costbench.compiler.a", "costbench.hlo.b -> costbench.compiler.a"),
    ("hlo.c", "def f():\n    import costbench.target", "costbench.hlo.c -> costbench.target"),
    ("training.b", "import costbench.autotuning.a", "costbench.training.b -> costbench.autotuning.a"),
    ("models.b", "import costbench.hardware.a", "costbench.models.b -> costbench.hardware.a"),
    (
        "features.b",
        "import costbench.datasets.generation",
        "costbench.features.b -> costbench.datasets.generation",
    ),
    ("training.c", "import costbench.metrics.rows", "costbench.training.c -> costbench.metrics.rows"),
    (
        "experiments.sweeps.b",
        "def f():\n    import costbench.experiments.evaluation.a",
        "costbench.experiments.sweeps.b -> costbench.experiments.evaluation.a",
    ),
    (
        "experiments.stages.register",
        "import costbench.experiments.stages.evaluate",
        "costbench.experiments.stages.register -> costbench.experiments.stages.evaluate",
    ),
    ("datasets.b", "import torch", "costbench.datasets.b -> torch"),
    ("reports.b", "import costbench.experiments.a", "costbench.reports.b -> costbench.experiments.a"),
    ("models.c", "import pytorch_lightning", "costbench.models.c -> pytorch_lightning"),
    ("training.d", "from mlflow.tracking import x", "costbench.training.d -> mlflow"),
    ("serving.b", "import mlflow", "costbench.serving.b -> mlflow"),
    ("serving.c", "import costbench.hardware.a", "costbench.serving.c -> costbench.hardware.a"),
    ("training.e", "import optuna", "costbench.training.e -> optuna"),
    ("training.f", "import lightgbm", "costbench.training.f -> lightgbm"),
    ("models.d", "import xgboost", "costbench.models.d -> xgboost"),
    ("models.e", "import llvmlite", "costbench.models.e -> llvmlite"),
    ("datasets.c", "def f():\n    import jax.numpy", "costbench.datasets.c -> jax"),
    ("programs.b", "import keras", "costbench.programs.b -> keras"),
    ("programs.c", "import corpus.zoo", "costbench.programs.c -> corpus"),
    (
        "costbench_schedules.devices.worker",
        "def f():\n    import tvm.te",
        "costbench_schedules.devices.worker -> tvm",
    ),
    (
        "experiments.b",
        "def f():\n    import costbench_schedules.stage",
        "costbench.experiments.b -> costbench_schedules.stage",
    ),
    (
        "costbench_schedules.crop.b",
        "import costbench_schedules.search.a",
        "costbench_schedules.crop.b -> costbench_schedules.search.a",
    ),
    ("training.g", "import costbench_kernels.dispatch", "costbench.training.g -> costbench_kernels"),
    ("costbench_kernels.b", "import costbench.training.a", "costbench_kernels.b -> costbench.training.a"),
    ("costbench_schedules.reports.b", "import torch", "costbench_schedules.reports.b -> torch"),
    ("errors", "import costbench.rng", "costbench.errors -> costbench.rng"),
    ("newcomer", "import costbench.errors", "newcomer"),
)
"""Modules that nothing imports, what each imports, and what is shown of it."""


@pytest.fixture(scope="module")
def shown(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What is said of a tree with all forbidden imports, in one line."""
    modules = {module: imports for module, imports, _ in FORBIDDEN}
    assert len(modules) == len(FORBIDDEN)
    done = check(repository, tmp_path_factory.mktemp("forbidden"), modules)
    assert done.returncode == 1
    return " ".join(done.stdout.split())


@pytest.mark.parametrize(("module", "imports", "broken"), FORBIDDEN)
def test_a_forbidden_import_is_named(shown: str, module: str, imports: str, broken: str) -> None:
    assert broken in shown
