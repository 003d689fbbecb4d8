"""costbench: reproducible benchmarking of cost models of tensor programs."""

import importlib
from typing import Any

__all__ = [
    "dataset",
    "kernels",
    "load_model",
    "load_program",
    "load_target",
    "measure",
    "predict",
    "tile_space",
]


def __getattr__(name: str) -> Any:
    # Importing a module of costbench runs this file: the names of notebooks are imported when they are used.
    if name in __all__:
        return getattr(importlib.import_module(f"{__name__}.workbench"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
