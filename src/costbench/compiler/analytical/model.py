"""The compiler's hand-written (analytical) tile-size model, and its search for the tile size it chooses.

The model is the baseline of lpm2021 (section 2.3 and appendix A); `analytical.cost` holds its formula.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from costbench.arrays import F64, I64
from costbench.compiler.analytical.cost import (
    OPERATIONS,
    CostWorkspace,
    Estimate,
    chip_numbers,
    describe_contraction,
    estimate_of,
    new_cost_workspace,
    tile_cost,
    tile_costs,
)
from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import LoopNest, loop_nest
from costbench.compiler.lowering.packed import unpacked
from costbench.compiler.lowering.work import Ragged, add_up, contraction_rows, row_of
from costbench.compiler.lowering.writing import Nests
from costbench.compiler.tiling.footprint import needed_bytes, scratchpad_bytes, set_sizes, set_tile
from costbench.compiler.tiling.kernel_batch import (
    KernelBatch,
    SpaceCandidates,
    candidates_of,
    words_of,
)
from costbench.compiler.tiling.sizes import TileSizes
from costbench.compiler.tiling.space import Candidates, TileSpace, needed_limit
from costbench.errors import UnsupportedKernelError
from costbench.execution.compiled import compiled, compiled_step
from costbench.target import Architecture


@dataclass(frozen=True)
class AnalyticalModel:
    """A `CostModel` of tile sizes.

    Attributes:
        architecture: public figures of the chip.
    """

    architecture: Architecture

    @cached_property
    def _chip(self) -> F64:
        return chip_numbers(self.architecture)

    def predict(self, kernel: Kernel, decisions: TileSizes) -> F64:
        """Returns estimated nanoseconds, float64 [n]:

        iterations * (max(transfer, compute) + 100 ns), with transfer and compute averaged per iteration.
        """
        return self.predict_nest(loop_nest(kernel), decisions)

    def predict_nest(self, nest: LoopNest, decisions: TileSizes) -> F64:
        """Does the same for a kernel that is already lowered."""
        return tile_costs(estimate_of(nest, self._chip), nest.extents(decisions))

    def choose(self, space: TileSpace) -> I64:
        """Returns the compiler's tile size as loop extents, int64 [num_loops].

        Evaluates a coarse grid over the candidates of all loops, then descends steepest from its best point:
        one loop moves by 1, 2, 4, ... candidates, or where that does not help, one loop grows and another
        shrinks. Only legal tiles are considered.

        Raises:
            UnsupportedKernelError: if no tile size fits the scratchpad.
        """
        nest = space.nest
        found = _search(estimate_of(nest, self._chip), space.packed, space.limit_bytes)
        if found.min(initial=1) < 1:
            needed = scratchpad_bytes(nest, np.ones((1, len(found)), dtype=np.int64))[0]
            raise UnsupportedKernelError(
                f"no tile of kernel {nest.kernel.fingerprint} fits, the smallest takes {needed:.0f} bytes",
                where=nest.kernel.module.name,
                field="tile size",
                expected=f"at most {space.architecture.scratchpad_bytes} bytes of scratchpad",
            )
        return found

    def choose_each(self, batch: KernelBatch, chosen: I64) -> I64:
        """Does the same for m kernels of a batch whose smallest tiles fit: int64 [m, most_loops]."""
        lowered = batch.lowered
        table = lowered.tables.table(OPERATIONS)
        table.complete(lowered.kernels.instructions)
        return _search_each(
            lowered.nests,
            batch.candidates,
            chosen,
            (table.subjects, table.amounts),
            (contraction_rows(lowered.spaces, OPERATIONS.name, describe_contraction), self._chip),
            (batch.most_loops, float(self.architecture.scratchpad_bytes)),
        )


_GRID_POINTS = 64
_DISTANCES = 7
"""Powers of two that one loop moves by, up to 64 candidates: hardly any loop has more than 200."""
_PAIR_DISTANCES = 2
_GRID, _ONE_LOOP, _TWO_LOOPS = range(3)


class _Search(NamedTuple):
    """State of the search for one kernel's tile size.

    Attributes:
        estimate: inputs of the cost formula.
        candidates: extents that each loop may take.
        limit_bytes: scratchpad that a tile may take.
        workspace: buffers of the cost formula.
        picks: [num_loops], number of grid points along each loop.
        best: [num_loops], for each loop the index of its candidate in the best tile so far.
        tried: [num_loops], the same for the tile under evaluation.
        extents: [num_loops], loop extents of the tile under evaluation.
    """

    estimate: Estimate
    candidates: Candidates
    limit_bytes: float
    workspace: CostWorkspace
    picks: I64
    best: I64
    tried: I64
    extents: I64


@compiled
def _search(estimate: Estimate, candidates: Candidates, limit_bytes: float) -> I64:
    """Returns the extents of the best tile found; zeros if no tile is legal."""
    num_loops = len(candidates.offsets) - 1
    places = np.zeros((4, num_loops), dtype=np.int64)
    workspace, following = new_cost_workspace(estimate), np.zeros(num_loops, dtype=np.int64)
    s = _Search(estimate, candidates, limit_bytes, workspace, places[0], places[1], places[2], places[3])
    points = _lay_grid(s)
    cost, phase = np.inf, int(_GRID)  # not a literal: `_propose` is compiled once
    while True:
        moves = points + 1
        if phase != _GRID:
            moves = 2 * _DISTANCES * num_loops if phase == _ONE_LOOP else num_loops**2 * _PAIR_DISTANCES**2
        lowest = cost
        for move in range(moves):
            if not _propose(s, phase, move):
                continue
            found = _cost_of_tried(s)
            if found < lowest:
                lowest = found
                _assign(following, s.tried)
        if lowest < cost:
            cost, phase = lowest, int(_ONE_LOOP)
            _assign(s.best, following)
        elif phase == _TWO_LOOPS or cost == np.inf:
            break
        else:
            phase = int(_TWO_LOOPS)
    for loop in range(num_loops):
        place = s.candidates.offsets[loop] + s.best[loop]
        s.extents[loop] = s.candidates.values[place] if cost < np.inf else 0
    return s.extents.copy()


@compiled
def _search_each(
    nests: Nests,
    spaces: SpaceCandidates,
    chosen: I64,
    work: tuple[I64, F64],
    inputs: tuple[Ragged, F64],
    limits: tuple[int, float],
) -> I64:
    """Searches for m kernels of a batch, one after the other.

    Args:
        nests: packed loop nests of all kernels of the batch.
        spaces: extents that their loops may take.
        chosen: numbers of the kernels to search for, [m].
        work: `subjects` and `amounts` of the work table.
        inputs: contractions of the iteration spaces, and the figures of the chip.
        limits: largest number of loops, and bytes of the scratchpad.
    """
    subjects, amounts = work
    contractions, chip = inputs
    most_loops, available = limits
    result = np.zeros((len(chosen), most_loops), dtype=np.int64)
    for i in range(len(chosen)):
        words, space = words_of(nests, chosen[i]), nests.spaces[chosen[i]]
        candidates, nest = candidates_of(spaces, space), unpacked(words)
        weights = np.zeros((2, len(nest.boxes) - 1, 1))
        add_up(nest, subjects, amounts, weights)
        estimate = Estimate(words, weights.reshape(2, -1), row_of(contractions, space), chip)
        found = _search(estimate, candidates, needed_limit(words, candidates, available))
        for loop in range(len(found)):
            result[i, loop] = found[loop]
    return result


@compiled_step
def _assign(places: I64, others: I64) -> None:
    for loop in range(len(places)):
        places[loop] = others[loop]


@compiled_step
def _radix(s: _Search, loop: int) -> int:
    return int(s.candidates.offsets[loop + 1] - s.candidates.offsets[loop])


@compiled_step
def _lay_grid(s: _Search) -> int:
    """Spreads the grid points over the loops and returns how many there are."""
    points, grows = 1, True
    for loop in range(len(s.picks)):
        s.picks[loop] = 1
    while grows:
        grows = False
        for loop in range(len(s.picks)):
            more = points // s.picks[loop] * (s.picks[loop] + 1)
            if s.picks[loop] < _radix(s, loop) and more <= _GRID_POINTS:
                points, grows = more, True
                s.picks[loop] += 1
    return points


@compiled_step
def _propose(s: _Search, phase: int, move: int) -> bool:
    """Sets the tile to evaluate next; returns False if there is no such move."""
    _assign(s.tried, s.best)
    if phase == _GRID:
        _propose_grid_point(s, move)
        return True
    if phase == _ONE_LOOP:
        loop, rest = move // (2 * _DISTANCES), move % (2 * _DISTANCES)
        distance = 1 << (rest // 2)
        return _moved(s, loop, distance if rest % 2 else -distance)
    pair, rest = move // _PAIR_DISTANCES**2, move % _PAIR_DISTANCES**2
    grows, shrinks = pair // len(s.best), pair % len(s.best)
    if grows == shrinks:
        return False
    if not _moved(s, grows, 1 + rest // _PAIR_DISTANCES):
        return False
    return _moved(s, shrinks, -1 - rest % _PAIR_DISTANCES)


@compiled_step
def _propose_grid_point(s: _Search, point: int) -> None:
    """Sets a tile of the grid. The last point is the smallest tile: if that is not legal, none is."""
    for loop in range(len(s.tried)):
        picks, last = s.picks[loop], _radix(s, loop) - 1
        s.tried[loop] = (point % picks) * last // (picks - 1) if picks > 1 else last
        point //= picks
    if point > 0:
        for loop in range(len(s.tried)):
            s.tried[loop] = 0


@compiled_step
def _moved(s: _Search, loop: int, distance: int) -> bool:
    place = s.tried[loop] + distance
    if place < 0 or place >= _radix(s, loop):
        return False
    s.tried[loop] = place
    return True


@compiled_step
def _cost_of_tried(s: _Search) -> float:
    """Returns estimated nanoseconds of the tile under evaluation; infinite for one that does not fit."""
    nest, tile = s.workspace.nest, s.workspace.tile
    for loop in range(len(s.tried)):
        s.extents[loop] = s.candidates.values[s.candidates.offsets[loop] + s.tried[loop]]
    moving = set_tile(nest, s.extents, tile)
    if s.limit_bytes < np.inf:
        set_sizes(nest, tile, nest.num_copied_boxes)
        if needed_bytes(nest, tile, moving) > s.limit_bytes:
            return np.inf
    return tile_cost(s.estimate, s.workspace)
