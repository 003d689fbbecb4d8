"""Runtimes of kernels that the simulated chip does not run: collectives, custom calls, transfers to the host.

They have no decision to tune, and their runtime is not known. They count nothing in a program's runtime and
are listed as left out, unless a file of prices says what they take:

    collectives: {chips: 8, gb_per_s: 35, ns: 1000}   # links between chips, as `Links` models them
    infeed: {ns: 2000, gb_per_s: 10}                  # an opcode; that of a collective goes before the links
    my_kernel: {ns: 125000}                           # a custom call, by its target
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from costbench.arrays import F64
from costbench.autotuning.kernel_costs import KernelCosts
from costbench.compiler.kernel import Kernel
from costbench.compiler.program import PreparedProgram, UniqueKernel
from costbench.errors import UnsupportedKernelError
from costbench.hardware.vector_unit import VECTOR_COSTS
from costbench.hlo.instruction import Instruction
from costbench.hlo.opcode import Opcode
from costbench.params import load_yaml, parse


@dataclass(frozen=True)
class Links:
    """Chips that run a program together, and the links between them.

    Attributes:
        chips: chips of every group of a collective; the groups that a program states are not read.
        gb_per_s: bandwidth of a link in one direction, 1e9 bytes per second.
        ns: latency of a step, nanoseconds.

    Raises:
        ValueError: for no chip, a negative latency, or a bandwidth that is not above 0.
    """

    chips: int
    gb_per_s: float
    ns: float = 0.0

    def __post_init__(self) -> None:
        if self.chips < 1:
            raise ValueError(f"chips is {self.chips}, expected 1 or more")
        if not 0 < self.gb_per_s < math.inf:
            raise ValueError(f"gb_per_s is {self.gb_per_s}, expected above 0")
        if not 0 <= self.ns < math.inf:
            raise ValueError(f"ns is {self.ns}, expected 0 or more")

    def price_ns(self, opcode: Opcode, num_bytes: int) -> float | None:
        """Returns the nanoseconds of a collective; None for another opcode.

        Args:
            opcode: opcode of the instruction.
            num_bytes: n, of its operands on one chip or of its result, whichever are more.
        """
        runtime = _RUNTIMES.get(opcode)
        return None if runtime is None else runtime(self, num_bytes / self.gb_per_s)


def _ring_ns(links: Links, transfer_ns: float) -> float:
    steps = links.chips - 1
    return steps * links.ns + steps / links.chips * transfer_ns


_RUNTIMES: Mapping[Opcode, Callable[[Links, float], float]] = {
    Opcode.ALL_GATHER: _ring_ns,
    Opcode.REDUCE_SCATTER: _ring_ns,
    Opcode.ALL_REDUCE: lambda links, transfer_ns: 2.0 * _ring_ns(links, transfer_ns),
    Opcode.ALL_TO_ALL: _ring_ns,
    Opcode.RAGGED_ALL_TO_ALL: _ring_ns,
    Opcode.COLLECTIVE_PERMUTE: lambda links, transfer_ns: links.ns + transfer_ns,
    Opcode.COLLECTIVE_BROADCAST: lambda links, transfer_ns: (
        (links.chips - 1) * links.ns + (transfer_ns if links.chips > 1 else 0.0)
    ),
}


@dataclass(frozen=True)
class Price:
    """Runtime of an instruction outside the chip's core: `ns` + bytes / `gb_per_s`.

    Bytes are those of its operands or of its result, whichever are more.

    Attributes:
        ns: nanoseconds that it takes whatever its size.
        gb_per_s: bandwidth, 1e9 bytes per second; None if size does not matter.

    Raises:
        ValueError: for a negative time, or a bandwidth that is not above 0.
    """

    ns: float = 0.0
    gb_per_s: float | None = None

    def __post_init__(self) -> None:
        if self.ns < 0 or not math.isfinite(self.ns):
            raise ValueError(f"ns is {self.ns}, expected 0 or more")
        if self.gb_per_s is not None and not 0 < self.gb_per_s < math.inf:
            raise ValueError(f"gb_per_s is {self.gb_per_s}, expected above 0")

    def of(self, num_bytes: int) -> float:
        """Returns the nanoseconds of a transfer of that size; a byte at 1e9 bytes per second takes one."""
        return self.ns + (num_bytes / self.gb_per_s if self.gb_per_s else 0.0)


@dataclass(frozen=True)
class LeftOut:
    """Kernels of a program that are not tuned.

    Attributes:
        what: opcode, or target of a custom call, by which a price is found; empty where the chip has routines
            but the kernel does not fit.
        example: name of one of the instructions.
        runs: how often they run in one run of the program.
        total_ns: nanoseconds by their prices in one run of the program; None if they have no price.
        reason: why the chip does not run them.
    """

    what: str
    example: str
    runs: int
    total_ns: float | None
    reason: str


@dataclass(frozen=True)
class OutsidePrices:
    """Prices of instructions that the chip does not run.

    Attributes:
        table: table by opcode or target of a custom call.
        collectives: the links that price collectives without an entry in the table; None prices none.
    """

    table: Mapping[str, Price] = field(default_factory=dict)
    collectives: Links | None = None

    def price_ns(self, kernel: Kernel) -> float | None:
        """Returns the nanoseconds that a kernel outside the chip takes, 0 without price; None for others."""
        inst = outside_instruction(kernel)
        return None if inst is None else self._priced(kernel, inst) or 0.0

    def left_out(self, kernels: Iterable[UniqueKernel]) -> tuple[LeftOut, ...]:
        """Returns which of a program's kernels the chip does not run, one entry for each kind.

        The time of a kind is that of its kernels with a price.
        """
        by_name: dict[str, LeftOut] = {}
        for unique in kernels:
            inst = outside_instruction(unique.kernel)
            if inst is None:
                continue
            price, what = self._priced(unique.kernel, inst), outside_name(inst)
            reason = f"the machine has no routine for {inst.opcode.xla_name}"
            before = by_name.get(what, LeftOut(what, inst.name, 0, None, reason))
            total = before.total_ns
            if price is not None:
                total = (total or 0.0) + price * unique.runs_per_program
            by_name[what] = replace(before, runs=before.runs + unique.runs_per_program, total_ns=total)
        return tuple(by_name.values())

    def unused(self, kernels: Iterable[UniqueKernel]) -> list[str]:
        """Returns the names in the file of prices by which none of a program's kernels is priced."""
        names = {entry.what for entry in self.left_out(kernels)}
        unused = [name for name in self.table if name not in names]
        by_links = {opcode.xla_name for opcode in _RUNTIMES} - self.table.keys()
        if self.collectives is not None and names.isdisjoint(by_links):
            unused.append(_COLLECTIVES)
        return unused

    def _priced(self, kernel: Kernel, inst: Instruction) -> float | None:
        read = sum(kernel.instruction(operand).shape.num_bytes for operand in inst.operands)
        num_bytes = max(read, inst.shape.num_bytes)
        price = self.table.get(outside_name(inst))
        if price is not None:
            return price.of(num_bytes)
        return None if self.collectives is None else self.collectives.price_ns(inst.opcode, num_bytes)


NO_PRICES = OutsidePrices()
_COLLECTIVES = "collectives"


def read_prices(path: Path | None) -> OutsidePrices:
    """Reads a file of prices; no prices without one.

    Raises:
        ParamsError: naming file, key and what was expected, if it is no mapping of names to prices.
    """
    if path is None:
        return NO_PRICES
    content = dict(load_yaml(path))
    links = content.pop(_COLLECTIVES, None)
    table = {name: parse(Price, price, where=path, field=name) for name, price in content.items()}
    return OutsidePrices(
        table, None if links is None else parse(Links, links, where=path, field=_COLLECTIVES)
    )


def require_kernels(program: PreparedProgram) -> None:
    """Raises UnsupportedKernelError for a program of which the chip runs no kernel: nothing can be tuned."""
    kernels = [unique.kernel for unique in program.unique_kernels]
    outside = [outside_instruction(kernel) for kernel in kernels]
    if None in outside:
        return
    reason, name = "no instruction takes time", ""
    if outside and outside[0] is not None:
        reason, name = f"the machine has no routine for {outside[0].opcode.xla_name}", outside[0].name
    raise UnsupportedKernelError(
        f"no kernel to tune: {reason}",
        where=program.name,
        field=name,
        expected="a program with kernels that the chip runs",
    )


def outside_instruction(kernel: Kernel) -> Instruction | None:
    """Returns the first instruction of a kernel that the chip has no routine for; None if it can run it."""
    instructions = map(kernel.instruction, kernel.instructions)
    return next((inst for inst in instructions if inst.opcode not in VECTOR_COSTS), None)


def outside_name(inst: Instruction) -> str:
    """Returns the name by which an instruction is priced: a custom call's target, else the opcode."""
    return inst.custom_call_target if inst.opcode is Opcode.CUSTOM_CALL else inst.opcode.xla_name


@dataclass(frozen=True, eq=False)
class CostsWithOutside:
    """Kernel costs where kernels outside the chip take their price, or nothing.

    Attributes:
        inside: prices the kernels that the chip runs.
        prices: prices of the others.
    """

    inside: KernelCosts
    prices: OutsidePrices

    def costs(self, kernels: Sequence[Kernel]) -> F64:
        """Returns nanoseconds of each kernel, float64 [k]."""
        prices_ns = [self.prices.price_ns(kernel) for kernel in kernels]
        costs_ns = np.array([0.0 if ns is None else ns for ns in prices_ns])
        indices = [index for index, ns in enumerate(prices_ns) if ns is None]
        if indices:
            costs_ns[indices] = self.inside.costs([kernels[index] for index in indices])
        return costs_ns
