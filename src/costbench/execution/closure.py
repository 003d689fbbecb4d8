"""Finds the code that a module runs, which is all modules it reaches through imports, and digests it.

The modules are found, not listed: along every import, those inside functions included, and along every
string that names a module (`load(("costbench.training.fit",))`). Imports for type checkers do not run and are
not followed.

A digest is of code that runs. Comments, docstrings and formatting do not change it; data files of the package
that a module reads do, and so do the versions of the libraries that it imports.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from costbench.extensions import extension_packages

_NO_DATA = {".py", ".pyc", ".pyi", ".proto", ".typed"}
# Distributions whose names differ from the name that is imported.
_DISTRIBUTIONS = {"google": "protobuf", "ruamel": "ruamel.yaml"}
# Numba makes machine code through llvmlite, whose version decides about it as well.
_TRANSITIVE = {"numba": ("llvmlite",)}
# By these names a module finds the folder it lies in: `__file__`, `importlib.resources.files`.
_PATH_NAMES = ("__file__", "resources")
_DIGEST_LENGTH = 16
_COSTBENCH = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class _Source:
    """A parsed module.

    Attributes:
        digest: digest of its code, without comments, docstrings and formatting.
        imports: absolute names that it imports, in any package; not all are modules.
        mentions: strings that look like names of modules.
        finds_files: whether it asks for its own location, as modules do that read package data.
        strings: string constants of the module, if it does.
    """

    digest: str
    imports: frozenset[str]
    mentions: frozenset[str]
    finds_files: bool
    strings: frozenset[str]


@dataclass(frozen=True)
class Closure:
    """The code that some modules run.

    Attributes:
        modules: digest of each module's code, by name, in order of name.
        data: digest of each data file that these modules read, by path: `costbench/chips/...`.
        libraries: version of each library that they import, by distribution; empty where it is not installed.
    """

    modules: Mapping[str, str]
    data: Mapping[str, str]
    libraries: Mapping[str, str]

    def digest(self) -> str:
        """Returns the identity of code and libraries, 16 hexadecimal digits.

        It is the same with every version of Python.
        """
        parts = (*self.modules.items(), *self.data.items(), *self.libraries.items())
        return _digest("\n".join(f"{name} {value}" for name, value in parts).encode())


@dataclass(frozen=True)
class Sources:
    """The files of one or more import packages.

    Attributes:
        names: names by which the packages are imported.
        modules: text of each module, by name.
        packages: names of those modules that are packages themselves.
        data: contents of files that are no modules, by path from the folder that holds the package.
    """

    names: frozenset[str]
    modules: Mapping[str, bytes]
    packages: Container[str]
    data: Mapping[str, bytes]


def read_sources(*locations: Path) -> Sources:
    """Reads all files of packages, each in a folder of its name or a file of its own."""
    modules, packages, data = {}, set(), {}
    for location in locations:
        files = [location] if location.is_file() else sorted(location.rglob("*"))
        for file in files:
            path = file.relative_to(location.parent)
            if file.suffix == ".py":
                name = ".".join(path.with_suffix("").parts)
                if file.stem == "__init__":
                    name = name.removesuffix(".__init__")
                    packages.add(name)
                modules[name] = file.read_bytes()
            elif file.suffix not in _NO_DATA and "__pycache__" not in path.parts and file.is_file():
                data[path.as_posix()] = file.read_bytes()
    names = frozenset(location.stem for location in locations)
    return Sources(names, modules, frozenset(packages), data)


class _ModulesOfFolder(Mapping[str, bytes]):
    """Text of the modules in a folder, by name; files are read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def file(self, name: str) -> Path | None:
        """Returns the file of a module or package; None where the folder has none of this name."""
        parts = name.split(".")
        if not all(part.isidentifier() for part in parts):
            return None
        path = self._folder.joinpath(*parts)
        files = (path.with_name(f"{path.name}.py"), path / "__init__.py")
        return next((file for file in files if file.is_file()), None)

    def __getitem__(self, name: str) -> bytes:
        file = self.file(name)
        if file is None:
            raise KeyError(name)
        return file.read_bytes()

    def __iter__(self) -> Iterator[str]:
        for file in sorted(self._folder.rglob("*.py")):
            yield ".".join(file.relative_to(self._folder).with_suffix("").parts).removesuffix(".__init__")

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _PackagesOfFolder(_ModulesOfFolder):
    def __contains__(self, name: object) -> bool:
        file = self.file(str(name))
        return file is not None and file.name == "__init__.py"


def folder_sources(folder: Path) -> Sources:
    """Returns the modules in a folder of a user's own, which are read as far as they are reached."""
    return Sources(frozenset(), _ModulesOfFolder(folder), _PackagesOfFolder(folder), {})


@cache
def installed_sources() -> Sources:
    """Returns the sources of costbench and of the packages that extend it, read once in a process.

    These are packages beside it whose names begin with `costbench`, as those of its wheel do, and others with
    entry points.
    """
    beside = {file.parent for file in _COSTBENCH.parent.glob("costbench*/__init__.py")}
    return read_sources(*sorted(beside | {_location(name) for name in extension_packages()}))


def _location(package: str) -> Path:
    """Returns the folder of a package, or the file of a module that is none."""
    spec = find_spec(package)
    assert spec is not None  # its entry point was found
    assert spec.origin is not None
    origin = Path(spec.origin)
    return origin.parent if spec.submodule_search_locations else origin


def find_closure(
    roots: Iterable[str],
    sources: Sources,
    excluded: Sequence[str] = (),
    version: Callable[[str], str] | None = None,
) -> Closure:
    """Returns the code that modules run.

    Args:
        roots: names of modules of the packages.
        sources: files of the packages.
        excluded: modules and packages that are left out, with all that only they import.
        version: function from the name of a distribution to its version; None for those installed here.

    Returns:
        modules of the packages, data and libraries that the roots reach, the roots themselves included.

    Raises:
        ValueError: if a root is no module of the packages.
    """
    reached: dict[str, _Source] = {}
    libraries: set[str] = set()
    pending = sorted(set(roots))
    if unknown := [root for root in pending if root not in sources.modules]:
        raise ValueError(f"no modules of {', '.join(sorted(sources.names))}: {', '.join(unknown)}")
    while pending:
        name = pending.pop()
        if (
            name in reached
            or name not in sources.modules
            or any(_within(name, package) for package in excluded)
        ):
            continue
        reached[name] = source = _read(sources.modules[name], name, name in sources.packages)
        pending += sorted(source.imports | source.mentions)
        # A package's own file runs before its modules do.
        pending += [name.rpartition(".")[0]]
        libraries |= {imported.partition(".")[0] for imported in source.imports} - sources.names
    data = {path for name, source in reached.items() for path in _data_files(name, source, sources)}
    return Closure(
        {name: reached[name].digest for name in sorted(reached)},
        {path: _digest(sources.data[path]) for path in sorted(data)},
        _versions(libraries, version or _installed),
    )


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGEST_LENGTH]


def _data_files(name: str, source: _Source, sources: Sources) -> list[str]:
    """Returns data files beside a module that asks for its location, and those in folders that it names."""
    if not source.finds_files:
        return []
    package = name if name in sources.packages else name.rpartition(".")[0]
    top = name.partition(".")[0]
    folders = {path: path.rpartition("/")[0] for path in sources.data if _within(path.replace("/", "."), top)}
    return [
        path
        for path, folder in folders.items()
        if folder == package.replace(".", "/") or folder.split("/")[-1] in source.strings
    ]


def _versions(imported: set[str], version: Callable[[str], str]) -> dict[str, str]:
    """Returns versions of libraries, without what builds of one version differ by (`+cpu`)."""
    names = imported - sys.stdlib_module_names
    names |= {dependency for name in names for dependency in _TRANSITIVE.get(name, ())}
    distributions = sorted({_DISTRIBUTIONS.get(name, name.replace("_", "-")) for name in names})
    return {name: version(name).partition("+")[0] for name in distributions}


@cache
def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


@cache
def _read(text: bytes, name: str, is_package: bool) -> _Source:
    """Parses a module. Results are cached by contents: closures share most of their modules."""
    collects = gc.isenabled()
    # Trees hold no cycles that need collection; looking for some would double the time.
    gc.disable()
    try:
        reader = _Reader(name if is_package else name.rpartition(".")[0])
        reader.visit(ast.parse(text))
    finally:
        if collects:
            gc.enable()
    return _Source(
        digest=_digest("\0".join(reader.code).encode()),
        imports=frozenset(reader.names),
        mentions=frozenset(text for text in reader.strings if "." in text and " " not in text),
        finds_files=reader.finds_files,
        strings=frozenset(reader.strings) if reader.finds_files else frozenset(),
    )


class _Reader:
    """Serialises a syntax tree without positions and docstrings, in one form for all versions of Python.

    Attributes:
        code: words of the tree.
        names: modules that may be imported; also attributes of modules, which name none.
        finds_files: whether the module asks for its own location.
        strings: constants, among them names of modules and of folders.
    """

    def __init__(self, package: str) -> None:
        self.code: list[str] = []
        self.names: set[str] = set()
        self.strings: set[str] = set()
        self.finds_files = False
        self._package = package

    def visit(self, node: ast.AST) -> None:
        """Appends a node and its descendants to the code."""
        if isinstance(node, ast.If) and _name_of(node.test) == "TYPE_CHECKING":
            self._fields([("orelse", node.orelse)])
            return
        self._collect_names(node)
        self.code.append(type(node).__name__)
        self._fields(ast.iter_fields(node))

    def _fields(self, fields: Iterable[tuple[str, object]]) -> None:
        for name, value in fields:
            # Empty fields are left out, since later versions of Python know more of them.
            if value is None or value == [] or name in ("kind", "type_comment"):
                continue
            self.code.append(name)
            for child in value if isinstance(value, list) else (value,):
                if not isinstance(child, ast.AST):
                    self.code.append(repr(child))
                elif not _is_docstring(child):
                    self.visit(child)
        self.code.append(")")

    def _collect_names(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            self.names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = self._absolute(node.module or "", node.level)
            self.names |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and _name_of(node.func) == "import_module":
            self.names |= {
                str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)
            }
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            self.strings.add(node.value)
        elif isinstance(node, ast.Name | ast.Attribute) and _name_of(node) in _PATH_NAMES:
            self.finds_files = True

    def _absolute(self, module: str, level: int) -> str:
        if level == 0:
            return module
        parents = self._package.split(".")
        return ".".join([*parents[: len(parents) - level + 1], *([module] if module else [])])


def _name_of(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _is_docstring(node: ast.AST) -> bool:
    """Returns whether a statement is a string alone: a docstring of a module, class, function or name."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
