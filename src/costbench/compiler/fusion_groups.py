"""Growing kernels: which groups of instructions may run as one, whatever heuristic or search proposes it.

`KernelGroups.fuse` merges what makes a value with what reads it, `KernelGroups.join` two groups that read the
same value. Both refuse what no kernel can be: two contractions, an instruction that the reader does not take,
a circle of kernels that wait for each other, outputs that do not follow the kernel's loops, too many
instructions.
"""

from __future__ import annotations

from costbench.compiler.fusion_rules import ANCHORS, Kind, may_fuse
from costbench.compiler.group_graph import GroupGraph
from costbench.compiler.reads import Read, ReadGraph
from costbench.hlo.shape import Shape

MAX_INSTRUCTIONS = 500
"""Of a kernel, without what it duplicates; with that, the papers' reach about a thousand (lpm2021)."""
MAX_OUTPUTS = 16

Extent = tuple[int, int]
"""What the loops of a kernel run over: number of elements, and size of the minor-most axis."""
_NOWHERE = -1


def extent_of(shape: Shape) -> Extent:
    """Arrays of equal extent can be made by the same loops."""
    if shape.is_tuple:
        shape = shape.leaves()[0]
    long = [size for size in shape.physical_dimensions if size != 1]
    return (shape.num_elements, long[-1] if long else 1)


class KernelGroups:
    """The kernels of one computation while they are being put together.

    Attributes:
        graph: reads of the computation.
    """

    def __init__(self, graph: ReadGraph) -> None:
        self.graph = graph
        count = len(graph.body.instructions)
        self._groups = GroupGraph([{read.source for read in reads} for reads in graph.reads])
        self._anchor = [p if graph.kinds[p] in ANCHORS else _NOWHERE for p in range(count)]
        self._extent = [self._own_extent(p) for p in range(count)]
        # The operand of a contraction that an instruction helps to make; none for what follows the result.
        self._side: dict[int, tuple[int, int]] = {}
        # Instructions whose value a broadcast in the same kernel repeats.
        self._repeated: set[int] = set()
        for element, source in graph.carried.items():
            owner = self._groups.find(source)
            self._groups.merge(owner, element)
            self._settle(self._groups.find(source), owner, owner)

    def _own_extent(self, position: int) -> Extent:
        inst = self.graph.instruction(position)
        if self.graph.kinds[position] is Kind.REDUCE:
            return extent_of(self.graph.instruction(inst.operands[0]).shape)
        leaves = inst.shape.leaves()
        return extent_of(leaves[0]) if leaves else (0, 0)

    def find(self, position: int) -> int:
        """The group of a position."""
        return self._groups.find(position)

    def members(self, group: int) -> list[int]:
        """Positions in a group."""
        return self._groups.members(group)

    def anchor(self, group: int) -> int:
        """The contraction, gather, update and so on of a group, or -1."""
        return self._anchor[group]

    def extent(self, group: int) -> Extent:
        """What the group's loops run over."""
        return self._extent[group]

    def rank(self, group: int) -> int:
        """Place in an order in which all kernels can run."""
        return self._groups.rank(group)

    def reads_between(self, source: int, user: int) -> list[Read]:
        """Reads of one group's values by another."""
        find = self._groups.find
        return [
            read
            for position in self._groups.members(source)
            for read in self.graph.readers[position]
            if find(read.user) == user
        ]

    def outputs(self, group: int, also: int | None = None) -> list[int]:
        """Members of a group whose values something outside it (and outside `also`) needs."""
        find = self._groups.find
        return [
            position
            for position in self._groups.members(group)
            if position in self.graph.results
            or any(find(read.user) not in (group, also) for read in self.graph.readers[position])
        ]

    def fuse(self, source: int, user: int) -> bool:
        """Merges the group that makes values with one that reads them; says whether it did."""
        if source == user or not self._fits(source, user):
            return False
        reads = self.reads_between(source, user)
        sides = {self._side_of(read) for read in reads}
        if len(sides) != 1 or not all(self._takes(read) for read in reads):
            return False
        (side,) = sides
        leaving = self.outputs(source, user)
        if side is not None:
            if leaving or self._anchor[source] != _NOWHERE:
                return False
        elif not self._aligned(source, user, leaving):
            return False
        inside = tuple(self._groups.members(source))
        repeated = any(read.repeated or read.user in self._repeated for read in reads)
        if not self._merge(source, user):
            return False
        if side is not None:
            self._side.update(dict.fromkeys(inside, side))
        if repeated:
            self._repeated.update(inside)
        return True

    def join(self, first: int, second: int) -> bool:
        """Merges two groups of equal extent that do not read each other; says whether it did."""
        if first == second or self._extent[first] != self._extent[second]:
            return False
        if self._anchor[first] != _NOWHERE or self._anchor[second] != _NOWHERE:
            return False
        if len(self.outputs(first)) + len(self.outputs(second)) > MAX_OUTPUTS:
            return False
        if self.reads_between(first, second) or self.reads_between(second, first):
            return False
        return self._fits(first, second) and self._merge(first, second)

    def _fits(self, first: int, second: int) -> bool:
        if self._anchor[first] != _NOWHERE and self._anchor[second] != _NOWHERE:
            return False
        return len(self._groups.members(first)) + len(self._groups.members(second)) <= MAX_INSTRUCTIONS

    def _merge(self, source: int, user: int) -> bool:
        if not self._groups.merge(source, user):
            return False
        self._settle(self._groups.find(source), source, user)
        return True

    def _settle(self, merged: int, source: int, user: int) -> None:
        """The merged group has the loops of its contraction, or else of the reader."""
        anchored = source if self._anchor[source] != _NOWHERE else user
        self._extent[merged] = self._extent[anchored]
        self._anchor[merged] = self._anchor[anchored]

    def _side_of(self, read: Read) -> tuple[int, int] | None:
        if self.graph.kinds[read.user] in ANCHORS:
            return (read.user, read.place)
        return self._side.get(read.user)

    def _takes(self, read: Read) -> bool:
        graph = self.graph
        source, user = graph.instruction(read.source), graph.instruction(read.user)
        if graph.kinds[read.source] not in (Kind.CONTRACTION, Kind.GATHER):
            repeated = read.repeated or read.user in self._repeated
            return may_fuse(source, user, read.place, repeated=repeated)
        if read.source in graph.carried or source.shape.is_tuple:
            return False
        wanted = (Kind.ELEMENTWISE, Kind.REDUCE)[: 2 if graph.kinds[read.source] is Kind.CONTRACTION else 1]
        same = self._own_extent(read.user) == extent_of(source.shape)
        return graph.kinds[read.user] in wanted and same and not read.repeated

    def _aligned(self, source: int, user: int, leaving: list[int]) -> bool:
        """Whether all values that leave the merged group are made by its loops."""
        if self._anchor[source] != _NOWHERE:
            extent = self._extent[source]
            if self._extent[user] != extent:
                return False
        else:
            extent = self._extent[user]
        if any(self._own_extent(position) != extent for position in leaving):
            return False
        return not leaving or len(leaving) + len(self.outputs(user)) <= MAX_OUTPUTS
