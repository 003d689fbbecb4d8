"""Collectives take what the model of the links says, by hand."""

from __future__ import annotations

import pytest

from costbench.experiments.tuning.prices import Links
from costbench.hlo.opcode import Opcode

# 800 bytes at 2 GB/s take 400 ns; of 4 chips each passes three quarters of that on, in three steps.
LINKS = Links(chips=4, gb_per_s=2.0, ns=10.0)


@pytest.mark.parametrize(
    ("opcode", "expected"),
    [
        (Opcode.ALL_GATHER, 3 * 10 + 300),
        (Opcode.REDUCE_SCATTER, 3 * 10 + 300),
        (Opcode.ALL_REDUCE, 6 * 10 + 600),
        (Opcode.ALL_TO_ALL, 3 * 10 + 300),
        (Opcode.RAGGED_ALL_TO_ALL, 3 * 10 + 300),
        (Opcode.COLLECTIVE_PERMUTE, 10 + 400),
        (Opcode.COLLECTIVE_BROADCAST, 3 * 10 + 400),
        (Opcode.CUSTOM_CALL, None),
        (Opcode.INFEED, None),
    ],
)
def test_every_collective_by_hand(opcode: Opcode, expected: float | None) -> None:
    assert LINKS.price_ns(opcode, 800) == expected


@pytest.mark.parametrize("opcode", [Opcode.ALL_GATHER, Opcode.ALL_REDUCE, Opcode.COLLECTIVE_BROADCAST])
def test_one_chip_has_nobody_to_talk_to(opcode: Opcode) -> None:
    assert Links(chips=1, gb_per_s=2.0, ns=10.0).price_ns(opcode, 800) == 0.0


@pytest.mark.parametrize(
    ("links", "problem"),
    [
        ({"chips": 0, "gb_per_s": 1.0}, "chips is 0"),
        ({"chips": 2, "gb_per_s": 0.0}, "gb_per_s is 0.0"),
        ({"chips": 2, "gb_per_s": 1.0, "ns": -1.0}, "ns is -1.0"),
    ],
)
def test_wrong_links(links: dict[str, float], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Links(**links)  # type: ignore[arg-type]
