"""Repeated descriptions of a processor: medians, and how far they differ."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from costbench_schedules.devices.instrumented.description import as_mapping, median_description
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
