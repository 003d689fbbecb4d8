"""Imports what a user names by dotted path, `module:attribute`, and says where in that file it fails.

Modules are looked for in the project's folder, in the current folder, and among those that are installed.
Where a parameter file names a class or a function, arguments may follow: `mynet:MyConv(heads=2)`.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from costbench.artifacts import digest_bytes
from costbench.errors import CostbenchError, DataError, ParamsError, nearest
from costbench.execution.closure import find_closure, folder_sources

PROJECT = "COSTBENCH_PROJECT"
"""Environment variable with the project's folder, which worker processes inherit."""
EXPECTED = "module:attribute, such as mymodel:MyModel for class MyModel of mymodel.py in the current folder"
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_DIGEST_LENGTH = 16
_INSTALLED = tuple(Path(sysconfig.get_path(kind)) for kind in ("stdlib", "purelib", "platlib"))


def is_dotted(name: str) -> bool:
    """Returns whether a name has the form `package.module:attribute`; `models:/name@alias` has not."""
    return _DOTTED.fullmatch(name) is not None


def is_part(text: str) -> bool:
    """Returns whether a value of a parameter file is a dotted path, with or without arguments behind it."""
    return is_dotted(text.partition("(")[0])


def split_arguments(text: str) -> tuple[str, dict[str, Any]]:
    """Splits `name(argument=value, ...)` into name and arguments, which are Python literals.

    Raises:
        ValueError: for arguments of another form.
    """
    name, bracket, _ = text.partition("(")
    try:
        call = ast.parse(f"f{text[len(name) :] if bracket else '()'}", mode="eval").body
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.args:
            arguments = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords if word.arg}
            if len(arguments) == len(call.keywords):
                return name.strip(), arguments
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    raise ValueError(f"{text!r} has arguments of another form than name=value")


@dataclass(frozen=True)
class Part:
    """What a parameter names by dotted path: a class or a function, and arguments.

    Attributes:
        field: name of the parameter, for errors.
        text: its value.
        value: the class or function.
        arguments: arguments behind the dotted path.
    """

    field: str
    text: str
    value: Any
    arguments: dict[str, Any]

    @property
    def parameters(self) -> frozenset[str]:
        """Returns the names of the parameters of the class or function.

        Raises:
            ParamsError: if it is neither.
        """
        try:
            return frozenset(inspect.signature(self.value).parameters)
        except (TypeError, ValueError) as error:
            raise self.refuse(f"is a {type(self.value).__name__}", "a class or a function") from error

    def refuse(self, problem: str, expected: str) -> ParamsError:
        """Returns the error for a part that is not as it has to be: field, dotted path, problem, expected."""
        return ParamsError(f"{self.text}: {problem}", field=self.field, expected=expected)

    @contextmanager
    def checked(self, expected: str) -> Iterator[None]:
        """Turns any exception of the user's code into one line with the field and what was expected.

        Raises:
            ParamsError: in place of an exception.
        """
        try:
            with errors_of(self.text.partition("(")[0]):
                yield
        except DataError as error:
            if isinstance(error.__cause__, ParamsError):  # of a part inside this one
                raise error.__cause__ from None
            problem = f"{error.field}: {error.problem}" if error.field else error.problem
            raise self.refuse(problem, expected) from error


def load_part(text: str, field: str) -> Part:
    """Imports what a parameter names by dotted path.

    Raises:
        ParamsError: naming the field, if there is no such module or attribute, it cannot be imported, or its
            arguments are of another form.
    """
    try:
        name, arguments = split_arguments(text)
        return Part(field, text, load_dotted(name), arguments)
    except ValueError as error:
        raise ParamsError(str(error), field=field, expected="module:Name(argument=value, ...)") from error
    except CostbenchError as error:
        problem = f"{error.field}: {error.problem}" if error.field else error.problem
        raise ParamsError(f"{text}: {problem}", field=field, expected=error.expected) from error


def load_dotted(name: str) -> object:
    """Imports a module, of the project, of the current folder or installed, and returns its attribute.

    Args:
        name: `package.module:attribute`.

    Raises:
        DataError: if the name has another form, there is no such module or attribute, or importing the module
            fails; the last says at which line of which file.
    """
    module_name, _, attributes = name.partition(":")
    if not is_dotted(name) or module_name.endswith(".py"):
        raise DataError(f"{name!r} is no dotted path", expected=EXPECTED)
    with _user_folders():
        # A file that was written since this process began is found as well.
        importlib.invalidate_caches()
        with errors_of(name):
            value: object = _import(module_name, name)
    for attribute in attributes.split("."):
        if not hasattr(value, attribute):
            names = [public for public in dir(value) if public[0] != "_"]
            problem = f"no attribute {attribute!r}{nearest(attribute, names)}"
            raise DataError(problem, where=name, expected=f"one of {', '.join(names)}")
        value = getattr(value, attribute)
    return value


@contextmanager
def errors_of(name: str) -> Iterator[None]:
    """Turns any exception of the user's code into one line: file, line, function, kind and message.

    The line is the last one in a file of the user's, which is often not where a library raised.

    Args:
        name: dotted path of the code that runs.

    Raises:
        DataError: in place of an exception.
    """
    try:
        yield
    except DataError as error:
        if error.where == name:
            raise
        raise DataError(error.message(), where=name, field=_location(error, name)) from error
    except Exception as error:
        what = " ".join(str(error).split())
        problem = f"{type(error).__name__}: {what}" if what else type(error).__name__
        raise DataError(problem, where=name, field=_location(error, name)) from error


def source_digest(name: str) -> str:
    """Returns the digest of the code that a dotted path names, 16 hexadecimal digits.

    It is of the module and of those in the same folder that it imports, without comments and docstrings; of
    an installed module of the file alone. Nothing is run, unless the module lies in a package.

    Args:
        name: dotted path, maybe with arguments, which do not count.

    Raises:
        DataError: if there is no such module, or its file cannot be read or parsed.
    """
    module = name.partition(":")[0]
    file = _file_of(module)
    # A module that is loaded may have lost its file since.
    if file is None or not Path(file).is_file():
        raise DataError("no such module", where=name, expected=_expected(module))
    path = Path(file)
    folder = path.parents[module.count(".") + (path.stem == "__init__")]
    with errors_of(name):
        if is_installed(path):
            return digest_bytes(path.read_bytes())[:_DIGEST_LENGTH]
        return find_closure([module], folder_sources(folder)).digest()


def is_installed(file: Path) -> bool:
    """Returns whether a file is Python's own or lies where libraries are installed."""
    return any(file.is_relative_to(folder) for folder in _INSTALLED)


def _import(module: str, name: str) -> object:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Modules that the user's own imports are errors of its own.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        raise DataError("no such module", where=name, expected=_expected(module)) from error


def _expected(module: str) -> str:
    return f"{module.replace('.', '/')}.py in {_folders()[0]}, or an installed module"


def _file_of(module: str) -> str | None:
    """Returns the path of a module's file; None where there is none, or its package cannot be imported."""
    importlib.invalidate_caches()
    with _user_folders(), suppress(Exception):
        spec = importlib.util.find_spec(module)
        return None if spec is None else spec.origin
    return None


def set_project(folder: Path) -> None:
    """Lets dotted paths name modules of a project's folder, here and in processes that are started later."""
    os.environ[PROJECT] = str(folder)


def _folders() -> list[str]:
    """Returns the folders that the user's modules are looked for in, the project's first."""
    folders = (os.environ.get(PROJECT), str(Path.cwd()))
    return list(dict.fromkeys(folder for folder in folders if folder))


@contextmanager
def _user_folders() -> Iterator[None]:
    """Looks for modules in the user's folders first, as `python -m` does and installed commands do not."""
    folders = _folders()
    sys.path[:0] = folders
    try:
        yield
    finally:
        for folder in folders:
            sys.path.remove(folder)


def _location(error: Exception, name: str) -> str | None:
    """Returns file, line and function of the last frame in the file that a dotted path names, if any."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{Path(error.filename).name}, line {error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    module = name.partition(":")[0]
    file = getattr(sys.modules.get(module), "__file__", None) or _file_of(module)
    frame = next((frame for frame in reversed(frames) if frame.filename == file), None)
    if frame is None:
        return None
    function = "" if frame.name == "<module>" else f", in {frame.name}"
    return f"{Path(frame.filename).name}, line {frame.lineno}{function}"
