from __future__ import annotations

import json

import pytest

from costbench.target import available_targets
from tests.golden.simulator_cases import CASES, GOLDEN, prices


@pytest.fixture(scope="module")
def golden() -> dict[str, dict[str, dict[str, list[float]]]]:
    return json.loads(GOLDEN.read_text("utf-8"))


@pytest.fixture(scope="module")
def now() -> dict[str, dict[str, dict[str, list[float]]]]:
    return json.loads(json.dumps(prices()))


def test_the_file_holds_every_case(golden: dict[str, dict[str, object]]) -> None:
    assert {chip: set(cases) for chip, cases in golden.items()} == {
        chip: set(CASES) for chip in available_targets()
    }


@pytest.mark.parametrize("chip", available_targets())
@pytest.mark.parametrize("case", CASES)
def test_prices_have_not_changed(
    chip: str,
    case: str,
    golden: dict[str, dict[str, dict[str, list[float]]]],
    now: dict[str, dict[str, dict[str, list[float]]]],
) -> None:
    """Where a change is meant, write the file again as `simulator_cases` says, and review its difference."""
    expected, found = golden[chip][case], now[chip][case]
    assert set(found) == set(expected)
    for part, values in expected.items():
        slack = 1.0 if part == "measured_ns" else 2e-4
        assert found[part] == pytest.approx(values, abs=slack, rel=1e-9), part
