"""Repeated descriptions of a processor: medians, and how far they differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from costbench_schedules.devices.host import CacheFacts
from costbench_schedules.devices.instrumented.description import (
    _core,
    _memory,
    as_mapping,
    median_description,
)
from costbench_schedules.devices.processor import OperationCost, Processor, load_processor
from tests.schedules.crop.machines import ROUND


def at(ghz: float, load: float) -> Processor:
    operations = {**ROUND.operations, "load": OperationCost(load, ROUND.operations["load"].inverse)}
    return replace(ROUND, core=replace(ROUND.core, ghz=ghz), operations=operations)


def test_each_number_is_the_median_by_itself() -> None:
    description = median_description([at(2.0, 9.0), at(4.0, 5.0), at(2.5, 4.0)])
    assert description.core.ghz == 2.5
    assert description.operations["load"].latency == 5.0
    # (4 - 2) / 2.5 and (9 - 4) / 5; nothing else differs.
    assert description.spread == {"core.ghz": 0.8, "operations.load.latency": 1.0}
    assert replace(description, core=ROUND.core, operations=ROUND.operations, spread={}) == ROUND


def test_one_description_is_its_own_median() -> None:
    assert median_description([ROUND]) == ROUND


def test_caches_are_compared_level_by_level() -> None:
    nearest, *others = ROUND.memory.caches
    slower = replace(nearest, latency=nearest.latency + 1.0)
    other = replace(ROUND, memory=replace(ROUND.memory, caches=(slower, *others)))
    description = median_description([ROUND, other])
    assert description.memory.caches[0].latency == pytest.approx(nearest.latency + 0.5)
    assert list(description.spread) == ["memory.caches.0.latency"]


def test_a_description_with_its_spread_can_be_read(tmp_path: Path) -> None:
    description = median_description([at(2.0, 4.0), at(3.0, 4.0)])
    path = tmp_path / "cpu.yaml"
    with path.open("w", encoding="utf-8") as file:
        YAML().dump(as_mapping(description), file)
    assert load_processor(path) == description


def test_caches_of_one_core_with_two_threads_are_not_shared() -> None:
    """Two threads of a core have the first two caches, 32 threads of 16 cores the third."""
    sharers = {1: 2, 2: 2, 3: 32}
    facts = [CacheFacts(level, 32.0 * 16**level, 8, 64, threads) for level, threads in sharers.items()]
    cycles = {f"level {level} {kind}": 4.0 + level for level in range(4) for kind in ("latency", "line")}
    assert [cache.shared for cache in _memory(facts, cycles).caches] == [False, False, True]


@pytest.mark.parametrize(
    ("bits", "features", "registers", "fused"),
    [
        (128, {"sse2": True, "avx": False, "fma": False}, 16, False),
        (256, {"sse2": True, "avx": True, "fma": True}, 16, True),
        (512, {"sse2": True, "avx": True, "fma": True}, 32, True),
        (128, {"neon": True}, 32, True),
    ],
)
def test_registers_are_those_of_the_instruction_set(
    bits: int, features: dict[str, bool], registers: int, fused: bool
) -> None:
    core = _core(3.0, bits, features)
    assert (core.vector_registers, core.fused) == (registers, fused)
