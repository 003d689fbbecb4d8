"""What the design promises about the source tree itself, checked on the files."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "src" / "costbench"
PACKAGES = {
    "": PACKAGE,
    "kernels": REPOSITORY / "src" / "costbench_kernels",
    "schedules": REPOSITORY / "src" / "costbench_schedules",
    "suite": REPOSITORY / "src" / "costbench_suite",
}
"""Import packages by the folder of their tests."""
DRAWERS = {"util", "utils", "common", "helper", "helpers", "core", "misc", "base", "shared", "lib"}
BANNED_MODULES = {"pickle", "cPickle", "dill", "shelve", "marshal"}
MAX_LINES = 600
MAX_STAGE_LINES = 40


def source_files(*folders: Path) -> list[Path]:
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    return [file for file in files if not file.name.endswith("_pb2.py")]


SOURCES = source_files(*PACKAGES.values(), REPOSITORY / "corpus")
ALL_CODE = source_files(
    *(REPOSITORY / name for name in ("src", "corpus", "pipelines", "benchmarks", "tools", "tests"))
)


def short(file: Path) -> str:
    return file.relative_to(REPOSITORY).as_posix()


def calls(file: Path) -> Iterator[ast.Call]:
    return (node for node in ast.walk(ast.parse(file.read_text("utf-8"))) if isinstance(node, ast.Call))


def imported_modules(file: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def test_import_contracts_hold() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command; lint_imports_command()"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_itself_imports_nothing_of_it() -> None:
    """It runs before every module: its names, which are for notebooks, are imported when they are used."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text("utf-8"))
    running = [node for node in tree.body if not isinstance(node, ast.If)]
    imported = {alias.name for node in running if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in running if isinstance(node, ast.ImportFrom)}
    assert imported == {"importlib", "typing"}


@pytest.mark.parametrize(
    "file",
    [file for file in SOURCES if file.name == "__init__.py" and file.parent != PACKAGE],
    ids=short,
)
def test_package_files_hold_a_docstring_only(file: Path) -> None:
    body = ast.parse(file.read_text("utf-8")).body
    assert len(body) == 1
    assert ast.get_docstring(ast.Module(body=body, type_ignores=[]))


def test_every_folder_of_modules_is_a_package() -> None:
    # Generated protocol buffers stay a plain folder: protoc writes no __init__.py.
    folders = {file.parent for file in SOURCES}
    assert [short(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_no_module_is_a_drawer() -> None:
    named = {part for file in SOURCES for part in file.relative_to(REPOSITORY).with_suffix("").parts}
    assert named & DRAWERS == set()


def test_files_are_short_enough_to_read() -> None:
    lengths = {short(file): len(file.read_text("utf-8").splitlines()) for file in ALL_CODE}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_LINES} == {}


def test_stage_scripts_are_glue() -> None:
    lengths = {
        short(file): len(file.read_text("utf-8").splitlines())
        for file in source_files(REPOSITORY / "pipelines")
    }
    assert {name: lines for name, lines in lengths.items() if lines > MAX_STAGE_LINES} == {}


def test_libraries_do_not_print() -> None:
    printing = {
        f"{short(file)}:{call.lineno}"
        for file in SOURCES
        if file.parent.name != "cli"
        for call in calls(file)
        if isinstance(call.func, ast.Name) and call.func.id == "print"
    }
    assert printing == set()


def test_nothing_is_pickled() -> None:
    importing = {short(file): imported_modules(file) & BANNED_MODULES for file in SOURCES}
    assert {name: modules for name, modules in importing.items() if modules} == {}


def test_arrays_and_checkpoints_are_loaded_without_running_code() -> None:
    required = {("np", "load"): ("allow_pickle", False), ("torch", "load"): ("weights_only", True)}
    loose = []
    for file in SOURCES:
        for call in calls(file):
            function = call.func
            if not (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)):
                continue
            rule = required.get((function.value.id, function.attr))
            given = {
                keyword.arg: keyword.value.value
                for keyword in call.keywords
                if isinstance(keyword.value, ast.Constant)
            }
            if rule is not None and given.get(rule[0]) is not rule[1]:
                loose.append(f"{short(file)}:{call.lineno}")
    assert loose == []


def test_folders_of_tests_are_packages() -> None:
    """Tests mirror packages: `tests/hlo/text/` is about `costbench.hlo.text`.

    `tests/schedules/` is about `costbench_schedules`, `tests/kernels/` about `costbench_kernels`,
    `tests/suite/` about `costbench_suite`.
    """
    elsewhere = {
        "contracts",
        "fuzz",
        "golden",
        "pipelines",
        "benchmarks",
        "corpus",
        "examples",
        "tools",
        "wheel",
    }
    folders = {
        file.parent.relative_to(REPOSITORY / "tests") for file in (REPOSITORY / "tests").rglob("test_*.py")
    }
    mirrored = [
        PACKAGES[folder.parts[0]].joinpath(*folder.parts[1:])
        if folder.parts[:1] and folder.parts[0] in PACKAGES
        else PACKAGE / folder
        for folder in sorted(folders)
        if folder.parts[:1] not in {(name,) for name in elsewhere}
    ]
    assert [short(folder) for folder in mirrored if not folder.is_dir()] == []


PROTOS = sorted(path.relative_to(REPOSITORY / "src").as_posix() for path in PACKAGE.rglob("*.proto"))


@pytest.mark.skipif(importlib.util.find_spec("grpc_tools") is None, reason="needs grpcio-tools")
def test_generated_modules_belong_to_their_protos(tmp_path: Path) -> None:
    source = REPOSITORY / "src"
    assert PROTOS
    subprocess.run(
        [
            *(sys.executable, "-m", "grpc_tools.protoc", f"-I{source}"),
            *(f"--python_out={tmp_path}", f"--pyi_out={tmp_path}", *PROTOS),
        ],
        check=True,
        cwd=source,
    )
    stale = [
        str(generated)
        for proto in PROTOS
        for generated in (proto.replace(".proto", "_pb2.py"), proto.replace(".proto", "_pb2.pyi"))
        if (tmp_path / generated).read_bytes() != (source / generated).read_bytes()
    ]
    assert stale == [], "run `make proto`"
