from __future__ import annotations

import pytest

from tools import draw_house
from tools.draw_house import reduce_arrows


def test_the_page_is_of_the_code_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["draw_house.py", "--check"])
    draw_house.main()


def test_arrows_that_a_longer_way_implies_are_left_out() -> None:
    arrows = {"reports": {"models", "hlo"}, "models": {"features"}, "features": {"hlo"}, "hlo": set[str]()}
    assert reduce_arrows(arrows) == {
        "reports": {"models"},
        "models": {"features"},
        "features": {"hlo"},
        "hlo": set(),
    }
