"""Descriptions of processors: one YAML file each, read strictly into frozen values (crop2024, Table 1).

A description is all that the analytical model of tensor programs knows of a machine. It is filled from a data
sheet, or by `costbench describe-cpu` from the system and from microbenchmarks.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources.abc import Traversable
from pathlib import Path

from costbench.errors import ParamsError, TargetError
from costbench.params import load_yaml, parse

RESOURCES = {
    "integer": "integer",
    "integer_multiply": "integer",
    "integer_divide": "integer",
    "branch": "integer",
    "add": "float",
    "multiply": "float",
    "multiply_add": "float",
    "divide": "float",
    "square_root": "float",
    "convert": "float",
    "shuffle": "shuffle",
    "load": "load",
    "store": "store",
}
"""Execution resource of each operation that a description has to list. Operations of one resource wait for
each other; an operation occupies its resource for its inverse throughput."""
OPTIONAL = {"gather": "load", "scatter": "store"}
"""Operations that may be left out, and the resource that they occupy. They then are a load or store and a
shuffle for each lane."""
_LARGEST_CYCLES = 1000.0


@dataclass(frozen=True)
class OperationCost:
    """What an operation on one register costs.

    Attributes:
        latency: cycles until the result can be used; of a load, from the first cache; of a store, until a
            load of the same bytes can begin.
        inverse: cycles per operation when many are independent, by bits of the operand. A width that is not
            listed costs as the next wider one.
    """

    latency: float
    inverse: Mapping[str, float]

    def __post_init__(self) -> None:
        if not 0 <= self.latency <= _LARGEST_CYCLES:
            raise ValueError(f"latency has to be from 0 to {_LARGEST_CYCLES:g} cycles, not {self.latency}")
        if not self.inverse:
            raise ValueError("inverse has to list at least one width")
        for bits, cycles in self.inverse.items():
            if not bits.isdigit() or not 0 < cycles <= _LARGEST_CYCLES:
                raise ValueError(f"inverse has to be positive cycles by bits, not {bits}: {cycles}")

    def inverse_at(self, bits: int) -> float:
        """Returns cycles per operation on operands of that width in bits."""
        widths = sorted(int(listed_bits) for listed_bits in self.inverse)
        return self.inverse[str(next((width for width in widths if width >= bits), widths[-1]))]


@dataclass(frozen=True)
class CacheLevel:
    """A cache.

    Attributes:
        kib: size in KiB, as one core sees it.
        associativity: lines of a set.
        latency: cycles from a load to its value.
        line_cycles: cycles that a line from here occupies the way to the core; of the first cache 0.
        shared: whether all cores share it.
    """

    kib: float
    associativity: int
    latency: float
    line_cycles: float = 0.0
    shared: bool = False

    def __post_init__(self) -> None:
        if self.kib <= 0 or self.associativity < 1 or self.latency <= 0 or self.line_cycles < 0:
            raise ValueError("kib, associativity and latency have to be positive, line_cycles not negative")

    @property
    def num_lines(self) -> float:
        """Returns its lines of 64 bytes."""
        return self.kib * 1024 / 64


@dataclass(frozen=True)
class Memory:
    """The memory hierarchy: caches from the nearest on, then main memory.

    Attributes:
        line_bytes: bytes of a cache line; 64, as reuse distances are in lines of 64 bytes.
        caches: caches from the nearest on.
        ram_latency: cycles from a load to its value in main memory.
        ram_line_cycles: cycles that a line from main memory occupies the way to the core.
    """

    line_bytes: int
    caches: tuple[CacheLevel, ...]
    ram_latency: float
    ram_line_cycles: float

    def __post_init__(self) -> None:
        if self.line_bytes != 64:
            raise ValueError(
                f"line_bytes has to be 64, in which reuse distances are taken, not {self.line_bytes}"
            )
        if not self.caches:
            raise ValueError("caches has to list at least one")
        latencies = [*(level.latency for level in self.caches), self.ram_latency]
        if latencies != sorted(latencies):
            raise ValueError(f"latencies have to grow with the distance, not {latencies}")


@dataclass(frozen=True)
class Core:
    """What a core can have in flight.

    Attributes:
        ghz: frequency, cycles per nanosecond.
        width: number of operations that enter and leave the pipeline per cycle.
        window: number of operations between entering and leaving (reorder buffer).
        vector_bits: bits of a native vector.
        vector_registers: number of registers of that width.
        fused: whether it multiplies and adds in one operation.
        mispredict: cycles lost at a branch that was predicted wrongly.
        history: number of iterations of a loop up to which its exit is predicted.
    """

    ghz: float
    width: int
    window: int
    vector_bits: int
    vector_registers: int
    fused: bool
    mispredict: float
    history: int

    def __post_init__(self) -> None:
        if not 0.1 <= self.ghz <= 10:
            raise ValueError(f"ghz has to be from 0.1 to 10, not {self.ghz}")
        if self.vector_bits not in (64, 128, 256, 512, 1024, 2048):
            raise ValueError(f"vector_bits has to be a power of two from 64 to 2048, not {self.vector_bits}")
        if not 1 <= self.width <= 32 or not self.width <= self.window <= 4096:
            raise ValueError("width has to be from 1 to 32, window from width to 4096")
        if self.vector_registers < 8 or self.mispredict < 0 or self.history < 0:
            raise ValueError("vector_registers has to be at least 8, mispredict and history not negative")


@dataclass(frozen=True)
class Processor:
    """A processor.

    Attributes:
        name: name of the model.
        source: source of the numbers.
        threads: number of hardware threads, of which a program uses as many as it is given.
        core: pipeline of a core.
        memory: memory hierarchy.
        operations: cost by kind, one for each of `RESOURCES`, perhaps of `OPTIONAL`.
        spread: (largest - least) / median of numbers that were measured several times, by the path of the
            field, such as `core.ghz`; the numbers are medians. No prediction reads it.
    """

    name: str
    source: str
    threads: int
    core: Core
    memory: Memory
    operations: Mapping[str, OperationCost]
    spread: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        missing = sorted(set(RESOURCES) - set(self.operations))
        unknown = sorted(set(self.operations) - set(RESOURCES) - set(OPTIONAL))
        if missing or unknown:
            problem = f"lacks {', '.join(missing)}" if missing else f"has unknown {', '.join(unknown)}"
            raise ValueError(f"operations {problem}; they are {', '.join(RESOURCES)}")
        if self.threads < 1:
            raise ValueError(f"threads has to be at least 1, not {self.threads}")


def _folder() -> Traversable:
    return importlib.resources.files("costbench_schedules.devices") / "processors"


def available_processors() -> tuple[str, ...]:
    """Returns the names of the processors that ship with the package, sorted."""
    folder = _folder()
    return tuple(sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml")))


def load_processor(name_or_path: str | Path) -> Processor:
    """Returns a processor by name, or from a YAML file.

    Raises:
        TargetError: for an unknown name, or a file with a missing, unknown or impossible field.
    """
    text = str(name_or_path)
    if text.endswith((".yaml", ".yml")):
        path = Path(text)
    elif text in available_processors():
        path = Path(str(_folder() / f"{text}.yaml"))
    else:
        expected = f"one of {', '.join(available_processors())}, or a path to a .yaml file"
        raise TargetError(f"unknown processor {text!r}", expected=expected)
    try:
        return parse(Processor, load_yaml(path), where=str(path))
    except ParamsError as error:
        raise error.recast(TargetError) from error
