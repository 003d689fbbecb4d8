"""A processor with round numbers, and features of kernels without a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from costbench_schedules.devices.processor import (
    RESOURCES,
    CacheLevel,
    Core,
    Memory,
    OperationCost,
    Processor,
)
from costbench_schedules.llvm.features import NONE, ProgramFeatures, static_features
from costbench_schedules.llvm.program import ENTRY_EDGE, parse_program

CORE = Core(
    ghz=1.0,
    width=4,
    window=64,
    vector_bits=256,
    vector_registers=16,
    fused=True,
    mispredict=20.0,
    history=32,
)
MEMORY = Memory(64, (CacheLevel(32, 8, 4.0), CacheLevel(1024, 8, 14.0, 2.0)), 100.0, 10.0)
COSTS = {name: OperationCost(1.0, {"64": 0.25, "256": 0.5}) for name in RESOURCES}
COSTS |= {"multiply_add": OperationCost(4.0, {"256": 0.5}), "load": OperationCost(4.0, {"256": 0.5})}
COSTS |= {"store": OperationCost(2.0, {"256": 1.0})}
ROUND = Processor("round", "made up", 4, CORE, MEMORY, COSTS)


def without_fused() -> Processor:
    return replace(ROUND, core=replace(CORE, fused=False))


def features(
    text: str, counts: Mapping[tuple[str, str], int], distances: tuple[int, ...] = ()
) -> ProgramFeatures:
    """Returns features of a kernel with counts of its edges and a sample of each distance at each site."""
    program = parse_program(text, "kernel")
    static, names = static_features(program)
    edges = [edge for function in program.functions for edge in function.edges]
    row = [counts.get(edge, 1 if edge[0] == ENTRY_EDGE else 0) for edge in edges]
    sites = static.sites[static.sites != NONE].tolist()
    profile = [[site, distance, 1] for site in sites for distance in distances]
    return ProgramFeatures(
        static=static,
        threads=np.array([1]),
        counts=np.array([[row, row]], dtype=np.int64),
        profile=np.array(profile, dtype=np.int64).reshape(-1, 3),
        touched=len(profile),
        footprint=0,
        names=names,
    )
