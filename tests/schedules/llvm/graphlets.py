"""Graphlets as crop2024 draws them (section 3.1.2): what each instruction of a block has to wait for.

Vertices are instructions, edges their dependences: through registers, and through memory where a load reads
what a store before it wrote. A branch waits for everything. A superblock is a block with the block that
follows it: its phis take the values of that predecessor, and its loads wait for the stores of the first. The
package has them as arrays, `StaticFeatures`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from costbench_schedules.llvm.operations import Access, FunctionOperations
from costbench_schedules.llvm.program import Instruction


def dependences(graph: FunctionOperations, names: Iterable[str]) -> tuple[tuple[int, ...], ...]:
    """Returns for each instruction of blocks that run one after another those that it waits for, ascending.

    Values from before the first block are there at the start and are not listed.
    """
    blocks = {block.name: block for block in graph.function.blocks}
    made: dict[str, int] = {}
    stores: list[tuple[int, Access]] = []
    graphlet: list[tuple[int, ...]] = []
    before = ""
    for name in names:
        block, start = blocks[name], len(graphlet)
        phis = {}
        for position, (instruction, access) in enumerate(
            zip(block.instructions, graph.accesses[name], strict=True), start=start
        ):
            waits = _registers(instruction, before, made)
            if access is not None:
                waits |= {at for at, store in stores if _meet(store, access)}
            if position == start + len(block.instructions) - 1:
                waits |= set(range(start, position))
            graphlet.append(tuple(sorted(waits)))
            if access is not None and access.writes:
                stores.append((position, access))
            if instruction.opcode == "phi":
                phis[instruction.result] = position
                continue
            made |= phis
            phis = {}
            if instruction.result:
                made[instruction.result] = position
        # An address that is computed again is another address.
        again = {instruction.result for instruction in block.instructions}
        stores = [(at, store) for at, store in stores if store.base not in again or at >= start]
        before = name
    return tuple(graphlet)


def _meet(first: Access, second: Access) -> bool:
    """Returns whether both have the same base and overlapping bytes."""
    apart = (
        first.offset + first.num_bytes <= second.offset or second.offset + second.num_bytes <= first.offset
    )
    return bool(first.base) and first.base == second.base and not apart


def _registers(instruction: Instruction, before: str, made: Mapping[str, int]) -> set[int]:
    names = instruction.operands
    if instruction.opcode == "phi":
        names = tuple(value for value, source in instruction.incoming if source == before)
    return {made[name] for name in names if name in made}
