"""Which modules of the code a kernel passes on its way through `simulate`, and how often it returns to one.

The counting rule: every function of `costbench.compiler` and `costbench.hardware` counts once, when it is
called for the first time, as somebody reads it once who follows the code; a compiled function counts when
Python calls it, what is compiled into it does not. In the order of these first calls, `modules` is the number
of different modules, and `returns` how often the way leads to a module that it had left before.

    python -m benchmarks.call_path [--stretches]
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
from numba.core.registry import CPUDispatcher

from costbench.compiler.kernel import Kernel, kernel_from_module
from costbench.compiler.tiling.space import tile_space
from costbench.hardware.simulator import simulate
from costbench.hlo.builder import ModuleBuilder
from costbench.target import Target, load_target

PACKAGES = ("costbench.compiler.", "costbench.hardware.")


@dataclass(frozen=True)
class CallPath:
    """Functions in the order of their first calls.

    Attributes:
        functions: (module, qualified name) of each.
    """

    functions: tuple[tuple[str, str], ...]

    @property
    def stretches(self) -> list[str]:
        """The modules on the way, one entry for functions of one module that follow one another."""
        names = [module for module, _ in self.functions]
        return [name for place, name in enumerate(names) if not place or names[place - 1] != name]

    @property
    def modules(self) -> int:
        """Different modules on the way."""
        return len(set(self.stretches))

    @property
    def returns(self) -> int:
        """How often the way leads to a module that it had left before."""
        return len(self.stretches) - self.modules


def call_path(function: Callable[[], object], packages: Sequence[str] = PACKAGES) -> CallPath:
    """Calls a function and returns the way that it takes through the modules of some packages."""
    found: dict[tuple[str, str], None] = {}

    def note(module: str, name: str) -> None:
        if module.startswith(tuple(packages)):
            found.setdefault((module, name))

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            note(frame.f_globals.get("__name__", ""), frame.f_code.co_qualname)

    with _noted_dispatchers(note, packages):
        sys.setprofile(profile)
        try:
            function()
        finally:
            sys.setprofile(None)
    return CallPath(tuple(found))


@contextmanager
def _noted_dispatchers(note: Callable[[str, str], None], packages: Sequence[str]) -> Iterator[None]:
    """Compiled functions have no Python frame: puts one that notes the call in front of each."""
    replaced: list[tuple[dict[str, Any], str, CPUDispatcher]] = []
    for name, module in list(sys.modules.items()):
        if name.startswith(tuple(packages)):
            for key, value in list(vars(module).items()):
                if isinstance(value, CPUDispatcher):
                    replaced.append((vars(module), key, value))
                    vars(module)[key] = _noted(value, note)
    try:
        yield
    finally:
        for namespace, key, value in replaced:
            namespace[key] = value


def _noted(compiled: CPUDispatcher, note: Callable[[str, str], None]) -> Callable[..., object]:
    @functools.wraps(compiled.py_func)
    def call(*arguments: object) -> object:
        note(compiled.py_func.__module__, compiled.py_func.__qualname__)
        return compiled(*arguments)

    return call


def dot() -> Kernel:
    """A matrix product."""
    b = ModuleBuilder("dot")
    return kernel_from_module(b.build(b.dot(b.parameter("f32[64,512]"), b.parameter("f32[512,384]"))))


def elementwise() -> Kernel:
    """A sum of two arrays."""
    b = ModuleBuilder("elementwise")
    return kernel_from_module(b.build(b.op("add", b.parameter("f32[256,512]"), b.parameter("f32[256,512]"))))


def path_of(make: Callable[[], Kernel], target: Target) -> CallPath:
    """The way of one `simulate` call for a kernel of a program that was never seen, on a chip that was."""
    space = tile_space(make(), target.architecture)
    tile, fresh = space.decode(np.array([space.size - 1])), make()
    simulate(make(), tile, target)
    return call_path(lambda: simulate(fresh, tile, target))


def main(arguments: Sequence[str]) -> None:
    """Prints the counts for two kernels; with an argument the stretches of the way, too."""
    target = load_target("tpu_v3")
    for make in (elementwise, dot):
        path = path_of(make, target)
        counts = f"{path.modules} modules, {path.returns} returns, {len(path.functions)} functions"
        print(f"{make.__name__:12} {counts}")
        if arguments:
            print("  " + "\n  ".join(path.stretches))


if __name__ == "__main__":
    main(sys.argv[1:])
