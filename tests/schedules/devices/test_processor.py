from __future__ import annotations

from pathlib import Path

import pytest

from costbench.errors import TargetError
from costbench_schedules.devices.processor import OperationCost, available_processors, load_processor

PAPER = Path(__file__).parents[3] / "src/costbench_schedules/devices/processors/intel_xeon_gold_5220r.yaml"


def test_every_processor_that_ships_can_be_read() -> None:
    assert set(available_processors()) >= {"amd_epyc_7763", "intel_xeon_gold_5220r"}
    for name in available_processors():
        assert load_processor(name).memory.line_bytes == 64


def test_the_papers_target_is_its_table_1() -> None:
    processor = load_processor("intel_xeon_gold_5220r")
    assert processor.threads == 48
    caches = processor.memory.caches
    # 48 cores of 32 KB are 1536 KB, of 1 MB 48 MB; two sockets of 35.75 MB are 71.5 MB.
    assert [caches[0].kib * 48, caches[1].kib * 48, caches[2].kib * 2] == [1536, 48 * 1024, 71.5 * 1024]
    assert [level.associativity for level in caches] == [8, 16, 11]
    assert [level.latency for level in caches] == [4, 14, 59.5]
    assert processor.memory.ram_latency == 108


def test_a_width_that_is_not_listed_costs_as_the_next_wider() -> None:
    cost = OperationCost(4.0, {"128": 0.5, "512": 1.0})
    assert [cost.inverse_at(bits) for bits in (32, 128, 256, 512, 1024)] == [0.5, 0.5, 1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("ghz: 2.2", "ghz: 220", "ghz has to be from 0.1 to 10"),
        ("line_bytes: 64", "line_bytes: 128", "line_bytes has to be 64"),
        ("associativity: 11, ", "", "associativity"),
        ("ram_latency: 108", "ram_latency: 20", "latencies have to grow"),
        ("  store: ", "  stores: ", "operations lacks store"),
        ("latency: 59.5", "latency: -1", "have to be positive"),
        ("  width: 4", "  widht: 4", "widht"),
        ("  caches:", "  cache:", "caches"),
    ],
)
def test_a_broken_description_is_one_error(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = PAPER.read_text("utf-8")
    assert old in text
    path = tmp_path / "broken.yaml"
    path.write_text(text.replace(old, new), "utf-8")
    with pytest.raises(TargetError, match=said) as caught:
        load_processor(path)
    assert str(caught.value).startswith(str(path))


def test_unknown_processors_are_named_with_those_known() -> None:
    with pytest.raises(TargetError, match="one of amd_epyc_7763"):
        load_processor("z80")
