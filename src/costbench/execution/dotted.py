"""Imports what a user names by dotted path, `module:attribute`, and says where in that file it fails."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from costbench.errors import DataError

EXPECTED = "module:attribute, such as mymodel:MyModel for class MyModel of mymodel.py in the current folder"
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_DIGEST_LENGTH = 16


def is_dotted(name: str) -> bool:
    """Returns whether a name has the form `package.module:attribute`; `models:/name@alias` has not."""
    return _DOTTED.fullmatch(name) is not None


def load_dotted(name: str) -> object:
    """Imports a module, of the current folder or installed, and returns its attribute.

    Args:
        name: `package.module:attribute`.

    Raises:
        DataError: if the name has another form, there is no such module or attribute, or importing the module
            fails; the last says at which line of which file.
    """
    if not is_dotted(name):
        raise DataError(f"{name!r} is no dotted path", expected=EXPECTED)
    module_name, _, attributes = name.partition(":")
    with _current_folder():
        # A file that was written since this process began is found as well.
        importlib.invalidate_caches()
        with errors_of(name):
            value: object = _import(module_name, name)
    for attribute in attributes.split("."):
        if not hasattr(value, attribute):
            names = ", ".join(public for public in dir(value) if public[0] != "_")
            raise DataError(f"no attribute {attribute!r}", where=name, expected=f"one of {names}")
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
    """Returns the digest of the file that a dotted path is defined in, 16 hexadecimal digits.

    What the file imports does not count. Nothing of it is run, unless it lies in a package.

    Raises:
        DataError: if there is no such module, or its file cannot be read.
    """
    file = _file_of(name.partition(":")[0])
    if file is None:
        raise DataError("no such module", where=name, expected=EXPECTED)
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        raise DataError(f"cannot read: {error.strerror}", where=file) from error
    return hashlib.sha256(content).hexdigest()[:_DIGEST_LENGTH]


def _import(module: str, name: str) -> object:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # Modules that the user's own imports are errors of its own.
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        expected = f"{module.replace('.', '/')}.py in {Path.cwd()}, or an installed module"
        raise DataError("no such module", where=name, expected=expected) from error


def _file_of(module: str) -> str | None:
    """Returns the path of a module's file; None where there is none, or its package cannot be imported."""
    importlib.invalidate_caches()
    with _current_folder(), suppress(Exception):
        spec = importlib.util.find_spec(module)
        return None if spec is None else spec.origin
    return None


@contextmanager
def _current_folder() -> Iterator[None]:
    """Looks for modules in the current folder first, as `python -m` does and installed commands do not."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
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
