"""Each stage depends on the code it runs: the import closure is computed and compared with `dvc.yaml`."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import grimp
import pytest

from costbench.params import load_yaml

REPOSITORY = Path(__file__).resolve().parents[2]
STAGES: Any = {
    # A stage that is done for each experiment has its fields under `do`.
    name: stage.get("do", stage)
    for name, stage in dict(load_yaml(REPOSITORY / "dvc.yaml")["stages"]).items()  # type: ignore[call-overload]
}
EACH_EXPERIMENT = ("train", "evaluate")
AUTOTUNED = ("main-tile", "hybrid-tile", "tuned-tile", "main-fusion", "hybrid-fusion")
# Read at run time, by name: import statements do not show it.
DATA_FILES = {"costbench.target": "src/costbench/chips"}


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Imports of the package, those inside functions included, those for type checkers left out."""
    return grimp.build_graph("costbench", exclude_type_checking_imports=True)


def _imported(script: Path) -> set[str]:
    """Modules of costbench that a script imports."""
    modules: set[str] = set()
    for node in ast.walk(ast.parse(script.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("costbench"):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            modules |= {name if _file(name).exists() else node.module for name in names}
    return modules


def _file(module: str) -> Path:
    return REPOSITORY / "src" / Path(*module.split(".")).with_suffix(".py")


def _closure(graph: grimp.ImportGraph, stage: str) -> set[str]:
    direct = _imported(REPOSITORY / "pipelines" / f"{stage}.py")
    assert direct, f"pipelines/{stage}.py imports nothing of costbench"
    found = set(direct)
    for module in direct:
        found |= graph.find_upstream_modules(module)
    return {module for module in found if _file(module).exists()}


def _sources(stage: str) -> list[str]:
    return [dep for dep in STAGES[stage]["deps"] if dep.startswith("src/")]


def _covers(dep: str, path: str) -> bool:
    return path == dep or path.startswith(f"{dep}/")


@pytest.mark.parametrize("stage", STAGES)
def test_deps_are_the_import_closure(graph: grimp.ImportGraph, stage: str) -> None:
    modules = _closure(graph, stage)
    needed = {_file(module).relative_to(REPOSITORY).as_posix() for module in modules}
    needed |= {path for module, path in DATA_FILES.items() if module in modules}
    deps = _sources(stage)
    missing = sorted(path for path in needed if not any(_covers(dep, path) for dep in deps))
    useless = [dep for dep in deps if not any(_covers(dep, path) for path in needed)]
    assert (missing, useless) == ([], []), f"deps of {stage} in dvc.yaml: (missing, useless)"


@pytest.mark.parametrize("stage", STAGES)
def test_deps_exist_and_name_the_script(stage: str) -> None:
    assert f"pipelines/{stage}.py" in STAGES[stage]["deps"]
    for dep in STAGES[stage]["deps"]:
        assert dep.startswith("${run.out}/") or (REPOSITORY / dep).exists(), dep


def test_one_word_in_four_places() -> None:
    sections: Any = load_yaml(REPOSITORY / "params.yaml")
    scripts = {path.stem for path in (REPOSITORY / "pipelines").glob("*.py")}
    assert scripts == set(STAGES)
    for name, stage in STAGES.items():
        assert stage["cmd"].startswith(f"python pipelines/{name}.py")
        if name == "collect":
            continue
        assert name in sections
        each = name in EACH_EXPERIMENT
        own = [name] + ["experiments.${key}"] * each
        if name == "train":
            own = ["train.${item.task}", "experiments.${key}"]
        elif name == "sweep":
            own = [name, "train.tile", "train.fusion"]
        elif name == "autotune":
            own = [name, *(f"experiments.{model}" for model in AUTOTUNED)]
        elif name == "report":
            own = [name, "train", "experiments"]
        assert stage["params"] == [{"${run.params}": own}]
        outs = [next(iter(out)) if isinstance(out, dict) else out for out in stage.get("outs", [])]
        assert name == "report" or outs == [f"${{run.out}}/{name}" + "/${key}" * each]


@pytest.mark.parametrize(
    "profile", ["params.yaml", "profiles/smoke/params.yaml", "profiles/paper/params.yaml"]
)
def test_autotune_depends_on_the_experiments_whose_models_it_uses(profile: str) -> None:
    section: Any = load_yaml(REPOSITORY / profile)["autotune"]
    assert (*section["tile"]["models"], *section["fusion"]["models"]) == AUTOTUNED
    trained = [dep for dep in STAGES["autotune"]["deps"] if dep.startswith("${run.out}/train")]
    assert trained == [f"${{run.out}}/train/{name}" for name in AUTOTUNED]


def test_only_the_corpus_is_frozen() -> None:
    assert [name for name, stage in STAGES.items() if stage.get("frozen")] == ["collect"]
