"""Crop: the run time of a tensor program on a processor that is only described (crop2024, equations 1 and 2).

Cost(P) = sum over edges of Cost(target after source) * ECount(edge): equation 1 with blocks counted by where
they are entered from, so that a block costs what it adds to those before it where the branch is predicted,
and all of its own time and the lost cycles where it is not.

Nothing is fitted: program features come from `costbench_schedules.llvm.features`, everything else from the
processor's description.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from costbench.arrays import F64, I64, Bool
from costbench.errors import DataError
from costbench_schedules.crop.costs import RESOURCE_NAMES, InstructionCosts, average_latency, level_shares
from costbench_schedules.crop.pipeline import Code, Sizes, edge_cycles
from costbench_schedules.crop.registers import spills
from costbench_schedules.devices.processor import Processor
from costbench_schedules.llvm.features import BIN_DISTANCES, NONE, ProgramFeatures, StaticFeatures

LINE_BYTES = 64
_RARE = 1e-3
"""Share of all operations below which a block is not simulated but counted at the pipeline's width."""


@dataclass(frozen=True)
class Breakdown:
    """Where the time goes, in nanoseconds; the parts sum to the total.

    Attributes:
        compute: time with all memory in the first cache, branches predicted, and work divided evenly.
        memory: time that each further level adds, by name: caches from L2 on, then RAM.
        branches: time that branches that are not predicted add.
        imbalance: time that the thread that does most takes beyond the mean of all.
    """

    compute: float
    memory: dict[str, float]
    branches: float
    imbalance: float

    @property
    def total(self) -> float:
        """Returns the run time in nanoseconds."""
        return self.compute + sum(self.memory.values()) + self.branches + self.imbalance


@dataclass(frozen=True)
class BlockCost:
    """A block's share of the run time.

    Attributes:
        name: names of function and block.
        executions: number of effective executions.
        cycles: mean cycles of one execution.
        share: share of the program's time.
    """

    name: str
    executions: int
    cycles: float
    share: float


class Estimator:
    """Predicts run times on one processor. Equal features give equal bytes.

    Args:
        processor: description of the processor.
        threads: number of threads that a parallel program gets.

    Raises:
        DataError: for more threads than the processor has.
    """

    def __init__(self, processor: Processor, threads: int = 1) -> None:
        if not 1 <= threads <= processor.threads:
            raise DataError(f"{threads} threads", where=processor.name, expected=f"1 to {processor.threads}")
        self.processor = processor
        self.threads = threads
        self._costs = InstructionCosts(processor)
        self._sources = level_shares(BIN_DISTANCES, processor.memory, threads)

    def _plan(self, features: ProgramFeatures) -> _Plan:
        counts = features.effective_counts(self.threads)
        return _Plan(features, self._costs, counts, self._sources)

    def runtime_ns(self, features: ProgramFeatures) -> float:
        """Returns the predicted run time in nanoseconds.

        Raises:
            DataError: if the features were not counted for this number of threads.
        """
        plan = self._plan(features)
        return plan.total(plan.cycles(len(self.processor.memory.caches) + 1)) / self.processor.core.ghz

    def breakdown(self, features: ProgramFeatures) -> Breakdown:
        """Returns the run time in parts; `total` is what `runtime_ns` returns, up to rounding.

        A part of memory is what the time grows by when lines of that level are no longer taken to be one
        level nearer; those of compute are what remains.
        """
        ghz = self.processor.core.ghz
        plan = self._plan(features)
        levels = len(self.processor.memory.caches) + 1
        totals = [plan.total(plan.cycles(level)) / ghz for level in range(1, levels + 1)]
        names = [f"L{level}" for level in range(2, levels)] + ["RAM"]
        memory = {
            name: after - before for name, before, after in zip(names, totals, totals[1:], strict=False)
        }
        cycles = plan.cycles(1, predicted=True)
        smooth, even = plan.total(cycles) / ghz, self._even_share(features, cycles, plan) / ghz
        return Breakdown(even, memory, totals[0] - smooth, smooth - even)

    def _even_share(self, features: ProgramFeatures, cycles: F64, plan: _Plan) -> float:
        """Returns the cycles if parallel work was divided evenly."""
        effective, total = features.effective_counts(self.threads), features.total_counts(self.threads)
        parallel = _in_tasks(features.static, effective < total)
        even = np.where(parallel, total / self.threads, effective)
        return plan.total(cycles, even)

    def blocks(self, features: ProgramFeatures) -> list[BlockCost]:
        """Returns the blocks that run, those that take most first."""
        plan = self._plan(features)
        counts = plan.counts
        costs = plan.cycles(len(self.processor.memory.caches) + 1) * counts
        targets, num = features.static.edges[:, 1], len(features.names)
        cycles = np.bincount(targets, weights=costs, minlength=num)
        executions = np.bincount(targets, weights=counts, minlength=num).astype(np.int64)
        total = max(float(cycles.sum()), 1e-300)
        order = [int(block) for block in np.argsort(-cycles, kind="stable") if executions[block]]
        return [
            BlockCost(
                features.names[block],
                int(executions[block]),
                cycles[block] / executions[block],
                cycles[block] / total,
            )
            for block in order
        ]


class _Plan:
    """What does not depend on how far memory reaches."""

    def __init__(self, features: ProgramFeatures, costs: InstructionCosts, counts: I64, sources: F64) -> None:
        processor = costs.processor
        self.static, self.processor, self.counts = features.static, processor, counts
        static = self.static
        num_blocks = len(static.blocks) - 1
        block_of = np.repeat(np.arange(num_blocks), np.diff(static.blocks))
        self.shares, self.lines = _line_sources(features, sources)
        lengths = static.shapes[:, 2].astype(np.float64)
        # A bulk access without a constant length touches as many lines as the trace saw.
        unknown = (lengths == 0) & (static.sites != NONE)
        lengths[unknown] = self.lines[unknown] * LINE_BYTES
        self.code = costs.machine_code(static, lengths)
        operations = np.bincount(block_of, self.code.slots, num_blocks).astype(np.float64)
        self._spread(spills(static, processor), operations, block_of)
        self.operations = operations
        work = counts * operations[static.edges[:, 1]]
        self.rare = work < _RARE * max(float(work.sum()), 1.0)
        self.via = _most_frequent_edges(static.edges, counts, num_blocks)
        self.unpredicted = _unpredicted(static.edges, counts, processor.core.history)

    def cycles(self, levels: int, predicted: bool = False) -> F64:
        """Returns the cycles that each edge's target adds [e].

        Args:
            levels: nearest levels of memory that are not taken to be one level nearer; 1 for the first cache.
            predicted: whether all branches are.
        """
        static, core = self.static, self.processor.core
        code = self._with_memory(levels)
        wanted = np.where(self.counts > 0, 1, 0)
        if not predicted:
            wanted[self.unpredicted & (wanted == 1)] = 2
        wanted[self.rare] = 0
        sizes = Sizes(static.num_values, int(static.keys[:, 0].max(initial=-1)) + 1, core.width, core.window)
        edge_costs = edge_cycles(code, static.edges, wanted.astype(np.int64), self.via, sizes)
        edge_costs[self.rare] = (self.operations / core.width)[static.edges[self.rare, 1]]
        if not predicted:
            edge_costs[self.unpredicted] += core.mispredict
        return edge_costs

    def _spread(self, spilled: I64, operations: F64, block_of: I64) -> None:
        """Adds loads and stores of spilled vectors to their block's resources, evenly over its operations."""
        for column, name in enumerate(("load", "store")):
            cycles = self.processor.operations[name].inverse_at(self.processor.core.vector_bits)
            share = spilled[:, column] * cycles / np.maximum(operations, 1.0)
            self.code.busy[:, RESOURCE_NAMES.index(name)] += share[block_of] * self.code.slots
        operations += spilled.sum(axis=1)

    def _with_memory(self, levels: int) -> Code:
        static, memory = self.static, self.processor.memory
        shares = self.shares.copy()
        shares[:, levels - 1] += shares[:, levels:].sum(axis=1)
        shares[:, levels:] = 0.0
        nearest = memory.caches[0].latency
        sites = np.flatnonzero(static.sites != NONE)
        latency = self.code.latency.copy()
        ways = np.zeros((len(static.kinds), len(memory.caches)))
        occupation = np.array([*(level.line_cycles for level in memory.caches[1:]), memory.ram_line_cycles])
        if len(sites):
            averages = average_latency(shares[sites], memory)
            latency[sites] += np.where(self.code.reads[sites], averages - nearest, 0.0)
            ways[sites] = shares[sites, 1:] * self.lines[sites, None] * occupation
        busy = np.concatenate([self.code.busy, ways], axis=1)
        return Code(
            static.blocks,
            static.starts,
            static.operands,
            static.sources,
            static.results,
            static.keys,
            self.code.slots,
            latency,
            busy,
        )

    def total(self, cycles: F64, counts: F64 | I64 | None = None) -> float:
        """Returns the cycles of the program, equation 1."""
        return float(cycles @ (self.counts if counts is None else counts))


def _most_frequent_edges(edges: I64, counts: I64, num_blocks: int) -> I64:
    """Returns the edge by which each block is entered most often; -1 for those that do not run."""
    order = np.argsort(counts, kind="stable")
    order = order[counts[order] > 0]
    edge_of = np.full(num_blocks, NONE)
    # Of several assignments the last one holds.
    edge_of[edges[order, 1]] = order
    return edge_of


def _in_tasks(static: StaticFeatures, in_parallel: Bool) -> Bool:
    """Returns which edges lie in functions that tasks run.

    Every task enters its function, even if another does all the work there; serial code runs once.

    Args:
        static: static features of the program.
        in_parallel: whether an edge is taken more often by all tasks together than by the one that does most,
            [e].
    """
    function = static.functions[static.edges[:, 1]]
    return np.isin(function, function[in_parallel])


def _unpredicted(edges: I64, counts: I64, history: int) -> Bool:
    """Returns which edges leave a block against the prediction.

    That is an exit that is taken less often than once in `history` times that the block runs: patterns that
    are shorter repeat, and are predicted. The first edge of a function is a call.
    """
    num = int(edges.max(initial=0)) + 1
    leaving = np.bincount(
        np.maximum(edges[:, 0], 0), weights=np.where(edges[:, 0] >= 0, counts, 0), minlength=num
    )
    total = leaving[np.maximum(edges[:, 0], 0)]
    return np.asarray((edges[:, 0] >= 0) & (counts > 0) & (counts * history < total))


def _line_sources(features: ProgramFeatures, sources: F64) -> tuple[F64, F64]:
    """Returns where each instruction finds its lines [n, levels + 1], and lines of one execution [n].

    A site without samples takes the profile of its block, a block without samples that of the program; a
    program without samples finds all in the first cache. Equation 5 with P(D) by site.

    Args:
        features: features of the program.
        sources: `level_shares` of `BIN_DISTANCES`.
    """
    static, profile = features.static, features.profile
    num, levels = len(static.kinds), sources.shape[1]
    if not len(profile):
        return np.tile(np.eye(1, levels), (num, 1)), np.ones(num)
    num_blocks = len(static.blocks) - 1
    block_of = np.repeat(np.arange(num_blocks), np.diff(static.blocks))
    sites = np.flatnonzero(static.sites != NONE)
    site_of = np.full(int(static.sites.max()) + 1, NONE)
    site_of[static.sites[sites]] = sites
    at = site_of[profile[:, 0]]
    weights = sources[profile[:, 1]] * profile[:, 2:3]
    by_site = np.column_stack([np.bincount(at, column, num) for column in weights.T])
    by_block = np.column_stack([np.bincount(block_of[at], column, num_blocks) for column in weights.T])
    shares = np.tile(weights.sum(axis=0) / weights.sum(), (num, 1))
    for site_weights in (by_block[block_of], by_site):
        sums = site_weights.sum(axis=1)
        shares[sums > 0] = site_weights[sums > 0] / sums[sums > 0, None]
    executions = features.block_counts(1)[block_of]
    samples = by_site.sum(axis=1)
    seen = (samples > 0) & (executions > 0)
    touched = samples[seen] / profile[:, 2].sum() * features.touched
    lines = np.ones(num)
    lines[seen] = np.maximum(1.0, touched / executions[seen])
    return shares, lines
