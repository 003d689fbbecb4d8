"""Decorators that compile functions with Numba: the same arithmetic as Python's, without its overhead.

Compiled code is cached on disk, so only the first run after a change compiles. There is no fast-math (but see
`compiled_fused`) and there are no threads: results depend neither on the load of the machine nor on the
number of processes.

A function that compiled functions call is compiled for them as a part, whose code is linked into theirs. It
is optimised with them, and becomes machine code of its own, with conversions of Python's objects, only if
Python calls it. Numba makes both of every function, which took a fifth of the time that compiling takes, and
optimises every function before, a fifth of the rest.

Numba invalidates its cache when the file of a function changes, although the compiled code also contains
functions and constants of other files. The name of the cache folder is therefore a digest of all these files.

Code is found in that folder by the place of its function in the package. So another installation of the same
sources, for which `NUMBA_CACHE_DIR` names the folder's parent, compiles nothing again.

Processes that compile at the same time share the folder. Where Numba counts, what they write would not fit
together: symbols in machine code, which have to differ between functions (`_names_for_symbols`), and files,
which have to differ between signatures (`_CacheFile`).
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from numba import njit
from numba.core import bytecode, caching, codegen, compiler, config, event
from numba.core.registry import CPUDispatcher

Function = TypeVar("Function", bound=Callable[..., Any])

_PACKAGE = Path(__file__).parents[1]
_SYMBOL_BITS = 63
_STALE_S = 7 * 24 * 3600
_IMPORTED = re.compile(rb"^from (costbench\w*\.[\w.]+) import", re.MULTILINE)


_Compiler: Any = compiler.Compiler
_Dispatcher: Any = CPUDispatcher
_JITCodeLibrary: Any = codegen.JITCodeLibrary


class _PartLibrary(_JITCodeLibrary):  # type: ignore[misc]
    """LLVM code of a function that is linked into the libraries of its callers, and optimised there."""

    def _optimize_final_module(self) -> None:
        """Leaves it as it is: the caller's code is optimised with all that is linked into it."""

    def _finalize_final_module(self) -> None:
        """Ends it without machine code."""
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


class _PartCompiler(_Compiler):  # type: ignore[misc]
    """Compiles a function for calls from compiled functions."""

    def __init__(self, typing: Any, target: Any, library: Any, *rest: Any) -> None:
        flags = rest[2]
        flags.no_compile = flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
        super().__init__(typing, target, library or _PartLibrary(target.codegen(), "part"), *rest)


class _EntryCompiler(_Compiler):  # type: ignore[misc]
    """Compiles a function for calls from Python."""

    def compile_extra(self, function: object) -> Any:
        """Compiles, then sets the environments of the parts, which have been linked in."""
        result = super().compile_extra(function)
        for environment in result._find_referenced_environments():  # noqa: SLF001
            result.library.codegen.set_env(environment.env_name, environment)
        return result


class _Part(_Dispatcher):  # type: ignore[misc]
    """A function as compiled functions call it."""

    def add_overload(self, result: Any) -> None:
        """Takes what was compiled for a signature; it has no entry point, so an object stands for it."""
        result = result._replace(entry_point=object())
        self.targetctx.insert_user_function(result.entry_point, result.fndesc, [result.library])
        self.overloads[tuple(result.signature.args)] = result


class _Function(_Dispatcher):  # type: ignore[misc]
    """A function as Python calls it; compiled functions call its `_Part`."""

    def __init__(self, function: Any, _locals: object, options: dict[str, Any]) -> None:
        super().__init__(function, targetoptions=options, pipeline_class=_EntryCompiler)
        self.part = _Part(function, targetoptions=dict(options), pipeline_class=_PartCompiler)
        self.enable_caching()

    @property
    def _numba_type_(self) -> Any:
        return self.part._numba_type_


def _compile(function: Function, **options: Any) -> Function:
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return function
    return cast(Function, _Function(function, None, {"nopython": True, "boundscheck": None, **options}))


def compiled(function: Function) -> Function:
    """Compiles a function of arrays, numbers and named tuples of these on its first call."""
    return _compile(function)


def compiled_step(function: Function) -> Function:
    """Compiles a part of a compiled loop that allocates no arrays and divides as NumPy does; it is inlined.

    Without Numba's runtime its array arguments are not reference-counted, which would cost more than the
    arithmetic.
    """
    return _compile(function, forceinline=True, error_model="numpy", _nrt=False)


def compiled_fused(function: Function) -> Function:
    """Compiles as `compiled_step` does, for networks: a * b + c is rounded once where the processor can.

    That takes half the time. Last bits therefore differ between processors, which is
    acceptable for networks but not for the simulated machine.
    """
    return _compile(function, forceinline=True, error_model="numpy", _nrt=False, fastmath={"contract"})


def compiled_inline(function: Function) -> Function:
    """Inlines a function into its callers before compilation, so that constant arguments stay constants."""
    return cast(Function, njit(inline="always")(function))


class _First(event.Listener):
    """Calls an action when the first function of this process is compiled."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._actions = [action]

    def on_start(self, _event: event.Event) -> None:
        """Calls it."""
        if self._actions:
            self._actions.pop()()

    def on_end(self, _event: event.Event) -> None:
        """Does nothing."""


def at_first_compilation(action: Callable[[], None]) -> None:
    """Calls `action` once, before the first function is compiled whose code is not on disk; maybe never."""
    event.register("numba:compile", _First(action))  # type: ignore[no-untyped-call]


def source_digest(folder: Path) -> str:
    """Returns a digest of the modules that compile functions and all their imports: 16 hexadecimal digits.

    These are modules of the packages in a folder that begin with `costbench`, which one wheel installs. It is
    computed at every import of the package, so imports are found by a regular expression, which is
    faster than a parser, and comments count, as they do for Numba.
    """
    texts = {file: file.read_bytes() for file in folder.glob("costbench*/**/*.py")}
    pending = [file for file, text in texts.items() if b"from costbench.execution.compiled import" in text]
    files: set[Path] = set()
    while pending:
        file = pending.pop()
        if file in texts and file not in files:
            files.add(file)
            names = (name.decode().split(".") for name in _IMPORTED.findall(texts[file]))
            pending += [folder.joinpath(*name).with_suffix(".py") for name in names]
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.relative_to(folder).as_posix().encode() + b"\0" + texts[file] + b"\0")
    return digest.hexdigest()[:16]


def cache_folder(parents: list[Path], name: str) -> Path:
    """Returns the folder `name` in the first of `parents` that can be written to, and creates it if needed.

    When it is created, folders of older sources that no process has added to for a week are removed.
    """
    for parent in parents:
        folder = parent / name
        try:
            is_new = not folder.exists()
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            if is_new:
                _remove_stale(parent, name.split("-")[0])
            return folder
    return Path(tempfile.mkdtemp(prefix=name))


def _remove_stale(parent: Path, prefix: str) -> None:
    for folder in parent.glob(f"{prefix}-{'[0-9a-f]' * 16}"):
        # Another process may be removing it, too.
        with suppress(OSError):
            newest = max(path.stat().st_mtime for path in (folder, *folder.rglob("*")))
            if newest < time.time() - _STALE_S:
                shutil.rmtree(folder, ignore_errors=True)


def _cache_parents() -> list[Path]:
    configured = config.CACHE_DIR  # type: ignore[attr-defined]
    users = [os.environ.get("XDG_CACHE_HOME"), os.environ.get("HOME")]
    return [Path(path) for path in (configured, _PACKAGE / "__pycache__", *users) if path]


def _names_for_symbols() -> Iterator[int]:
    """Yields numbers that no other process draws.

    By such a number Numba tells functions apart that have one name, module and signature but different
    values in their closures, such as the parts of `numpy.sort` and `numpy.argsort`. It counts from 1 in every
    process. Two functions of one number, from the caches of two processes, are one symbol to the linker: it
    keeps the code that was loaded first, and the other function computes something else (Numba's issue
    10486).
    """
    while True:
        yield secrets.randbits(_SYMBOL_BITS)


_NumbasCacheFile: Any = caching.IndexDataCacheFile


class _CacheFile(_NumbasCacheFile):  # type: ignore[misc]
    """Numba's files of one function, of which each signature has one that is named after it.

    Numba numbers them, so two processes that compile the function for two signatures at the same time
    write one file, and the index of one names the code of the other.
    """

    def save(self, key: object, data: object) -> None:
        """Writes the code for a signature, then the index as it is by then.

        An entry that another process writes between is lost, and compiled again when it is needed.
        """
        name = self._data_name(int(hashlib.sha256(repr(key).encode()).hexdigest()[:16], 16))
        self._save_data(name, data)
        self._save_index({**self._load_index(), key: name})


_NumbasLocator: Any = caching.UserProvidedCacheLocator


class CacheLocator(_NumbasLocator):  # type: ignore[misc]
    """Where Numba looks for a function's code: by the path of its file in the package, not on the machine."""

    def __init__(self, function: Function, file: str) -> None:
        super().__init__(function, file)
        with suppress(ValueError):  # a file outside of the package is found as Numba finds it
            path = Path(file).resolve().relative_to(_PACKAGE.parent)
            self._cache_path = str(Path(config.CACHE_DIR, ".".join(path.with_suffix("").parts)))  # type: ignore[attr-defined]

    def get_source_stamp(self) -> str:
        """Returns what the code belongs to: the contents of the file, not its time, which installers set."""
        return hashlib.sha256(Path(self._py_file).read_bytes()).hexdigest()


# Numba has no setting for either.
bytecode.FunctionIdentity._unique_ids = _names_for_symbols()  # type: ignore[assignment]  # noqa: SLF001
caching.IndexDataCacheFile = _CacheFile  # type: ignore[misc]

# Numba asks for the folder when it decorates a function: it has to be set before the first one is.
config.CACHE_DIR = str(  # type: ignore[attr-defined]
    cache_folder(_cache_parents(), f".costbench-{source_digest(_PACKAGE.parent)}")
)
config.CACHE_LOCATOR_CLASSES = f"{__name__}.{CacheLocator.__name__},IPythonCacheLocator"  # type: ignore[attr-defined]
