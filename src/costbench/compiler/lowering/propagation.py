"""Accesses of all values of a kernel, found by carrying the loops from its anchor through every instruction.

Maps travel forwards to users and backwards to operands until nothing new is reached. A broadcast's operand
and a reduction's result know less than the other side, so maps cross those two in the direction of loss
only, until nothing else is left. Values with several uses end up with what serves them all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.value_tables import Value, ValueTables
from costbench.hlo.opcode import Opcode

_OUTSIDE = -1
_BROADCAST, _REDUCE, _SCATTER = Opcode.BROADCAST, Opcode.REDUCE, Opcode.SCATTER


class Propagation:
    """The state of one kernel's search for accesses, all of them numbers of `tables`.

    Args:
        tables: of the kernel's computation.
        kernel: whose values are wanted.
        values: its instructions.
        anchor: the value that the loops walk over.
        access: of the anchor.
    """

    def __init__(
        self, tables: ValueTables, kernel: Kernel, values: list[Value], anchor: Value, access: int
    ) -> None:
        self._tables = tables
        self._inputs = kernel.inputs
        self._values = values
        self._anchor = anchor
        self._access = access
        self._known: dict[int, int | None] = dict.fromkeys(kernel.inputs + kernel.instructions)
        self._known[anchor.position] = access
        # Instructions that may still wait for an access, and those whose operands may, last first.
        self._unreached = values
        self._unspread = values[::-1]

    def run(self) -> dict[int, int]:
        """Access of every instruction and input."""
        self._settle()
        if self._unreached:
            self._adopt_alike()
            self._forwards(lossless=False)
            self._settle()
        return self._serve_all_uses()

    def _settle(self) -> None:
        """Carries maps forwards and backwards until nothing new is reached."""
        while self._forwards(lossless=True) | self._backwards():
            pass

    def _forwards(self, *, lossless: bool) -> bool:
        """Carries maps to users once; whether that reached anything."""
        known = self._known
        waiting, self._unreached = self._unreached, []
        found = False
        for value in waiting:
            if known[value.position] is not None:
                continue
            result = None
            if not (lossless and value.inst.opcode is _BROADCAST):
                for operand, results in value.results:
                    source = known.get(operand)
                    if source is not None and (result := results[source]) is not None:
                        break
            if result is None:
                self._unreached.append(value)
            else:
                known[value.position] = result
                found = True
        return found

    def _backwards(self) -> bool:
        """Carries maps to operands once; whether that reached anything."""
        known = self._known
        waiting, self._unspread = self._unspread, []
        found = False
        for value in waiting:
            access, opcode = known[value.position], value.inst.opcode
            if access is None:
                self._unspread.append(value)
            elif opcode is not _REDUCE:
                reads = value.wanted if opcode is not _SCATTER else self._of_scatter(value, access)
                for operand, wanted in reads:
                    if known.get(operand, _OUTSIDE) is None:
                        known[operand] = wanted[access]
                        found = True
        return found

    def _of_scatter(self, scatter: Value, access: int) -> Sequence[tuple[int, Mapping[int, int]]]:
        """Its `wanted`, but that the indices follow the updates where these are known."""
        updates = self._known.get(scatter.inst.operands[-1])
        if updates is None:
            return scatter.wanted
        indices = scatter.inst.operands[1], {access: self._tables.scatter_indices(scatter, updates)}
        return scatter.wanted[0], indices, *scatter.wanted[2:]

    def _adopt_alike(self) -> None:
        """Values of the anchor's sizes and memory order that nothing links to it run in the same loops."""
        anchor = self._anchor.shape
        for value in self._unreached:
            shape = value.shape
            if shape.dimensions == anchor.dimensions and shape.layout == anchor.layout:
                self._known[value.position] = self._access

    def _serve_all_uses(self) -> dict[int, int]:
        """Final accesses: instructions keep theirs, inputs get what all their users need together."""
        known, tables = self._known, self._tables
        needed: dict[int, int | None] = dict.fromkeys(self._inputs)
        needed.update((value.position, None) for value in self._unreached)
        result: dict[int, int] = {}
        for value in reversed(self._values):
            access = known[value.position]
            if access is None:
                access = needed[value.position]
                if access is None:
                    access = value.whole
            result[value.position] = access
            opcode = value.inst.opcode
            reads = value.wanted if opcode is not _SCATTER else self._of_scatter(value, access)
            for operand, wanted in reads:
                if operand in needed:
                    use = known[operand] if opcode is _REDUCE else None
                    use = wanted[access] if use is None else use
                    other = needed[operand]
                    needed[operand] = use if other is None or other == use else tables.wider[other, use]
        for position in self._inputs:
            use = needed[position]
            result[position] = tables[position].whole if use is None else use
        result[self._anchor.position] = self._access
        return result
