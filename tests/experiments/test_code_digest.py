"""Results that are kept know all code that they follow from: modules of a copy are changed one by one."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import costbench
from costbench.datasets.fusion_generation import FusionTask
from costbench.datasets.generation import generate
from costbench.datasets.layout_generation import LayoutTask
from costbench.datasets.tile_generation import TileTask
from costbench.execution.closure import Sources, find_closure, read_sources
from costbench.experiments import identity
from costbench.experiments.autotuning.comparison import autotune
from costbench.experiments.grid.kernel_training import KernelTraining
from costbench.experiments.grid.layout_training import LayoutTraining
from costbench.experiments.grid.training_run import train_cell
from costbench.experiments.identity import EXCLUDED, closure, code_digest
from costbench.experiments.stages.features import make_features
from costbench.experiments.sweeps.sweep import sweep

PACKAGE = Path(costbench.__file__).parent
WORK: dict[str, tuple[Callable[..., object], ...]] = {
    "generate": (generate, TileTask, FusionTask, LayoutTask),
    "features": (make_features,),
    "train": (train_cell, KernelTraining),
    "layouts": (train_cell, LayoutTraining),
    "sweep": (sweep, KernelTraining),
    "autotune": (autotune,),
}
# Some of the modules that a list by hand once left out, or that only lazy imports and strings show.
KNOWN = {
    "generate": ("params", "execution.compiled", "target", "rng", "hardware.simulator", "hlo.shape"),
    "features": ("params", "execution.compiled", "features.feature_shards"),
    "train": ("params", "execution.compiled", "training.fit", "training.kernel_source", "models.learned",
              "features.schema"),
    "layouts": ("params", "training.layout.fit", "models.layout.segments", "datasets.layout_graphs"),
    "sweep": ("params", "training.fit", "experiments.sweeps.study", "experiments.grid.training_run"),
    "autotune": ("params", "execution.compiled", "models.learned", "hardware.device", "search.genetic"),
}  # fmt: skip


KERNELS = PACKAGE.with_name("costbench_kernels")
CODE = read_sources(PACKAGE, KERNELS)


def digests(package: Sources) -> dict[str, str]:
    return {
        stage: find_closure({one.__module__ for one in work}, package, EXCLUDED).digest()
        for stage, work in WORK.items()
    }


NOW = digests(CODE)


def changed(package: Sources) -> set[str]:
    """Stages whose digests differ from those of the code as it is."""
    return {stage for stage, digest in digests(package).items() if digest != NOW[stage]}


@pytest.mark.parametrize("stage", WORK)
def test_known_modules_are_in(stage: str) -> None:
    modules = set(closure(*WORK[stage]).modules)
    assert {f"costbench.{name}" for name in KNOWN[stage]} <= modules
    trains = stage in ("train", "sweep", "autotune")
    assert ("costbench_kernels.register_tiles" in modules) == trains
    assert not [
        name for name in modules if name.startswith(("costbench.reports", "costbench.cli", *EXCLUDED))
    ]


def test_every_module_and_data_file_changes_the_digests_of_those_that_run_it() -> None:
    closures = {stage: closure(*work) for stage, work in WORK.items()}
    wrong = {}
    for name, text in CODE.modules.items():
        edited = replace(CODE, modules={**CODE.modules, name: text + b"\nedited = 1\n"})
        if (found := changed(edited)) != {stage for stage, one in closures.items() if name in one.modules}:
            wrong[name] = found
    for name, text in CODE.data.items():
        edited = replace(CODE, data={**CODE.data, name: text + b"\n"})
        if (found := changed(edited)) != {stage for stage, one in closures.items() if name in one.data}:
            wrong[name] = found
    assert wrong == {}


def rewritten(text: str) -> str:
    """A module without comments, with other docstrings and in another format."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and node.value.value is not ...
        ):
            node.value = ast.Constant("Another docstring.")
    return "# Another comment.\n" + ast.unparse(tree)


def test_comments_docstrings_and_format_change_nothing(tmp_path: Path) -> None:
    copies = [
        Path(shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__")))
        for package in (PACKAGE, KERNELS)
    ]
    for file in tmp_path.rglob("*.py"):
        file.write_text(rewritten(file.read_text("utf-8")), "utf-8")
    assert "Another docstring." in (copies[0] / "experiments" / "identity.py").read_text("utf-8")
    assert changed(read_sources(*copies)) == set()


def test_data_files_have_a_reader() -> None:
    """All but sources of generated modules: none is read by a way that the closure does not see."""
    assert set(find_closure(CODE.modules, CODE).data) == set(CODE.data)


@pytest.mark.parametrize("library", ["torch", "numba", "llvmlite", "numpy"])
def test_libraries_that_compute_are_counted(library: str) -> None:
    found = closure(*WORK["train"]).libraries
    assert library in found
    assert all(found.values())
    assert "optuna" in closure(sweep).libraries


def test_a_digest_is_also_of_the_version_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_digest(train_cell)
    monkeypatch.setattr(identity, "_python", lambda: "3.99")
    assert code_digest(train_cell) != before
