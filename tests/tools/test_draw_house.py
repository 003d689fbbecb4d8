from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tools.draw_house import reduce_arrows


def test_the_page_is_of_the_code_as_it_is(repository: Path) -> None:
    command = [sys.executable, str(repository / "tools" / "draw_house.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_arrows_that_a_longer_way_implies_are_left_out() -> None:
    arrows = {"reports": {"models", "hlo"}, "models": {"features"}, "features": {"hlo"}, "hlo": set[str]()}
    assert reduce_arrows(arrows) == {
        "reports": {"models"},
        "models": {"features"},
        "features": {"hlo"},
        "hlo": set(),
    }
