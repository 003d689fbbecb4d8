"""The compiler's hand-written (analytical) cost model of tile sizes, and its search for the best one.

Each iteration of the loop nest takes the larger of its transfer time and its compute time. The model is the
baseline of lpm2021 (section 2.3 and appendix A), rebuilt from what such a model may know before code is
generated: how often a tile is fetched again, window halos, nominal bandwidth and peak with padding to the
matrix unit, some 100 ns of control per iteration, and that small transfers reach less of the bandwidth. How
much of this a model really knows is a setting (`costbench.compiler.estimate_quality`). It takes only a chip's
public `Architecture`; the rest of the machine is for learned models to find out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from costbench.arrays import F64, I64
from costbench.compiler.analytical_cost import (
    OPERATIONS,
    CostWorkspace,
    Estimate,
    chip_numbers,
    describe_contraction,
    estimate_of,
    new_cost_workspace,
    tile_cost,
    tile_costs,
    weights_of,
)
from costbench.compiler.estimate_quality import Knowledge, knowledge_of, rule_numbers
from costbench.compiler.kernel import Kernel
from costbench.compiler.lowering.loop_nest import LoopNest, loop_nest
from costbench.compiler.lowering.lower import Nests
from costbench.compiler.lowering.packed import unpacked
from costbench.compiler.lowering.work import (
    Ragged,
    add_up,
    contraction_rows,
    row_of,
)
from costbench.compiler.spaces import TileSizes
from costbench.compiler.tile_footprint import (
    needed_bytes,
    scratchpad_bytes,
    set_sizes,
    set_tile,
)
from costbench.compiler.tile_space import (
    Candidates,
    KernelBatch,
    SpaceCandidates,
    TileSpace,
    candidates_of,
    needed_limit,
    words_of,
)
from costbench.errors import UnsupportedKernelError
from costbench.execution.compiled import compiled, compiled_step
from costbench.target import Architecture


@dataclass(frozen=True)
class AnalyticalModel:
    """A `CostModel` of tile sizes.

    Attributes:
        architecture: public figures of the chip.
        knowledge: what the model knows of a kernel; None for what the chip's compiler knows.

    Raises:
        ChoiceError: if the architecture names an unknown quality of estimates.
    """

    architecture: Architecture
    knowledge: Knowledge | None = None

    def __post_init__(self) -> None:
        knowledge_of(self.architecture.estimate)

    @cached_property
    def _chip(self) -> F64:
        return chip_numbers(self.architecture)

    @cached_property
    def _rules(self) -> F64:
        return rule_numbers(self.knowledge or knowledge_of(self.architecture.estimate))

    def predict(self, kernel: Kernel, decisions: TileSizes) -> F64:
        """Returns estimated nanoseconds, float64 [n]:

        iterations * (max(transfer, compute) + 100 ns), with transfer and compute averaged per iteration.
        """
        return self.predict_nest(loop_nest(kernel), decisions)

    def predict_nest(self, nest: LoopNest, decisions: TileSizes) -> F64:
        """Returns what `predict` does, for a kernel that is already lowered."""
        return tile_costs(estimate_of(nest, self._chip, self._rules), nest.extents(decisions))

    def choose(self, space: TileSpace) -> I64:
        """Returns the compiler's tile size as loop extents, int64 [num_loops].

        Evaluates a coarse grid over the candidates of all loops, then descends steepest from its best point:
        one loop moves by 1, 2, 4, ... candidates, or where that does not help, one loop grows and another
        shrinks. Only legal tiles are considered.

        Raises:
            UnsupportedKernelError: if no tile size fits the scratchpad.
        """
        nest = space.nest
        extents = _search(estimate_of(nest, self._chip, self._rules), space.packed, space.limit_bytes)
        if extents.min(initial=1) < 1:
            needed = scratchpad_bytes(nest, np.ones((1, len(extents)), dtype=np.int64))[0]
            raise UnsupportedKernelError(
                f"no tile of kernel {nest.kernel.fingerprint} fits, the smallest takes {needed:.0f} bytes",
                where=nest.kernel.module.name,
                field="tile size",
                expected=f"at most {space.architecture.scratchpad_bytes} bytes of scratchpad",
            )
        return extents

    def choose_each(self, batch: KernelBatch, chosen: I64) -> I64:
        """Returns what `choose` does, for m kernels of a batch whose smallest tiles fit: [m, max_loops]."""
        lowered = batch.lowered
        table = lowered.tables.table(OPERATIONS)
        table.complete(lowered.kernels.instructions)
        contractions = contraction_rows(lowered.spaces, OPERATIONS.name, describe_contraction)
        inputs = _BatchInputs(table.subjects, table.amounts, contractions, self._chip, self._rules)
        scratchpad_bytes = float(self.architecture.scratchpad_bytes)
        return _search_each(
            lowered.nests, batch.candidates, chosen, inputs, batch.max_loops, scratchpad_bytes
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
        grid: [num_loops], number of grid points along each loop.
        best: [num_loops], indices of the candidates of the best tile so far.
        tried: [num_loops], indices of the candidates of the tile under evaluation.
        extents: [num_loops], loop extents of the tile under evaluation.
    """

    estimate: Estimate
    candidates: Candidates
    limit_bytes: float
    workspace: CostWorkspace
    grid: I64
    best: I64
    tried: I64
    extents: I64


@compiled
def _search(estimate: Estimate, candidates: Candidates, limit_bytes: float) -> I64:
    """Returns the extents of the best tile found; zeros if no tile is legal."""
    num_loops = len(candidates.offsets) - 1
    indices = np.zeros((4, num_loops), dtype=np.int64)
    workspace, following = new_cost_workspace(estimate), np.zeros(num_loops, dtype=np.int64)
    s = _Search(estimate, candidates, limit_bytes, workspace, indices[0], indices[1], indices[2], indices[3])
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
            tried_cost = _cost_of_tried(s)
            if tried_cost < lowest:
                lowest = tried_cost
                _assign(following, s.tried)
        if lowest < cost:
            cost, phase = lowest, int(_ONE_LOOP)
            _assign(s.best, following)
        elif phase == _TWO_LOOPS or cost == np.inf:
            break
        else:
            phase = int(_TWO_LOOPS)
    for loop in range(num_loops):
        index = s.candidates.offsets[loop] + s.best[loop]
        s.extents[loop] = s.candidates.values[index] if cost < np.inf else 0
    return s.extents.copy()


class _BatchInputs(NamedTuple):
    """What the estimates of the kernels of a batch are made from.

    Attributes:
        subjects: `WorkTable.subjects` of the operations.
        amounts: `WorkTable.amounts` of the operations.
        contractions: `Estimate.contraction` of the iteration spaces.
        chip: `Estimate.chip`.
        rules: `Estimate.rules`.
    """

    subjects: I64
    amounts: F64
    contractions: Ragged
    chip: F64
    rules: F64


@compiled
def _search_each(
    nests: Nests,
    spaces: SpaceCandidates,
    chosen: I64,
    inputs: _BatchInputs,
    max_loops: int,
    available_bytes: float,
) -> I64:
    """Searches for m kernels of a batch, one after the other.

    Args:
        nests: packed loop nests of all kernels of the batch.
        spaces: extents that their loops may take.
        chosen: numbers of the kernels to search for, [m].
        inputs: work of their instructions, and the chip.
        max_loops: largest number of loops of a kernel.
        available_bytes: size of the scratchpad.
    """
    result = np.zeros((len(chosen), max_loops), dtype=np.int64)
    for i in range(len(chosen)):
        words, space = words_of(nests, chosen[i]), nests.spaces[chosen[i]]
        candidates, nest = candidates_of(spaces, space), unpacked(words)
        operations = np.zeros((2, len(nest.boxes) - 1, inputs.amounts.shape[2]))
        add_up(nest, inputs.subjects, inputs.amounts, operations)
        weights, contraction = weights_of(operations, inputs.rules), row_of(inputs.contractions, space)
        estimate = Estimate(words, weights, contraction, inputs.chip, inputs.rules)
        extents = _search(estimate, candidates, needed_limit(words, candidates, available_bytes))
        for loop in range(len(extents)):
            result[i, loop] = extents[loop]
    return result


@compiled_step
def _assign(indices: I64, new_indices: I64) -> None:
    for loop in range(len(indices)):
        indices[loop] = new_indices[loop]


@compiled_step
def _radix(s: _Search, loop: int) -> int:
    return int(s.candidates.offsets[loop + 1] - s.candidates.offsets[loop])


@compiled_step
def _lay_grid(s: _Search) -> int:
    """Spreads the grid points over the loops and returns how many there are."""
    points, grows = 1, True
    for loop in range(len(s.grid)):
        s.grid[loop] = 1
    while grows:
        grows = False
        for loop in range(len(s.grid)):
            more = points // s.grid[loop] * (s.grid[loop] + 1)
            if s.grid[loop] < _radix(s, loop) and more <= _GRID_POINTS:
                points, grows = more, True
                s.grid[loop] += 1
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
        return _move(s, loop, distance if rest % 2 else -distance)
    pair, rest = move // _PAIR_DISTANCES**2, move % _PAIR_DISTANCES**2
    grows, shrinks = pair // len(s.best), pair % len(s.best)
    if grows == shrinks:
        return False
    if not _move(s, grows, 1 + rest // _PAIR_DISTANCES):
        return False
    return _move(s, shrinks, -1 - rest % _PAIR_DISTANCES)


@compiled_step
def _propose_grid_point(s: _Search, point: int) -> None:
    """Sets a tile of the grid. The last point is the smallest tile: if that is not legal, none is."""
    for loop in range(len(s.tried)):
        points, last = s.grid[loop], _radix(s, loop) - 1
        s.tried[loop] = (point % points) * last // (points - 1) if points > 1 else last
        point //= points
    if point > 0:
        for loop in range(len(s.tried)):
            s.tried[loop] = 0


@compiled_step
def _move(s: _Search, loop: int, distance: int) -> bool:
    """Moves one loop of the tile under evaluation by some candidates; returns False if there is none."""
    index = s.tried[loop] + distance
    if index < 0 or index >= _radix(s, loop):
        return False
    s.tried[loop] = index
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
