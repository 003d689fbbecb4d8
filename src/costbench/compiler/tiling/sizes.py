"""The `TileSizes` type: many tile sizes of one kernel as arrays (the decisions of the tile-size task)."""

from __future__ import annotations

from dataclasses import dataclass

from costbench.arrays import I64, Bool


@dataclass(frozen=True, eq=False)
class TileSizes:
    """`n` tile sizes of one kernel, in native tiles, physical order from major to minor.

    The minor-most axis counts 128 lanes, the next one 8 sublanes, the others single elements; a
    one-dimensional array counts 1,024 elements (tpugraphs2023, section 3; tile units of the real machine).

    Attributes:
        kernel_bounds: int64 [n, rank of the right-hand side], or [n, 0] without a contraction.
        output_bounds: int64 [n, rank of the iteration shape], or [n, 0] where the kernel has no tile.
    """

    kernel_bounds: I64
    output_bounds: I64

    def __repr__(self) -> str:
        """Returns the number of tile sizes, and the first one."""
        if not len(self):
            return "TileSizes(none)"
        first = f"output {self.output_bounds[0].tolist()}, kernel {self.kernel_bounds[0].tolist()}"
        return f"TileSizes({len(self):,}, the first: {first})"

    def __len__(self) -> int:
        return len(self.output_bounds)

    def __getitem__(self, index: slice | I64 | Bool) -> TileSizes:
        return TileSizes(self.kernel_bounds[index], self.output_bounds[index])
